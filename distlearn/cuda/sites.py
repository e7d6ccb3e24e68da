"""The site table: which line of the source each call of the compiler's assembly comes from.

The checked build is compiled to assembly. Beside every call (they are the hooks) a label is put, and tables are
added to the end: the labels' addresses, which are the return addresses that the hooks see, and a number for each. The
`.loc` directives, which every compiler writes for debuggers, say which line and column a call belongs to. So no
debug-information reader is needed, and it works alike for all compilers and systems.

Labels, jumps and floating-point instructions are handed on to flow.py, which counts the operations of every basic block
and finds the order in which a warp would run the blocks.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from distlearn.cuda.flow import flops_of_call, order_blocks, read_flow

KERNEL_FILE = "kernel.cu"
BASIC_BLOCK = "__sanitizer_cov_trace_pc"
CALL = re.compile(r"^\s*(?:callq?|bl)\s+([\w.$@]+)")
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
            elif flops := flops_of_call(callee):
                flow.append(("flops", flops))
            continue
        else:
            flow += read_flow(text)
        out.append(text)
    order = [0] * len(sites)
    for position, (site, block) in enumerate(order_blocks(flow).items()):
        sites[site][3], order[site] = block.flops, position
    section = {"darwin": "\t.section __DATA,__const", "win32": "\t.data"}.get(platform, '\t.section .data.rel.ro,"aw"')
    out += [section, "\t.p2align 3", f"\t.globl {prefix}emu_sites", f"{prefix}emu_sites:"]
    out += [f"\t.quad {label}{i}" for i in range(len(ids))]
    out += [f"\t.globl {prefix}emu_site_ids", f"{prefix}emu_site_ids:", *(f"\t.long {i}" for i in ids)]
    out += [f"\t.globl {prefix}emu_site_order", f"{prefix}emu_site_order:", *(f"\t.long {i}" for i in order)]
    for name, value in (("emu_n_sites", len(ids)), ("emu_n_site_ids", len(sites))):
        out += [f"\t.globl {prefix}{name}", f"{prefix}{name}:", f"\t.long {value}"]
    return "\n".join(out) + "\n", [SourceSite(*s) for s in sites]
