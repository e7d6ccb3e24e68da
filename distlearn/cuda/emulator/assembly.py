"""Reads the compiler's assembly: the line of each call, the operations of each basic block, and their order.

A kernel is compiled to assembly. Beside every call (they are the hooks) a label is put, and tables are
added to the end: the labels' addresses, which are the return addresses that the hooks see, and a number for each. Every
line gets a label as well, for a signal can come between two hooks. The `.loc` directives, which every compiler writes
for debuggers, say which line and column a call belongs to. So no debug-information reader is needed.

Labels, jumps and floating-point instructions give each basic block its operations (+, -, *, / and sqrt count one, a
fused multiply-add two, a function such as exp one; comparisons and conversions none), and the order in which the lanes
of a warp that took different ways come together again: on a card the lanes that are behind run first. In this order
every block comes before those that follow it, and all blocks of a loop before those after the loop (F. Bourdoncle,
"Efficient chaotic iteration strategies with widenings", 1993, section 3: a weak topological order).
"""

from __future__ import annotations

import re
import sys
from bisect import bisect_left
from dataclasses import dataclass, field
from typing import NamedTuple

FLOP = re.compile(
    r"^\s*v?(?:add|sub|mul|div|sqrt)s[sd]\b|^\s*vfn?m(?:add|sub)\d*s[sd]\b"
    r"|^\s*(?:fadd|fsub|fmul|fdiv|fsqrt|fmadd|fmsub|fnmadd|fnmsub)\s+[sd]\d"
)
FUSED = re.compile(r"fn?m(?:add|sub)")
MATHS = re.compile(
    r"(exp|exp2|expm1|log|log2|log10|log1p|sin|cos|tan|asin|acos|atan|sinh|cosh|tanh|asinh|acosh|atanh|sqrt|cbrt"
    r"|erf|erfc|tgamma|lgamma|pow|fmod|atan2|hypot)f?$"
)
LABEL = re.compile(r"^([\w.$]+):")
JUMP = re.compile(r"^\s*(j[a-z]+|b|b\.[a-z]+|cbn?z|tbn?z)\s+(?:[^\s,]+,\s*)*([\w.$*%]+)\s*(?:#.*)?$")
LEAVE = re.compile(r"^\s*(ret|retq|ud2|brk|br)\b")
CONVERTS = re.compile(r"^\s*(?:cvtts[sd]2si|fcvtz[su])")


@dataclass
class BasicBlock:
    """The counts of a hook: operations, and the blocks that can follow."""

    flops: int = 0
    following: list[int] = field(default_factory=list)
    ends: bool = False  # by an error that is reported: no thread continues after it


def read_call(callee: str) -> list[tuple]:
    """Return the meaning of a call: the operations of a function of the C library, or the end of the thread."""
    if callee.startswith("__ubsan_handle"):
        return [("error",)]
    flops = 2 if callee in ("fma", "fmaf") else int(bool(MATHS.match(callee)))
    return [("flops", flops)] if flops else []


def read_flow(text: str) -> list[tuple]:
    """Return the meaning of an instruction: an operation, a label, a jump, the end of a function, or nothing."""
    if FLOP.match(text):
        return [("flops", 2 if FUSED.search(text) else 1)]
    if match := LABEL.match(text):
        return [("label", match[1])]
    if match := JUMP.match(text):
        return [("jump", match[2], match[1] in ("jmp", "b"))]
    return [("leave",)] if LEAVE.match(text) else []


def order_blocks(flow: list[tuple]) -> dict[int, BasicBlock]:
    """Return the blocks that need a hook, by the number of their hook, in the order in which a warp would run them."""
    # The compiler cuts blocks further after it has placed the hooks (around checks of an index, say) and moves the
    # pieces around. All pieces that can be reached from a hook without passing another belong to it. A block that
    # always follows the same other one, which nothing else follows, is joined to that one and needs no hook of its own.
    labels = {event[1]: i for i, event in enumerate(flow) if event[0] == "label"}
    blocks = {event[1]: _read_block(flow, at, labels) for at, event in enumerate(flow) if event[0] == "block"}
    _join_chains(blocks)
    graph = {hook: block.following for hook, block in blocks.items()}
    return {hook: blocks[hook] for hook in weak_order(graph)}


def _join_chains(blocks: dict[int, BasicBlock]) -> None:
    before: dict[int, set] = {hook: set() for hook in blocks}
    for hook, block in blocks.items():
        block.following = [s for s in dict.fromkeys(block.following) if s in blocks and not blocks[s].ends]
        for s in block.following:
            before[s].add(hook)
    for hook in list(blocks):
        while hook in blocks and len(blocks[hook].following) == 1:
            (child,) = blocks[hook].following
            if child == hook or before[child] != {hook}:
                break
            joined = blocks.pop(child)
            blocks[hook].flops += joined.flops
            blocks[hook].following = joined.following
            blocks[hook].ends |= joined.ends
            for s in joined.following:
                before[s] = before[s] - {child} | {hook}


