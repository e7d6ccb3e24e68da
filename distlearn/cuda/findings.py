"""What the emulator found wrong, in words."""

from __future__ import annotations

from dataclasses import dataclass, replace

# In the order of `enum Kind` in emulator/runtime/findings.h.
KINDS = [
    "out-of-bounds", "write-through-const", "race", "race", "race-between-blocks", "uninitialised", "divergent-barrier",
    "exited-threads", "missing-lanes", "missing-lanes", "missing-lanes", "out-of-bounds", "division-by-zero",
    "infinite-loop", "misaligned", "stack-overflow", "assertion-failed", "crash", "same-value",
    "divergent-warp-operation", "conversion", "shift",
]  # fmt: skip
WARNINGS = {"exited-threads", "same-value", "uninitialised-local"}  # cards since Volta allow it
# What comes first, as others follow from it: threads that do not meet, then what is shared without meeting.
FIRST = ["divergent-barrier", "missing-lanes", "divergent-warp-operation", "race"]
(OUT_OF_BOUNDS, READ_ONLY, RACE_SHARED, RACE_GLOBAL, RACE_BLOCKS, UNINITIALISED, DIVERGENT_BARRIER, EXITED, STUCK,
 MISSING_LANE, LANE_NOT_IN_MASK, ARRAY_INDEX, DIVISION, ENDLESS, MISALIGNED, STACK, ASSERTION,
 CRASH, SAME_VALUE, DIVERGENT_LANES, CONVERSION, SHIFT) = range(22)  # fmt: skip
