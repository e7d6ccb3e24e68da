"""The report of a checked launch: errors in words, and the use of memory, line by line."""

from __future__ import annotations

import html
import re
import textwrap
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ..tables import CSS_GREEN, CSS_RED, Table, quantity  # colour is never alone: the words say the same
from .emulator.source import place_in_words

_CLASH = "{who} {verb} {element}, {past} by thread {they}, {other}: "
KINDS = [  # the name and the sentence of each, in the order of `enum Kind` in emulator/runtime/findings.h
    ("out-of-bounds", "{who} {verb} {element}, byte offset {offset}, but it has {has}"),
    ("write-through-const", "{who} {verb} {element}, which is const for this kernel"),
    ("race", _CLASH + "no barrier lies between"),  # in shared memory
    ("race", _CLASH + "no barrier lies between"),  # in global memory
    ("race-between-blocks", "{who} {verb} {element}, {past} by thread {they} of block {their_block}, {other}: "
     "blocks run in any order, so only atomics can share it"),
    ("uninitialised", "{who} {verb} {element}, which no thread of its block has written"),
    ("divergent-barrier", "some threads of block {block} wait here, thread {they} at the one in {other}"),
    ("exited-threads", "{threads} of block {block} returned from the kernel instead of waiting at this barrier, which "
     "every thread of a block must reach"),
    ("missing-lanes", "{who} waits at a warp operation forever: {why}{others}"),
    ("missing-lanes", "lane {extra} ({who}) reads lane {offset}, which does not participate: its value is undefined"),
    ("missing-lanes", "{who} calls a warp operation with mask {mask:#010x}, which excludes itself"),
    ("out-of-bounds", "{who} uses index {offset} of an array of type {text}"),
    ("division-by-zero", "{who} divides an integer by zero"),
    ("infinite-loop", "{who} was still running when the time limit ended the launch, {text} blocks were done"),
    ("misaligned", "{who} {verb} {element}, {size} bytes that do not begin at a multiple of {size}"),
    ("stack-overflow", "{who} needs more than 200 KiB of local memory: too many nested calls, or too large local "
     "arrays"),
    ("assertion-failed", "{who}: assert({text}) does not hold"),
    ("crash", "{who} crashed the program near this line, perhaps after damaging its own local variables"),
    ("same-value", _CLASH + "with the same value: wasted work, or a wrong index"),
    ("divergent-warp-operation", "{who} exchanges values here, thread {they} of its warp at {other}: all lanes of a "
     "mask must call the same warp operation"),
    ("conversion", "{who} converts without a cast to {text}; write the cast"),
    ("shift", "{who} shifts {text}: on a card the result depends on what the compiler computes in advance"),
    ("unfinished", "the time limit ended the launch after {text} blocks and the last: a smaller grid is "
     "checked to its end"),
]  # fmt: skip
NO_ARRAY = "{who} {verb} {size} bytes at address {offset:#x}, which is not near any array"
NULL_ZONE = 1 << 20  # as in emulator/runtime/checker.cpp
NULL_CALL = "{who} calls a function through a null pointer"
NULL = "{who} {verb} {size} bytes at address {offset:#x}, through a null pointer"
HOST = "{who} {verb} a variable that a card does not have: declare it __device__, __constant__ or __shared__"
OVERFLOW = "{who} divides the smallest integer by -1, which overflows"
WARNINGS = {"exited-threads", "same-value", "uninitialised-local", "overlaid"}  # cards since Volta allow it
# Kinds that come first, as others follow from them: threads that do not meet, then data shared without a barrier.
FIRST = ["divergent-barrier", "missing-lanes", "divergent-warp-operation", "race"]
VERBS = ["reads", "writes", "updates", "reads"]
PAST = ["read", "written", "updated by an atomic", "read"]