def _read_block(flow, start, labels) -> BasicBlock:
    block, seen, todo, ways_out = BasicBlock(), set(), [start + 1], set()
    while todo:
        at = todo.pop()
        while at < len(flow) and at not in seen:
            seen.add(at)
            kind, *what = flow[at]
            if kind == "block":
                block.following.append(what[0])
            ways_out.add(kind)
            if kind in ("block", "leave", "error"):
                break
            if kind == "flops":
                block.flops += what[0]
            elif kind == "jump":
                if what[0] in labels:
                    todo.append(labels[what[0]])
                if what[1]:
                    break
            at += 1
    block.ends = "error" in ways_out and not ways_out & {"block", "leave"}
    return block


def weak_order(graph: dict[int, list[int]]) -> list[int]:
    """Order the nodes so that those of a loop are together, its head first, before the nodes after the loop."""
    # Nodes are visited in the order of the dictionary: a function's entry comes before its other blocks.
    before: dict[int, list[int]] = {node: [] for node in graph}
    for node, following in graph.items():
        for s in following:
            before[s].append(node)
    out, seen = [], set()
    for head in reversed(_finished(graph, graph, set())):  # of each loop the node where it was entered comes first
        if head in seen:
            continue
        out.append(head)
        inside = set(_finished(before, [head], seen)) - {head}  # what leads back to the head
        if inside:
            entries = [s for s in graph[head] if s in inside]  # first, so that inner loops are entered at their heads
            nodes = dict.fromkeys([*entries, *inside])
            out += weak_order({n: [s for s in graph[n] if s in inside] for n in nodes})
    return out


def _finished(graph, roots, seen) -> list[int]:
    """Return the nodes that can be reached, each after all that were first reached through it (depth first)."""
    out: list[int] = []
    for root in roots:
        work = [] if root in seen else [(root, iter(graph[root]))]
        seen.add(root)
        while work:
            node, following = work[-1]
            ahead = next((s for s in following if s not in seen), None)
            if ahead is None:
                out.append(node)
                work.pop()
            else:
                seen.add(ahead)
                work.append((ahead, iter(graph[ahead])))
    return out


KERNEL_FILE = "kernel.cu"
BASIC_BLOCK = "__sanitizer_cov_trace_pc"
CALL = re.compile(r"^\s*(?:callq?|bl)\s+([\w.$@]+)")
STATIC = re.compile(r"^(\s*\.(?:comm\s+[^,]+,|zerofill\s+[^,]+,[^,]+,[^,]+,)\s*)(\d+)(\s*,.*)$")
ZEROS = re.compile(r"^(\s*\.zero\s+)(\d+)(\s*)$")
SECTION = re.compile(r"\s*\.(?:bss|data|text|section)")
BSS = re.compile(r"\s*(?:\.bss|\.section\s+\.bss)")
FILE = re.compile(r'\s*\.file\s+(\d+)\s+"([^"]*)"(?:\s+"([^"]*)")?')
LOC = re.compile(r"\s*\.loc\s+(\d+)\s+(\d+)(?:\s+(\d+)\b)?")
RED_ZONE = 256 << 10  # bytes; STATIC_RED_ZONE of runtime/memory.h
COPIES = {"memcpy": "__tsan_memcpy", "memmove": "__tsan_memmove", "memset": "__tsan_memset"}


class SourceSite(NamedTuple):
    """A place that a hook reports from; `flops` is the operations of the basic block that begins here."""

    line: int
    column: int
    flops: int


DARWIN = sys.platform == "darwin"
PREFIX = "_" if DARWIN else ""  # of every name


def label_calls(assembly: str) -> tuple[str, list[SourceSite]]:
    """Label every call of an assembly text."""
    lines = assembly.split("\n")
    _add_red_zones(lines)
    places = _source_places(lines)
    calls, flow = _read_calls(lines, places)
    return _with_tables(lines, calls, places, order_blocks(flow))


def _add_red_zones(lines) -> None:
    """Lengthen shared arrays, which are static variables: an access behind one meets no other, as with arguments."""
    in_bss = None
    for at, text in enumerate(lines):
        if SECTION.match(text):
            in_bss = BSS.match(text)
        if match := STATIC.match(text) or (in_bss and ZEROS.match(text)):
            lines[at] = f"{match[1]}{int(match[2]) + RED_ZONE}{match[3]}"


