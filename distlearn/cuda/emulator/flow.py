"""Control flow of a kernel, read from the compiler's assembly: what each basic block computes, and in which order.

It answers two questions. How many floating-point operations belong to each block that a hook counts: +, -, *, / and
sqrt count one, a fused multiply-add two, a function such as exp one; comparisons and conversions do not count. And how
the lanes of a warp that took different ways come together again: on a card the lanes that are behind run first. This
is an order of the blocks in which every block comes before those that follow it, and all blocks of a loop before those
after the loop (F. Bourdoncle, "Efficient chaotic iteration strategies with widenings", 1993, section 3: a weak
topological order).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

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