@dataclass(frozen=True)
class Finding:
    """One error of a kernel, at one line, with the first thread that made it.

    `kind` is "out-of-bounds", "race" (within a block), "race-between-blocks", "uninitialised", "divergent-barrier",
    "missing-lanes", "divergent-warp-operation", "division-by-zero", "write-through-const", "misaligned",
    "infinite-loop", "unfinished" (more blocks than the time limit lets run), "stack-overflow", "conversion" (the result
    differs from a card's), "shift" (by too many bits, or fewer than 0), "shared-memory-limit", "assertion-failed",
    "removed-intrinsic" (a shuffle or vote without _sync) or "crash"; of a warning "exited-threads" (at a barrier),
    "same-value" (several threads write the same value to one place), "uninitialised-local" or "overlaid" (two
    `extern __shared__` arrays of one function, which begin at one place).
    """

    kind: str
    line: int  # in the source, from 1; 0 is unknown
    column: int
    array: str  # or variable; empty if there is none
    thread: tuple[int, ...]  # threadIdx of the first thread that did it
    block: tuple[int, ...]
    message: str  # one sentence
    offset: int = 0  # bytes from the beginning of the array
    count: int = 1
    source: str = ""  # the text of the line
    other_line: int = 0  # the other side of a race, of a barrier or of a warp operation
    other_thread: tuple[int, ...] = ()
    other_block: tuple[int, ...] = ()
    file: str = ""  # the header it is in; empty for the source itself
    other_file: str = ""
    other_source: str = ""

    @property
    def is_warning(self) -> bool:
        """Whether cards since Volta allow it."""
        return self.kind in WARNINGS

    @property
    def where(self) -> str:
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


def describe(raw: dict, regions: list[dict], sites, code) -> Finding:
    """Describe one finding in words; `raw` is the record of `emulator/runtime/launch_io.h`, its numbers are indices."""
    if _report_at_other_access(raw, sites):
        both = [(name, f"other_{name}") for name in ("site", "access", "thread", "block")]
        raw = raw | {name: raw[other] for name, other in both} | {other: raw[name] for name, other in both}
        raw["later"] = True
    region = regions[raw["region"]] if raw["region"] >= 0 else None
    site, other = (_place(code, sites[raw[name]].line) for name in ("site", "other_site"))
    who = {name: tuple(raw[name]) for name in ("thread", "block", "other_thread", "other_block")}
    return Finding(
        KINDS[raw["kind"]][0],
        column=sites[raw["site"]].column,
        array=region["name"] if region else "",
        message=_message(raw, region, place_in_words(other["line"], other["file"]) if other["line"] else "", who),
        offset=raw["offset"],
        count=raw["count"],
        **(site | who | {f"other_{name}": value for name, value in other.items()}),
    )


def _place(code, number: int) -> dict:
    """Return the file, line and text of a line as compilers count them; empty for one outside of the source."""
    file, line = code.flat.place(number)
    return {"file": file, "line": line, "source": code.flat.line(number)}


def _report_at_other_access(raw, sites) -> bool:
    """Report a race at the read, where the barrier is missing; otherwise at the earlier line."""
    if not KINDS[raw["kind"]][0].startswith("race"):
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


def _message(raw, region, other, who) -> str:
    kind, sentence = KINDS[raw["kind"]]
    if kind == "crash" and raw["text"] == "division":
        sentence = OVERFLOW
    elif kind == "crash" and raw["text"] == "call":
        sentence = NULL_CALL
    elif sentence == KINDS[0][1] and region is None:
        sentence = HOST if raw["text"] == "host" else NULL if 0 <= raw["offset"] < NULL_ZONE else NO_ARRAY
    words = {name: raw[name] for name in ("offset", "size", "extra", "text")}
    if region:
        item, size = max(region["item"], 1), region["bytes"]
        words["has"] = f"{size // item} elements ({size} bytes)" if item > 1 else f"{size} bytes"
        words["element"] = _element(raw, region)
    if "{why}" in sentence:
        absent = list(re.finditer("1+", f"{int(raw['text'].split()[1], 16):032b}"[::-1]))  # lane 0 first
        lanes = ", ".join(f"{m.start()}" + f"-{m.end() - 1}" * (len(m[0]) > 1) for m in absent)
        absence = f"lanes {lanes} of its mask never arrive"
        words["why"] = absence if absent else "the lanes of its mask came for different things"
    return sentence.format(
        **words,
        who=f"thread {who['thread']} of block {who['block']}",
        verb=VERBS[raw["access"]],
        past=PAST[raw["other_access"]] + (" later" if "later" in raw else ""),
        they=who["other_thread"],
        block=who["block"],
        their_block=who["other_block"],
        other=other,
        mask=raw["extra"] & 0xFFFFFFFF,
        threads=f"{raw['extra']} thread{'s' * (raw['extra'] > 1)}",
        others=f"; others wait at {other}" if other else "",
    )


