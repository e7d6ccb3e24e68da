"""What the emulator found wrong, in words."""

from __future__ import annotations

from dataclasses import dataclass, replace

# In the order of `enum Kind` in emulator/runtime/findings.h.
KINDS = [
    "out-of-bounds", "write-through-const", "race", "race", "race-between-blocks", "uninitialised", "divergent-barrier",
    "exited-threads", "missing-lanes", "missing-lanes", "missing-lanes", "out-of-bounds", "division-by-zero",
    "infinite-loop", "misaligned", "stack-overflow", "assertion-failed", "crash",
    "divergent-warp-operation",
]  # fmt: skip
(OUT_OF_BOUNDS, READ_ONLY, RACE_SHARED, RACE_GLOBAL, RACE_BLOCKS, UNINITIALISED, DIVERGENT_BARRIER, EXITED, STUCK,
 MISSING_LANE, LANE_NOT_IN_MASK, ARRAY_INDEX, DIVISION, ENDLESS, MISALIGNED, STACK, ASSERTION,
 CRASH, DIVERGENT_LANES) = range(19)  # fmt: skip
VERBS = ["reads", "writes", "updates", "reads"]
PAST = ["read", "write", "atomic update", "read"]


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong with a kernel, at one line, with the first thread that did it.

    Attributes
    ----------
    kind : str
        "out-of-bounds", "race" (within a block), "race-between-blocks", "uninitialised", "divergent-barrier",
        "exited-threads", "missing-lanes", "divergent-warp-operation", "division-by-zero", "write-through-const",
        "misaligned", "infinite-loop",
        "stack-overflow", "shared-memory-limit", "assertion-failed" or "crash".
    line, column : int
        Where in the source (from 1; 0 is unknown).
    array : str
        The array or variable it happened to; empty if it is none.
    thread, block : tuple of 3 int
        threadIdx and blockIdx of the first thread that did it.
    message : str
        The whole story in a sentence.
    offset : int
        Bytes from the beginning of the array.
    count : int
        How often it happened.
    source : str
        The text of the line.
    other_line, other_thread, other_block
        The other side of a race.
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

    def __str__(self):
        times = f" ({self.count} times)" if self.count > 1 else ""
        where = f"line {self.line}" if self.line else "launch"
        text = f"{self.kind}, {where}: {self.message}{times}"
        return text + (f"\n        {self.source.strip()}" if self.source.strip() else "")


def describe(raw: dict, regions: list[dict], sites, lines: list[str]) -> Finding:
    """Turn one finding of the report into a `Finding`.

    Parameters
    ----------
    raw : dict
        As `emulator/runtime/launch_io.h` wrote it.
    regions, sites : list
        Arrays and places that its numbers stand for.
    lines : list of str
        The source.
    """
    site, other = sites[raw["site"]], sites[raw["other_site"]]
    region = regions[raw["region"]] if raw["region"] >= 0 else None
    thread, block = tuple(raw["thread"]), tuple(raw["block"])
    who = f"thread {thread} of block {block}"
    message = _message(raw, region, site, other, who)
    return Finding(
        kind=KINDS[raw["kind"]],
        line=site.line,
        column=site.column,
        array=region["name"] if region else "",
        thread=thread,
        block=block,
        message=message,
        offset=raw["offset"],
        count=raw["count"],
        source=lines[site.line - 1] if 0 < site.line <= len(lines) else "",
        other_line=other.line,
        other_thread=tuple(raw["other_thread"]),
        other_block=tuple(raw["other_block"]),
    )


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


def _message(raw, region, site, other, who) -> str:
    kind, block, offset, extra = raw["kind"], tuple(raw["block"]), raw["offset"], raw["extra"]
    verb, they = VERBS[raw["access"]], tuple(raw["other_thread"])
    if kind == OUT_OF_BOUNDS:
        if region is None and raw["text"] == "host":
            return (
                f"{who} {verb} a variable that a card does not have: declare it __device__, __constant__ or __shared__"
            )
        if region is None:
            return f"{who} {verb} {raw['size']} bytes at address {offset:#x}, which is near none of the arrays"
        item, size = max(region["item"], 1), region["bytes"]
        has = f"{size // item} elements ({size} bytes)" if item > 1 else f"{size} bytes"
        return f"{who} {verb} {_element(raw, region)}, byte offset {offset}, but it has {has}"
    if kind in (RACE_SHARED, RACE_GLOBAL, RACE_BLOCKS):
        missing = (
            "blocks run in any order, so only atomics can share it"
            if kind == RACE_BLOCKS
            else "no barrier lies between"
        )
        rival = f"thread {they} of block {tuple(raw['other_block'])} at line {other.line}"
        clash = f"the {PAST[raw['other_access']]} by {rival}"
        return f"{who} {verb} {_element(raw, region)}, which clashes with {clash}: {missing}"
    if kind == STUCK:
        lanes = int(raw["text"].split()[1], 16)
        why = (
            f"lanes {_ranges(lanes)} of its mask never come"
            if lanes
            else "the lanes of its mask came for different things"
        )
        tail = f"; others wait at line {other.line}" if other.line else ""
        return f"{who} waits at a warp operation for ever: {why}{tail}"
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
        DIVERGENT_BARRIER: f"some threads of block {block} wait here, thread {they} at the one in line {other.line}",
        EXITED: f"{extra} threads of block {block} had returned before this barrier",
        MISSING_LANE: f"lane {extra} ({who}) reads lane {offset}, which takes no part: its value is undefined",
        LANE_NOT_IN_MASK: f"{who} calls a warp operation with mask {extra & 0xFFFFFFFF:#010x}, which leaves itself out",
        ARRAY_INDEX: f"{who} uses index {offset} of an array of type {raw['text']}",
        DIVERGENT_LANES: f"{who} exchanges values here, thread {they} of its warp at line {other.line}: "
        "all lanes of a mask must call the same warp operation",
        DIVISION: f"{who} divides an integer by zero",
        ENDLESS: f"{who} was still running when the time limit ended the launch, {raw['text']} blocks were done",
        STACK: f"{who} needs more than 200 KiB of local memory: too many nested calls, or too large local arrays",
        ASSERTION: f"{who}: assert({raw['text']}) does not hold",
        CRASH: f"{who} divides the smallest integer by -1, which overflows"
        if raw["text"] == "division"
        else f"{who} crashed the program near this line, after damaging its own local variables, say",
    }[kind]


def merge(findings: list[Finding]) -> list[Finding]:
    """Put together what is one mistake: the same kind, line and array (`h[i] += 1` races as a read and as a write)."""
    merged: dict[tuple, Finding] = {}
    for f in findings:
        key = (f.kind, f.array, *sorted((f.line, f.other_line)))
        if key in merged:
            merged[key] = replace(merged[key], count=merged[key].count + f.count)
        else:
            merged[key] = f
    return list(merged.values())
