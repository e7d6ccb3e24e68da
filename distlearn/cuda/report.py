"""What a checked launch did: its errors, and how it used the memory, line by line."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from distlearn.cuda.findings import Finding, describe, line_of, merge

SECTOR = 32  # bytes; the smallest piece of global memory that a card moves
SHARED_LIMIT = 48 * 1024  # bytes of shared memory that a block gets without asking for more
SPACES = ["global", "shared", "constant"]
ACCESSES = ["read", "write", "atomic", "read"]


@dataclass
class Site:
    """One line's access to one array, over all warps.

    Attributes
    ----------
    line, column : int
        Where in the source.
    file : str
        The header it is in; empty for the source itself.
    source : str
        The text of the line.
    access : str
        "read", "write" or "atomic".
    space : str
        "global", "shared" or "constant".
    size : int
        Bytes that each lane moves: 4 for a float, 16 for a float4.
    requests : int
        How often a warp executed it.
    lanes : int
        How many lanes took part, over all requests.
    sectors, ideal_sectors : int
        32-byte sectors of global memory touched, and the fewest that could hold the same data.
    wavefronts, ideal_wavefronts : int
        Passes over the 32 banks of shared memory, and the fewest possible.
    worst_conflict : int
        The most lanes' words that fell into one bank in one pass: n of an "n-way bank conflict"; 1 is no conflict.
    """

    line: int
    column: int
    access: str
    array: str
    space: str
    size: int
    requests: int = 0
    lanes: int = 0
    sectors: int = 0
    ideal_sectors: int = 0
    wavefronts: int = 0
    ideal_wavefronts: int = 0
    worst_conflict: int = 1
    file: str = ""
    source: str = ""

    @property
    def sectors_per_request(self) -> float:
        """Sectors that one warp's access touches, on average: 4 when 32 lanes read neighbouring floats."""
        return self.sectors / max(self.requests, 1)

    @property
    def ideal_per_request(self) -> float:
        """Sectors it would take if the data lay together."""
        return self.ideal_sectors / max(self.requests, 1)

    @property
    def wavefronts_per_request(self) -> float:
        """Passes over the banks of shared memory per access, on average."""
        return self.wavefronts / max(self.requests, 1)

    @property
    def active_lanes(self) -> float:
        """Share of the warp's 32 lanes that take part, from 0 to 1."""
        return self.lanes / max(32 * self.requests, 1)

    @property
    def coalesced(self) -> bool:
        """Whether global memory is used well: at most half as many sectors again as the data fill."""
        return self.space != "global" or self.sectors <= 1.5 * self.ideal_sectors


class Access(NamedTuple):
    """One access of one thread of the block that was recorded.

    `interval` counts the barriers of the block so far, `thread` is the thread's number in the block, `offset` and
    `size` are bytes of the array, whose items have `item` bytes; `kind` is "read", "write" or "atomic".
    """

    interval: int
    thread: int
    array: str
    space: str
    offset: int
    size: int
    item: int
    kind: str
    line: int
    file: str


@dataclass
class Report:
    """What a checked launch of a kernel did; shows itself as a table in a notebook and as text elsewhere.

    Attributes
    ----------
    errors : list of Finding
        Each with its line, thread and block. Empty for a correct kernel.
    warnings : list of Finding
        What cards since Volta allow, but is rarely intended: threads that have returned before a barrier, several
        threads that write the same value to one place, local variables that may be read before they are written.
    sites : list of Site
        Memory accesses by line.
    flops : int
        Floating-point operations (+, -, *, / and functions such as exp: 1 each, a fused multiply-add: 2).
    accesses : int
        Loads and stores of single threads.
    active_lanes : float
        Share of lanes that do something while their warp runs: below 1 when branches diverge or blocks are not
        multiples of 32.
    seconds : float
        How long the emulator took. It says nothing about a card.
    printed : str
        What the kernel printed.
    truncated : bool
        Whether a thread did so much between two barriers (more than 2**18 blocks and accesses) that the counts of
        `sites` cover only the beginning. Errors and `flops` are complete all the same.
    recorded : list of Access
        The first accesses of the block that `check(record=...)` named.
    """

    kernel: str
    compiler: str
    grid: tuple
    block: tuple
    errors: list[Finding] = field(default_factory=list)
    warnings: list[Finding] = field(default_factory=list)
    sites: list[Site] = field(default_factory=list)
    flops: int = 0
    accesses: int = 0
    active_lanes: float = 1.0
    seconds: float = 0.0
    printed: str = ""
    truncated: bool = False
    recorded: list[Access] = field(default_factory=list, repr=False)
    source: str = field(default="", repr=False)

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
        """Floating-point operations per byte moved."""
        return self.flops / self.bytes_moved if self.bytes_moved else float("inf") if self.flops else 0.0

    def find(self, array: str, access: str | None = None, line: int | None = None) -> Site:
        """Return the one site of an array (and access, and line).

        Raises
        ------
        LookupError
            If there is none, or more than one.
        """
        found = [
            s for s in self.sites if s.array == array and access in (None, s.access) and line in (None, s.line)
        ]  # fmt: skip
        if len(found) != 1:
            known = "; ".join(f"{s.access} {s.array} line {s.line}" for s in self.sites)
            wanted = f"array {array!r}, access {access}, line {line}"
            raise LookupError(f"{len(found)} sites match {wanted}; there are: {known}")
        return found[0]

    def __str__(self):
        from distlearn.cuda.render import to_text

        return to_text(self)

    __repr__ = __str__

    def _repr_html_(self):
        from distlearn.cuda.render import to_html

        return to_html(self)