def _source_places(lines) -> list[tuple[int, int, int]]:
    """Return where the assembly comes to another place of the kernel: its own line, then line and column there."""
    files, places = {}, []
    for at, text in enumerate(lines):
        if match := FILE.match(text):
            files[match[1]] = match[3] or match[2]
        elif match := LOC.match(text):
            # Code that was inlined from the emulator's header belongs to the line that called it.
            if files.get(match[1], "").endswith(KERNEL_FILE) and match[2] != "0":
                places.append((at, int(match[2]), int(match[3] or 0)))
        elif text.lstrip().startswith(".cfi_startproc"):
            places.append((at, 0, 0))  # a function: up to its first line it is not the kernel's
    return places


def _read_calls(lines, places) -> tuple[list[tuple], list[tuple]]:
    """Return the calls, each as (its line of the assembly, line, column, callee), and what `order_blocks` takes."""
    calls, flow = [], []
    known = [(-1, 0, 0), *(place for place in places if place[1])]
    converted, before, twice = _after_checks(lines), set(), False
    for at, text in enumerate(lines):
        match = CALL.match(text)
        twice &= at in converted
        if text.lstrip().startswith(".cfi_startproc"):
            before = set()
        if not match:
            flow += [] if twice and FLOP.match(text) else read_flow(text)
            continue
        called = match[1].split("@")[0].removeprefix(PREFIX)
        callee = COPIES.get(called, called)
        where = (*known[bisect_left(known, (at,)) - 1][1:], callee)
        if at in converted and "read" in callee and where in before:
            lines[at], twice = "", True
            continue
        before.add(where)
        lines[at] = text.replace(called, callee, 1)
        flow += [("block", len(calls))] if callee == BASIC_BLOCK else read_call(callee)
        calls.append((at, *where))
    return calls, flow


def _after_checks(lines) -> set[int]:
    """Return the lines between gcc's check of a conversion and the conversion."""
    # For `int i = x[0] * 2` with a `const float* x` gcc computes the number twice, for the check and for the result.
    # What it reads and computes there a second time, at the same place of the source, is no access of the kernel's.
    found: set[int] = set()
    labels = {match[1]: at for at, text in enumerate(lines) if (match := LABEL.match(text))}
    for at, text in enumerate(lines):
        if "__ubsan_handle_float_cast_overflow" not in text or not CALL.match(text):
            continue
        after = next(i for i in range(at + 1, len(lines)) if not lines[i].lstrip().startswith(".loc"))
        jump = JUMP.match(lines[after])
        for here in range(labels.get(jump[2], after) if jump else after, len(lines)):
            if any(pattern.match(lines[here]) for pattern in (CONVERTS, JUMP, LEAVE)):
                break
            found.add(here)
    return found


def _with_tables(out, calls, places, blocks) -> tuple[str, list[SourceSite]]:
    """Write labels and tables; remove the hooks of blocks that were joined to the one before."""
    label = "LEMU" if DARWIN else ".LEMU"
    positions = {call: position for position, call in enumerate(blocks)}
    numbers = {(0, 0, "", -1): 0}  # of sites, each hook of a block has its own

    def number(line, column, callee="", hook=-1) -> int:
        return numbers.setdefault((line, column, callee, hook), len(numbers))

    ids = []
    for call, (at, *where, callee) in enumerate(calls):
        hook = callee == BASIC_BLOCK
        if hook and call not in blocks:
            out[at] = ""
            continue
        out[at] += f"\n{label}{len(ids)}:"
        ids.append(number(*where, callee, call if hook else -1))
    place_ids = []
    for at, line, column in places:
        out[at] += f"\n{label}P{len(place_ids)}:"
        place_ids.append(number(line, column) if line else 0)
    section = "\t.section __DATA,__const" if DARWIN else '\t.section .data.rel.ro,"aw"'
    tables = [
        ("emu_sites", [f".quad {label}{i}" for i in range(len(ids))]),
        ("emu_site_ids", [f".long {i}" for i in ids]),
        ("emu_site_order", [f".long {positions.get(hook, 0)}" for *_, hook in numbers]),
        ("emu_places", [f".quad {label}P{i}" for i in range(len(places))]),
        ("emu_place_ids", [f".long {i}" for i in place_ids]),
        ("emu_n_places", [f".long {len(places)}"]),
        ("emu_n_sites", [f".long {len(ids)}"]),
        ("emu_n_site_ids", [f".long {len(numbers)}"]),
    ]
    if not DARWIN:  # also before the first static variable
        out.insert(0, f"\t.bss\n\t.zero {RED_ZONE}\n\t.text")
    out += [section, "\t.p2align 3"]
    for name, values in tables:
        out += [f"\t.globl {PREFIX}{name}", f"{PREFIX}{name}:", *(f"\t{v}" for v in values)]
    sites = [SourceSite(*place, blocks[hook].flops if hook >= 0 else 0) for *place, _, hook in numbers]
    return "\n".join(out) + "\n", sites