def merge(findings: list[Finding]) -> list[Finding]:
    """Merge findings that are one mistake, and put causes before consequences."""
    # One mistake is the same kind at the same line (`h[i] += 1` races as a read and as a write, a macro may touch many
    # arrays), and a missing barrier: everything that one line reads before others have written it.
    merged: dict[tuple, list[Finding]] = {}
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
        merged.setdefault(key, []).append(f)
    found = [_as_one(*same) for same in merged.values()]
    return sorted(found, key=lambda f: FIRST.index(f.kind) if f.kind in FIRST else len(FIRST))


def _as_one(first: Finding, *others: Finding) -> Finding:
    also = [f"{f.array} with {place_in_words(f.other_line, f.other_file)}" for f in others if f.array != first.array]
    likewise = f"; likewise {', '.join(dict.fromkeys(also))}" if also else ""
    count = first.count + sum(f.count for f in others)
    return replace(first, count=count, message=first.message + likewise)


SECTOR = 32  # bytes; the smallest piece of global memory that a card moves
SHARED_LIMIT = 48 * 1024  # bytes of shared memory that a block gets without asking for more
SPACES = ["global", "shared", "constant"]
ACCESSES = ["read", "write", "atomic", "read"]


@dataclass
class Site:
    """One line's access to one array, over all warps."""

    line: int
    column: int
    access: str  # "read", "write" or "atomic"
    array: str
    space: str  # "global", "shared" or "constant"
    size: int  # bytes that each lane moves: 4 for a float, 16 for a float4
    requests: int = 0  # how often a warp executed it
    lanes: int = 0  # that took part, over all requests
    sectors: int = 0  # of 32 bytes of global memory
    ideal_sectors: int = 0  # the fewest that could hold the same data
    wavefronts: int = 0  # passes over the 32 banks of shared memory
    ideal_wavefronts: int = 0
    worst_conflict: int = 1  # most words of lanes in one bank in one pass: n of an "n-way bank conflict"; 1 is none
    file: str = ""  # the header it is in; empty for the source itself
    source: str = ""  # the text of the line

    @property
    def sectors_per_request(self) -> float:
        """Sectors that one warp's access touches, on average: 4 when 32 lanes read neighbouring floats."""
        return self.sectors / self.requests

    @property
    def ideal_per_request(self) -> float:
        """Sectors it would take if the data lay together."""
        return self.ideal_sectors / self.requests

    @property
    def wavefronts_per_request(self) -> float:
        """Passes over the banks of shared memory per access, on average."""
        return self.wavefronts / self.requests

    @property
    def coalesced(self) -> bool:
        """Whether global memory is used well: at most half as many sectors again as the data fill."""
        return self.space != "global" or self.sectors <= 1.5 * self.ideal_sectors


class Access(NamedTuple):
    """One access of one thread of the block that was recorded."""

    interval: int  # barriers of the block so far
    thread: int  # its number in the block
    array: str
    space: str
    offset: int  # bytes
    size: int
    item: int  # bytes of an item of the array
    kind: str  # "read", "write" or "atomic"
    line: int
    file: str


