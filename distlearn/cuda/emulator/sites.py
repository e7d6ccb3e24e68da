"""The site table: which line of the source each call of the compiler's assembly comes from.

The checked build is compiled to assembly. Beside every call (they are the hooks) a label is put, and tables are
added to the end: the labels' addresses, which are the return addresses that the hooks see, and a number for each. Every
line gets a label, too, for a signal can come between two hooks. The `.loc` directives, which every compiler writes for
debuggers, say which line and column a call belongs to. So no debug-information reader is needed, and it works
for all compilers and systems.

Labels, jumps and floating-point instructions are handed on to flow.py, which counts the operations of every basic block
and finds the order in which a warp would run the blocks.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from distlearn.cuda.emulator.flow import order_blocks, read_call, read_flow

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