def make_report(
    raw: dict | None,
    build_sites,
    warned,
    *,
    kernel,
    compiler,
    grid,
    block,
    code_of,
    shared_mem,
    printed,
    code,
) -> Report:
    """Make a `Report` of the program's output (None if it died without any) and the compiler's warnings."""
    report = Report(kernel, compiler, grid, block, source=code_of.flat.text, printed=printed)
    if raw is None:
        why = "did not answer in time and was killed" if code == -1 else f"ended with code {code} and without a report"
        kind = "infinite-loop" if code == -1 else "crash"
        report.errors.append(Finding(kind, 0, 0, "", (), (), f"the checked program {why}. {printed[-400:]}".strip()))
        return report
    regions = raw["regions"]
    found = merge([describe(f, regions, build_sites, code_of) for f in raw["findings"]])
    report.errors = [f for f in found if not f.is_warning]
    report.warnings = [*(_uninitialised(code_of, *w) for w in warned), *(f for f in found if f.is_warning)]
    report.sites = _sites(raw, regions, build_sites, code_of)
    report.flops = sum((active + untraced) * build_sites[i].flops for i, _, active, untraced in raw["blocks"])
    report.recorded = [_access(r, regions, build_sites, code_of.flat) for r in raw["recorded"]]
    issued = sum(n for _, n, _, _ in raw["blocks"])
    report.active_lanes = sum(active for _, _, active, _ in raw["blocks"]) / (32 * issued) if issued else 1.0
    report.truncated = raw["not_replayed"] > 0
    report.accesses, report.seconds = raw["accesses"], raw["seconds"]
    report.errors += _too_much_shared(sum(r["bytes"] for r in regions if r["space"] == 1), shared_mem)
    return report


def _access(raw, regions, build_sites, flat) -> Access:
    interval, thread, region, offset, size, kind, site = raw
    file, line = flat.place(build_sites[site].line)
    r = regions[region]
    return Access(
        interval, thread, r["name"], SPACES[r["space"]], offset, size, max(r["item"], 1), ACCESSES[kind], line, file
    )


def _uninitialised(code, line, column, message) -> Finding:
    file, number = code.flat.place(line)
    return Finding("uninitialised-local", number, column, "", (), (), message, source=line_of(code, line), file=file)


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
        access = ACCESSES[t["access"]]
        key = (place.line, region["name"], access, t["size"])
        file, line = code.flat.place(place.line)
        space = SPACES[region["space"]]
        site = merged.setdefault(key, Site(line, place.column, access, region["name"], space, t["size"], file=file,
                                          source=line_of(code, place.line)))  # fmt: skip
        site.column = min(site.column, place.column) or place.column
        cost = "wavefronts" if space == "shared" else "sectors"
        for name, key in (("requests", "requests"), ("lanes", "lanes"), (cost, "cost"), (f"ideal_{cost}", "ideal")):
            setattr(site, name, getattr(site, name) + t[key])
        site.worst_conflict = max(site.worst_conflict, t["worst"])
    return sorted((s for s in merged.values() if s.requests), key=lambda s: (s.file, s.line, s.array, s.access, s.size))