@dataclass
class Report:
    """The report of a checked launch of a kernel, a table in a notebook and text elsewhere.

    Counts are those of an H100's profiler, but for reads of shared memory where NVIDIA's compiler joins neighbouring
    words of a thread: there the card takes 3/4 of the passes in tiled matrix products, 0.6 to 0.88 in other kernels.
    """

    kernel: str
    compiler: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    errors: list[Finding] = field(default_factory=list)  # empty for a correct kernel
    # What cards since Volta allow, but is rarely intended: threads that have returned before a barrier, several threads
    # that write the same value to one place, local variables that may be read before they are written.
    warnings: list[Finding] = field(default_factory=list)
    sites: list[Site] = field(default_factory=list)
    flops: int = 0  # + - * / and functions such as exp count 1 each, a fused multiply-add 2
    active_lanes: float = 1.0  # below 1 when branches diverge or blocks are not multiples of 32
    busiest_warp: tuple[int, int] = (0, 0)  # most sectors, and most wavefronts, of any warp
    seconds: float = 0.0  # of the emulator: they say nothing about a card
    printed: str = ""
    truncated: bool = False  # a thread did more than 2**18 things between two barriers: `sites` has the beginning only
    recorded: list[Access] = field(default_factory=list, repr=False)  # of the block that `check(record=...)` named
    source: str = field(default="", repr=False)

    @property
    def ok(self) -> bool:
        return not self.errors

    @property
    def bytes_moved(self) -> int:
        """Bytes of global memory that move: whole sectors. Caches are not modelled."""
        return sum(s.sectors for s in self.sites if s.space == "global") * SECTOR

    @property
    def bytes_requested(self) -> int:
        """Bytes of global memory that the threads asked for."""
        return sum(s.lanes * s.size for s in self.sites if s.space == "global")

    @property
    def arithmetic_intensity(self) -> float:
        return self.flops / self.bytes_moved if self.bytes_moved else float("inf") if self.flops else 0.0

    def find(self, array: str, access: str | None = None, line: int | None = None) -> Site:
        """Return the one site of an array (and access, and line); raise LookupError if there is none, or more."""
        found = [
            s for s in self.sites if s.array == array and access in (None, s.access) and line in (None, s.line)
        ]  # fmt: skip
        if len(found) != 1:
            known = "; ".join(f"{s.access} {s.array} line {s.line}" for s in self.sites)
            wanted = f"array {array!r}, access {access}, line {line}"
            raise LookupError(f"{len(found)} sites match {wanted}; there are: {known}")
        return found[0]

    def __str__(self):
        return to_text(self)

    __repr__ = __str__

    def _repr_html_(self):
        return to_html(self)


def complete(report: Report, raw, made, code_of, shared_mem, code) -> Report:
    """Complete a `Report` by the program's output (None if it died without any) and the compiler's warnings."""
    if raw is None:
        late = "infinite-loop", "did not answer in time and was killed"
        kind, why = late if code == -1 else ("crash", f"ended with code {code} and without a report")
        message = f"the checked program {why}. {report.printed[-400:]}"
        report.errors.append(Finding(kind, 0, 0, "", (), (), message.strip()))
        return report
    regions = raw["regions"]
    found = [
        Finding(kind, column=column, array="", thread=(), block=(), message=message, **_place(code_of, line))
        for kind, line, column, message in made.warnings
    ]
    found += merge([describe(f, regions, made.sites, code_of) for f in raw["findings"]])
    report.errors = [f for f in found if not f.is_warning]
    report.errors += _too_much_shared(sum(r["bytes"] for r in regions if r["space"] == 1), shared_mem)
    report.warnings = [f for f in found if f.is_warning]
    report.sites = _sites(raw, regions, made.sites, code_of)
    report.recorded = [_access(r, regions, made.sites, code_of.flat) for r in raw["recorded"]]
    blocks = [(made.sites[site].flops, *ran) for site, *ran in raw["blocks"]]
    report.flops = sum((active + untraced) * flops for flops, _, active, untraced in blocks)
    issued = sum(n for _, n, _, _ in blocks)
    report.active_lanes = sum(active for _, _, active, _ in blocks) / (32 * issued) if issued else 1.0
    report.truncated, report.busiest_warp = raw["not_replayed"] > 0, tuple(raw["busiest_warp"])
    report.seconds = raw["seconds"]
    return report


def _access(raw, regions, build_sites, flat) -> Access:
    interval, thread, region, offset, size, kind, site = raw
    r, (file, line) = regions[region], flat.place(build_sites[site].line)
    array = r["name"], SPACES[r["space"]], offset, size, max(r["item"], 1)
    return Access(interval, thread, *array, ACCESSES[kind], line, file)


def _too_much_shared(nbytes: int, dynamic: int) -> list[Finding]:
    if nbytes <= SHARED_LIMIT:
        return []
    advice = (
        "that every card gives without asking; on a card, set max_dynamic_shared_size_bytes"
        if nbytes - dynamic <= SHARED_LIMIT
        else "that a card compiles; only dynamic shared memory (extern __shared__) may be larger"
    )
    message = f"a block uses {nbytes} bytes of shared memory ({dynamic} of them dynamic), more than the {SHARED_LIMIT} "
    return [Finding("shared-memory-limit", 0, 0, "", (0, 0, 0), (0, 0, 0), message + advice)]


