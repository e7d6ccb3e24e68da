"""Reads the compiler's assembly: which line each call comes from, what each basic block computes, and in which order.

The checked build is compiled to assembly. Beside every call (they are the hooks) a label is put, and tables are
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


@dataclass
class BasicBlock:
    """What a hook counts: operations, and the blocks that can come next."""

    flops: int = 0
    following: list[int] = field(default_factory=list)
    ends: bool = False  # by an error that is reported: no thread continues after it


def read_call(callee: str) -> list[tuple]:
    """Return what a call means here: the operations of a function of the C library, or the end of the thread."""
    if callee.startswith("__ubsan_handle"):
        return [("error",)]
    flops = 2 if callee in ("fma", "fmaf") else int(bool(MATHS.match(callee)))
    return [("flops", flops)] if flops else []


def read_flow(text: str) -> list[tuple]:
    """Return what an instruction means here: an operation, a label, a jump, the end of a function, or nothing."""
    if FLOP.match(text):
        return [("flops", 2 if FUSED.search(text) else 1)]
    if match := LABEL.match(text):
        return [("label", match[1])]
    if match := JUMP.match(text):
        return [("jump", match[2], match[1] in ("jmp", "b"))]
    return [("leave",)] if LEAVE.match(text) else []


def order_blocks(flow: list[tuple]) -> dict[int, BasicBlock]:
    """Return the blocks that need a hook, by the number of their hook, in the order in which a warp would run them.

    The compiler cuts blocks further after it has placed the hooks (around checks of an index, say) and moves the pieces
    around. All pieces that can be reached from a hook without passing another belong to it. A block that always follows
    the same other one, which nothing else follows, is joined to that one and needs no hook of its own.
    """
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
    """Order the nodes so that those of a loop are together, its head first, before the nodes after the loop.

    Nodes are visited in the order of the dictionary: a function's entry comes before its other blocks.
    """
    out = []
    for part in _components(graph):
        head = part[0]
        out.append(head)
        if len(part) > 1:
            inside = set(part) - {head}
            entries = [s for s in graph[head] if s in inside]  # first, so that inner loops are entered at their heads
            nodes = dict.fromkeys([*entries, *part[1:]])
            out += weak_order({n: [s for s in graph[n] if s in inside] for n in nodes})
    return out


def _components(graph) -> list[list[int]]:
    """Return strongly connected components in topological order, each from the node where it was entered (Tarjan)."""
    number: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    found: list[list[int]] = []
    for root in graph:
        if root in number:
            continue
        work = [(root, iter(graph[root]))]
        number[root] = low[root] = len(number)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, following = work[-1]
            for s in following:
                if s not in number:
                    number[s] = low[s] = len(number)
                    stack.append(s)
                    on_stack.add(s)
                    work.append((s, iter(graph[s])))
                    break
                if s in on_stack:
                    low[node] = min(low[node], number[s])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == number[node]:
                    at = stack.index(node)
                    found.append(stack[at:])
                    on_stack.difference_update(stack[at:])
                    del stack[at:]
    return found[::-1]


KERNEL_FILE = "kernel.cu"
BASIC_BLOCK = "__sanitizer_cov_trace_pc"
CALL = re.compile(r"^\s*(?:callq?|bl)\s+([\w.$@]+)")
STATIC = re.compile(r"^(\s*\.(?:comm\s+[^,]+,|zerofill\s+[^,]+,[^,]+,[^,]+,)\s*)(\d+)(\s*,.*)$")
ZEROS = re.compile(r"^(\s*\.zero\s+)(\d+)\s*$")
RED_ZONE = 256 << 10  # bytes; STATIC_RED_ZONE of runtime/memory.h
COPIES = {"memcpy": "__tsan_memcpy", "memmove": "__tsan_memmove", "memset": "__tsan_memset"}


class SourceSite(NamedTuple):
    """A place that a hook reports from; `flops` is the operations of the basic block that begins here."""

    line: int
    column: int
    callee: str
    flops: int


def label_calls(assembly: str, platform: str) -> tuple[str, list[SourceSite]]:
    """Label every call of an assembly text."""
    prefix = "_" if platform == "darwin" else ""
    out: list[str] = []
    calls: list[tuple] = []  # (where in `out`, line, column, callee)
    places: list[tuple] = []  # (where in `out`, line, column) of code between the calls
    flow: list[tuple] = []
    files: dict[str, str] = {}
    line = column = 0
    in_bss = False
    for text in assembly.split("\n"):
        if "/DEFAULTLIB:libclang_rt" in text:  # Windows: asks the linker for the library that we replace
            continue
        word = text.lstrip()
        if word.startswith((".bss", ".data", ".text", ".section")):
            in_bss = bool(re.match(r"\.bss|\.section\s+\.bss", word))
        if word.startswith(".file"):
            if match := re.match(r'\.file\s+(\d+)\s+"([^"]*)"(?:\s+"([^"]*)")?', word):
                files[match[1]] = match[3] or match[2]
        elif word.startswith((".loc ", ".loc\t")):
            parts = word.split()
            # Code that was inlined from the emulator's header belongs to the line that called it.
            if files.get(parts[1], "").endswith(KERNEL_FILE) and parts[2] != "0":
                line, column = int(parts[2]), int(parts[3]) if parts[3:] and parts[3].isdigit() else 0
                places.append((len(out), line, column))
        elif word.startswith(".cfi_startproc"):
            places.append((len(out), 0, 0))  # a function: up to its first line it is not the kernel's
        elif match := STATIC.match(text):  # shared arrays get a red zone, as the arguments have
            text = f"{match[1]}{int(match[2]) + RED_ZONE}{match[3]}"
        elif in_bss and (match := ZEROS.match(text)):
            text = f"{match[1]}{int(match[2]) + RED_ZONE}"
        elif match := CALL.match(text):
            callee = match[1].split("@")[0].removeprefix(prefix)
            if callee in COPIES:
                text = text.replace(callee, COPIES[callee], 1)
                callee = COPIES[callee]
            flow += [("block", len(calls))] if callee == BASIC_BLOCK else read_call(callee)
            calls.append((len(out), line, column, callee))
        else:
            flow += read_flow(text)
        out.append(text)
    return _finish(out, calls, places, order_blocks(flow), platform)


def _finish(out, calls, places, blocks, platform) -> tuple[str, list[SourceSite]]:
    """Write labels and tables; remove the hooks of blocks that were joined to the one before."""
    label, prefix = ("LEMU", "_") if platform == "darwin" else (".LEMU", "")
    sites, ids, known = [SourceSite(0, 0, "", 0)], [], {}
    order = [0]
    positions = {call: position for position, call in enumerate(blocks)}
    for call, (at, line, column, callee) in enumerate(calls):
        hook = callee == BASIC_BLOCK
        if hook and call not in blocks:
            out[at] = ""
            continue
        key = (line, column, callee, call if hook else -1)
        if key not in known:
            known[key] = len(sites)
            sites.append(SourceSite(line, column, callee, blocks[call].flops if hook else 0))
            order.append(positions.get(call, 0))
        out[at] += f"\n{label}{len(ids)}:"
        ids.append(known[key])
    place_ids = []
    for i, (at, line, column) in enumerate(places):
        key = (line, column, "", -1)
        if line and key not in known:
            known[key] = len(sites)
            sites.append(SourceSite(line, column, "", 0))
            order.append(0)
        out[at] += f"\n{label}P{i}:"
        place_ids.append(known[key] if line else 0)
    section = {"darwin": "\t.section __DATA,__const", "win32": "\t.data"}.get(platform, '\t.section .data.rel.ro,"aw"')
    tables = [
        ("emu_sites", [f".quad {label}{i}" for i in range(len(ids))]),
        ("emu_site_ids", [f".long {i}" for i in ids]),
        ("emu_site_order", [f".long {i}" for i in order]),
        ("emu_places", [f".quad {label}P{i}" for i in range(len(places))]),
        ("emu_place_ids", [f".long {i}" for i in place_ids]),
        ("emu_n_places", [f".long {len(places)}"]),
        ("emu_n_sites", [f".long {len(ids)}"]),
        ("emu_n_site_ids", [f".long {len(sites)}"]),
    ]
    if platform not in ("darwin", "win32"):  # also before the first static variable
        out.insert(0, f"\t.bss\n\t.zero {RED_ZONE}\n\t.text")
    out += [section, "\t.p2align 3"]
    for name, values in tables:
        out += [f"\t.globl {prefix}{name}", f"{prefix}{name}:", *(f"\t{v}" for v in values)]
    return "\n".join(out) + "\n", sites
