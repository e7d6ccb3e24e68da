"""The site table: which line of the source each call of the compiler's assembly comes from.

The checked build is compiled to assembly. Beside every call (they are the hooks) a label is put, and two tables are
added to the end: the labels' addresses, which are the return addresses that the hooks see, and a number for each. The
`.loc` directives, which every compiler writes for debuggers, say which line and column a call belongs to. So no
debug-information reader is needed, and it works alike for all compilers and systems.

The same pass counts the floating-point instructions of every basic block. Times how often each block ran, that gives
the exact number of operations of a launch: +, -, *, / and sqrt count one, a fused multiply-add two, a function such
as exp one; comparisons and conversions do not count.
"""

from __future__ import annotations

import re
from typing import NamedTuple

KERNEL_FILE = "kernel.cu"
CALL = re.compile(r"^\s*(?:callq?|bl)\s+([\w.$@]+)")
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
BASIC_BLOCK = "__sanitizer_cov_trace_pc"
COPIES = {"memcpy": "__tsan_memcpy", "memmove": "__tsan_memmove", "memset": "__tsan_memset"}


class SourceSite(NamedTuple):
    """A place that a hook reports from; `flops` of the basic block that begins here."""

    line: int
    column: int
    callee: str
    flops: int


def label_calls(assembly: str, platform: str) -> tuple[str, list[SourceSite]]:
    """Label every call of an assembly text.

    Parameters
    ----------
    assembly : str
        What the compiler wrote.
    platform : str
        As `sys.platform`: object formats differ in how labels and sections are written.

    Returns
    -------
    (str, list of SourceSite)
        The text with labels and tables; the sites by number (number 0 stands for "not in the kernel").
    """
    mac = platform == "darwin"
    label, prefix = ("LEMU", "_") if mac else (".LEMU", "")
    out: list[str] = []
    ids: list[int] = []
    sites: list[list] = [[0, 0, "", 0]]
    known: dict[tuple, int] = {}
    files: dict[str, str] = {}
    flow: list[tuple] = []
    line = column = 0
    for text in assembly.split("\n"):
        if "/DEFAULTLIB:libclang_rt" in text:  # Windows: asks the linker for the library that we replace
            continue
        word = text.lstrip()
        if word.startswith(".file"):
            if match := re.match(r'\.file\s+(\d+)\s+"([^"]*)"(?:\s+"([^"]*)")?', word):
                files[match[1]] = match[3] or match[2]
        elif word.startswith((".loc ", ".loc\t")):
            parts = word.split()
            # Code that was inlined from the emulator's header belongs to the line that called it.
            if files.get(parts[1], "").endswith(KERNEL_FILE) and parts[2] != "0":
                line, column = int(parts[2]), int(parts[3]) if parts[3:] and parts[3].isdigit() else 0
        elif match := CALL.match(text):
            callee = match[1].split("@")[0].removeprefix(prefix)
            if callee in COPIES:
                text = text.replace(callee, COPIES[callee], 1)
                callee = COPIES[callee]
            out += [text, f"{label}{len(ids)}:"]
            key = (line, column, callee) if callee != BASIC_BLOCK else (line, column, callee, len(ids))
            if key not in known:
                known[key] = len(sites)
                sites.append([line, column, callee, 0])
            ids.append(known[key])
            if callee == BASIC_BLOCK:
                flow.append(("block", ids[-1]))
            elif flops := 2 if callee in ("fma", "fmaf") else int(bool(MATHS.match(callee))):
                flow.append(("flops", flops))
            continue
        else:
            flow += _flow(text)
        out.append(text)
    for site, flops in count_flops(flow).items():
        sites[site][3] = flops
    section = {"darwin": "\t.section __DATA,__const", "win32": "\t.data"}.get(platform, '\t.section .data.rel.ro,"aw"')
    out += [section, "\t.p2align 3", f"\t.globl {prefix}emu_sites", f"{prefix}emu_sites:"]
    out += [f"\t.quad {label}{i}" for i in range(len(ids))]
    out += [f"\t.globl {prefix}emu_site_ids", f"{prefix}emu_site_ids:", *(f"\t.long {i}" for i in ids)]
    for name, value in (("emu_n_sites", len(ids)), ("emu_n_site_ids", len(sites))):
        out += [f"\t.globl {prefix}{name}", f"{prefix}{name}:", f"\t.long {value}"]
    return "\n".join(out) + "\n", [SourceSite(*s) for s in sites]


def _flow(text: str) -> list[tuple]:
    """Return what an instruction means for the order of execution, or for the count of operations."""
    if FLOP.match(text):
        return [("flops", 2 if FUSED.search(text) else 1)]
    if match := LABEL.match(text):
        return [("label", match[1])]
    if match := JUMP.match(text):
        return [("jump", match[2], match[1] in ("jmp", "b"))]
    return [("leave",)] if LEAVE.match(text) else []


def count_flops(flow: list[tuple]) -> dict[int, int]:
    """Return the operations that belong to each basic block which a hook counts.

    The compiler cuts blocks further after it has placed the hooks (around checks of an index, say) and moves the pieces
    about. All pieces that can be reached from a hook without passing another belong to it.
    """
    labels = {event[1]: i for i, event in enumerate(flow) if event[0] == "label"}
    totals = {}
    for start, event in enumerate(flow):
        if event[0] != "block":
            continue
        total, seen, todo = 0, set(), [start + 1]
        while todo:
            at = todo.pop()
            while at < len(flow) and at not in seen:
                seen.add(at)
                what = flow[at]
                if what[0] in ("block", "leave"):
                    break
                if what[0] == "flops":
                    total += what[1]
                elif what[0] == "jump":
                    if what[1] in labels:
                        todo.append(labels[what[1]])
                    if what[2]:
                        break
                at += 1
        totals[event[1]] = total
    return totals