def _sites(raw, regions, build_sites, code) -> list[Site]:
    merged: dict[tuple, Site] = {}
    for t in raw["traffic"]:
        place, region = build_sites[t["site"]], regions[t["region"]]
        array, space, access, size = region["name"], SPACES[region["space"]], ACCESSES[t["access"]], t["size"]
        made = Site(column=place.column, access=access, array=array, space=space, size=size, **_place(code, place.line))
        site = merged.setdefault((place.line, array, access, size), made)
        site.column = min(site.column, place.column) or place.column
        cost = "wavefronts" if space == "shared" else "sectors"
        for name, key in (("requests", "requests"), ("lanes", "lanes"), (cost, "cost"), (f"ideal_{cost}", "ideal")):
            setattr(site, name, getattr(site, name) + t[key])
        site.worst_conflict = max(site.worst_conflict, t["worst"])
    return sorted((s for s in merged.values() if s.requests), key=lambda s: (s.file, s.line, s.array, s.access, s.size))


def summary(report) -> str:
    """Return the line of totals."""
    moved, requested = quantity(report.bytes_moved, "B"), quantity(report.bytes_requested, "B")
    return (
        f"{report.flops:,} flop, {moved} moved for {requested} requested, {report.arithmetic_intensity:.2f} flop/byte, "
        f"{report.active_lanes:.0%} of lanes active"
    )


def verdict(site) -> str:
    """Describe how well a site uses memory."""
    if site.space == "shared":
        if site.worst_conflict == 1:
            return "✓ no bank conflict"
        return f"✗ {site.worst_conflict}-way bank conflict, {site.wavefronts_per_request:.2f} passes"
    text = f"{site.sectors_per_request:.2f} sectors (ideal {site.ideal_per_request:.2f})"
    return f"✓ {text}" if site.coalesced else f"✗ {text}, not coalesced"


def title(report) -> str:
    """Return the first line."""
    counts = [(len(report.errors), "error"), (len(report.warnings), "warning")]
    found = ["no errors"] * report.ok + [f"{n} {what}{'s' * (n > 1)}" for n, what in counts if n]
    return f"{report.kernel}, grid {report.grid}, block {report.block}: {', '.join(found)}"


def _table(report) -> Table:
    """Return the use of memory: a row for each line, array and kind of access."""
    rows = [
        [
            f"{s.line} {s.file}".strip(), s.access, f"{s.array} ({s.space})", str(s.size), f"{s.requests:,}",
            f"{s.lanes / s.requests / 32:.0%}", verdict(s), textwrap.shorten(s.source, 60, placeholder=" …"),
        ]
        for s in report.sites
    ]  # fmt: skip
    heads = ["line", "access", "array", "bytes per lane", "warp accesses", "lanes active", "memory", "source"]
    return Table(heads, rows, right=[3 <= i < 6 for i in range(len(heads))])


def to_text(report) -> str:
    """Return the report as plain text."""
    out = [title(report), *(f"  !! {error}" for error in report.errors)]
    out += [f"  !  warning: {warning}" for warning in report.warnings]
    if report.truncated:
        out.append("  (threads do very much between two barriers: only the beginning was counted by line)")
    if report.sites:
        out += [f"  {summary(report)}", textwrap.indent(str(_table(report)), "  ")]
    return "\n".join(out)


def to_html(report) -> str:
    """Return the report as an HTML table."""
    out = [f'<div><b style="color:{CSS_RED if report.errors else CSS_GREEN}">{html.escape(title(report))}</b><ul>']
    for e in [*report.errors, *report.warnings]:
        sentence, *lines = str(e).split("\n")
        kind, rest = sentence.split(",", 1)
        shown = "".join(f"<br><code>{html.escape(line.strip())}</code>" for line in lines)
        out.append(f"<li><b>{'warning: ' * e.is_warning}{kind}</b>,{html.escape(rest)}{shown}</li>")
    out.append("</ul>")
    if report.sites:
        out.append(f"<p>{html.escape(summary(report))}</p>{_table(report)._repr_html_()}")
    return "".join([*out, "</div>"])