VERBS = ["reads", "writes", "updates", "reads"]
PAST = ["read", "written", "updated by an atomic", "read"]


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong with a kernel, at one line, with the first thread that did it.

    Attributes
    ----------
    kind : str
        "out-of-bounds", "race" (within a block), "race-between-blocks", "uninitialised", "divergent-barrier",
        "missing-lanes", "divergent-warp-operation", "division-by-zero", "write-through-const", "misaligned",
        "infinite-loop", "stack-overflow", "conversion" and "shift" (the result differs from a card's),
        "shared-memory-limit", "assertion-failed" or "crash"; of a warning "exited-threads" (at a barrier),
        "same-value" (several threads write the same value to one place) or "uninitialised-local".
    line, column : int
        Where in the source (from 1; 0 is unknown).
    file : str
        The header it is in; empty for the source itself.
    array : str
        The array or variable it happened to; empty if there is none.
    thread, block : tuple of 3 int
        threadIdx and blockIdx of the first thread that did it.
    message : str
        The full description, one sentence.
    offset : int
        Bytes from the beginning of the array.
    count : int
        How often it happened.
    source : str
        The text of the line.
    other_line, other_file, other_source, other_thread, other_block
        The other side of a race, of a barrier or of a warp operation.
    """

    kind: str
    line: int
    column: int
    array: str
    thread: tuple
    block: tuple
    message: str
    offset: int = 0
    count: int = 1
    source: str = ""
    other_line: int = 0
    other_thread: tuple = ()
    other_block: tuple = ()
    file: str = ""
    other_file: str = ""
    other_source: str = ""

    @property
    def is_warning(self) -> bool:
        """Whether cards since Volta allow it."""
        return self.kind in WARNINGS

    @property
    def where(self) -> str:
        """The place in words."""
        return place_in_words(self.line, self.file) if self.line else "launch"

    @property
    def shown_lines(self) -> list[str]:
        """The text of its line; where two lines clash, of both, each after its number."""
        mine, other = self.source.strip(), self.other_source.strip()
        if not self.other_line or (self.other_line, self.other_file) == (self.line, self.file):
            return [mine] if mine else []
        pairs = sorted([(self.file, self.line, mine), (self.other_file, self.other_line, other)])
        return [f"{line:4d} | {text}" for _, line, text in pairs]

    def __str__(self):
        times = f" ({self.count} times)" if self.count > 1 else ""
        text = f"{self.kind}, {self.where}: {self.message}{times}"
        return "".join([text, *(f"\n        {line}" for line in self.shown_lines)])


def place_in_words(line: int, file: str) -> str:
    """Return "line 3", or "line 3 of tile.cuh"."""
    return f"line {line}" + (f" of {file}" if file else "")


def describe(raw: dict, regions: list[dict], sites, code) -> Finding:
    """Turn one finding of the report into a `Finding`.

    Parameters
    ----------
    raw : dict
        As `emulator/runtime/launch_io.h` wrote it.
    regions, sites : list
        Arrays and places that its numbers refer to.
    code : DeviceCode
        The source.
    """
    if _report_at_other_access(raw, sites):
        raw = raw | {"site": raw["other_site"], "other_site": raw["site"], "access": raw["other_access"],
                     "other_access": raw["access"], "thread": raw["other_thread"], "other_thread": raw["thread"],
                     "block": raw["other_block"], "other_block": raw["block"], "later": True}  # fmt: skip
    site, other = sites[raw["site"]], sites[raw["other_site"]]
    region = regions[raw["region"]] if raw["region"] >= 0 else None
    (file, line), (other_file, other_line) = code.flat.place(site.line), code.flat.place(other.line)
    thread, block = tuple(raw["thread"]), tuple(raw["block"])
    who = f"thread {thread} of block {block}"
    return Finding(
        kind=KINDS[raw["kind"]],
        line=line,
        column=site.column,
        array=region["name"] if region else "",
        thread=thread,
        block=block,
        message=_message(raw, region, place_in_words(other_line, other_file) if other_line else "", who),
        offset=raw["offset"],
        count=raw["count"],
        source=line_of(code, site.line),
        other_line=other_line,
        other_thread=tuple(raw["other_thread"]),
        other_block=tuple(raw["other_block"]),
        file=file,
        other_file=other_file,
        other_source=line_of(code, other.line),
    )


def line_of(code, line: int) -> str:
    """Return the text of a line as compilers count them; empty for one that is not of the source."""
    return code.lines[line - 1] if 0 < line <= len(code.lines) else ""


def _report_at_other_access(raw, sites) -> bool:
    """Report a race at the read, where the barrier is missing; otherwise at the earlier line."""
    if raw["kind"] not in (RACE_SHARED, RACE_GLOBAL, RACE_BLOCKS):
        return False
    reads, read_before = (raw[access] in (0, 3) for access in ("access", "other_access"))
    return not reads and (read_before or sites[raw["other_site"]].line > sites[raw["site"]].line)


def _element(raw, region) -> str:
    item = max(region["item"], 1)
    index, rest = divmod(raw["offset"], item)
    if region["name"] == "dynamic shared memory":
        return f"byte {raw['offset']} of dynamic shared memory"
    places, sides = [], [side for side in region["sides"] if side]
    for side in sides[:0:-1] if 0 <= raw["offset"] < region["bytes"] else ():
        index, place = divmod(index, side)
        places.insert(0, place)
    return region["name"] + "".join(f"[{i}]" for i in (index, *places)) + (f" (+ {rest} bytes)" if rest else "")


def _ranges(mask: int) -> str:
    """Write the set bits of a mask: 0xffff0001 is '0, 16-31'."""
    bits, parts = [i for i in range(32) if mask >> i & 1], []
    for i in bits:
        if i - 1 not in bits:
            parts.append([i, i])
        parts[-1][1] = i
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)


def _message(raw, region, other, who) -> str:
    kind, block, offset, extra = raw["kind"], tuple(raw["block"]), raw["offset"], raw["extra"]
    verb, they = VERBS[raw["access"]], tuple(raw["other_thread"])
    if kind == OUT_OF_BOUNDS:
        if region is None and raw["text"] == "host":
            return (
                f"{who} {verb} a variable that a card does not have: declare it __device__, __constant__ or __shared__"
            )
        if region is None:
            where = "which is not near any array" if offset >> 12 else "through a null pointer"
            return f"{who} {verb} {raw['size']} bytes at address {offset:#x}, {where}"
        item, size = max(region["item"], 1), region["bytes"]
        has = f"{size // item} elements ({size} bytes)" if item > 1 else f"{size} bytes"
        return f"{who} {verb} {_element(raw, region)}, byte offset {offset}, but it has {has}"
    if kind in (RACE_SHARED, RACE_GLOBAL, RACE_BLOCKS, SAME_VALUE):
        if kind == RACE_BLOCKS:
            why = "blocks run in any order, so only atomics can share it"
            rival = f"thread {they} of block {tuple(raw['other_block'])}"
        else:
            why = "no barrier lies between" if kind != SAME_VALUE else "with the same value, so that nothing is lost"
            rival = f"thread {they}"
        past = PAST[raw["other_access"]] + (" later" if "later" in raw else "")
        return f"{who} {verb} {_element(raw, region)}, {past} by {rival}, {other}: {why}"
    if kind == STUCK:
        lanes = int(raw["text"].split()[1], 16)
        why = (
            f"lanes {_ranges(lanes)} of its mask never arrive"
            if lanes
            else "the lanes of its mask came for different things"
        )
        tail = f"; others wait at {other}" if other else ""
        return f"{who} waits at a warp operation forever: {why}{tail}"
    if region is not None:
        return (
            f"{who} {verb} {_element(raw, region)}, "
            + {
                UNINITIALISED: "which no thread of its block has written",
                READ_ONLY: "which is const for this kernel",
                MISALIGNED: f"{raw['size']} bytes that do not begin at a multiple of {raw['size']}",
            }[kind]
        )
    return {
        DIVERGENT_BARRIER: f"some threads of block {block} wait here, thread {they} at the one in {other}",
        EXITED: f"{extra} thread{'s' * (extra > 1)} of block {block} returned from the kernel instead of waiting "
        "at this barrier, which every thread of a block must reach",
        MISSING_LANE: f"lane {extra} ({who}) reads lane {offset}, which does not participate: its value is undefined",
        LANE_NOT_IN_MASK: f"{who} calls a warp operation with mask {extra & 0xFFFFFFFF:#010x}, which excludes itself",
        ARRAY_INDEX: f"{who} uses index {offset} of an array of type {raw['text']}",
        DIVERGENT_LANES: f"{who} exchanges values here, thread {they} of its warp at {other}: "
        "all lanes of a mask must call the same warp operation",
        DIVISION: f"{who} divides an integer by zero",
        CONVERSION: f"{who} converts without a cast to {raw['text']}; write the cast",
        SHIFT: f"{who} shifts {raw['text']} by as many bits as it has, or more",
        ENDLESS: f"{who} was still running when the time limit ended the launch, {raw['text']} blocks were done",
        STACK: f"{who} needs more than 200 KiB of local memory: too many nested calls, or too large local arrays",
        ASSERTION: f"{who}: assert({raw['text']}) does not hold",
        CRASH: f"{who} divides the smallest integer by -1, which overflows"
        if raw["text"] == "division"
        else f"{who} crashed the program near this line, perhaps after damaging its own local variables",
    }[kind]


def merge(findings: list[Finding]) -> list[Finding]:
    """Merge findings that are one mistake, and put causes before consequences.

    One mistake is: the same kind at the same line (`h[i] += 1` races as a read and as a write, a macro may touch many
    arrays), and a missing barrier: everything that one line reads before others have written it.
    """
    merged: dict[tuple, Finding] = {}
    also: dict[tuple, list[str]] = {}
    pairs: dict[tuple, tuple] = {}
    races = {(f.array, f.line, f.file) for f in findings if f.kind == "race"}
    all_races = {(f.line, f.file) for f in findings if f.kind.startswith("race")}
    for f in findings:
        if f.kind == "same-value" and (f.line, f.file) in all_races:
            continue  # not always the same, then
        if f.kind == "uninitialised" and (f.array, f.line, f.file) in races:
            continue  # read before it was written: the race names the thread that writes it too late
        lines = tuple(sorted([(f.file, f.line), (f.other_file, f.other_line)]))
        key = (f.kind, f.file, f.line) if f.kind == "race" or lines[0] == lines[1] else (f.kind, f.array, lines)
        if f.kind == "race":  # the same two lines, the other way round
            key = pairs.setdefault(lines, key)
        if key not in merged:
            merged[key] = f
            continue
        first = merged[key]
        merged[key] = replace(first, count=first.count + f.count)
        known = also.setdefault(key, [])
        if (
            f.array != first.array
            and (words := f"{f.array} with {place_in_words(f.other_line, f.other_file)}") not in known
        ):
            known.append(words)
    for key, words in also.items():
        if words:
            merged[key] = replace(merged[key], message=f"{merged[key].message}; likewise {', '.join(words)}")
    return sorted(merged.values(), key=lambda f: FIRST.index(f.kind) if f.kind in FIRST else len(FIRST))
