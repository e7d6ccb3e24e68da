"""A source with its own headers inlined, and a map from each line to its origin."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from distlearn.cuda.emulator.source import lines_of, without_comments
from distlearn.cuda.errors import CompileError

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:<([^>\n]+)>|"([^"\n]+)")[^\n]*$', re.M)
# Headers that every compiler for CUDA has; the emulator's own header replaces them all.
CUDA_HEADER = re.compile(
    r"(cuda[\w./]*|device_launch_parameters\.h|device_functions\.h|math_constants\.h|math_functions\.h"
    r"|vector_types\.h|vector_functions\.h|cooperative_groups(/\w+)?\.h|cuComplex\.h|sm_\w+\.h|mma\.h|crt/.*"
    r"|curand_kernel\.h|cub/.*|thrust/.*|nv/.*)$"
)
HOST_API = re.compile(r"(cuda|cuda_runtime(_api)?|cuda_profiler_api|device_launch_parameters|device_functions)\.h$")
DEEPEST = 50  # headers within headers


class Flat(NamedTuple):
    """A source with its own headers in the place of their `#include` lines.

    `places` has file and line of each line of `text`; the source itself is the file "".
    """

    text: str
    places: list[tuple[str, int]]
    missing: list[str]

    def place(self, line: int) -> tuple[str, int]:
        """Return file and line that a line of the text came from."""
        return self.places[line - 1] if 0 < line <= len(self.places) else ("", line)


def is_cuda_header(name: str) -> bool:
    """Say whether a header comes with CUDA."""
    return bool(CUDA_HEADER.match(name))


def is_device_header(name: str) -> bool:
    """Say whether a header comes with CUDA and has something for kernels: NVRTC finds those, not the runtime's."""
    return is_cuda_header(name) and not HOST_API.match(name)


def include_folders(options) -> list[Path]:
    """Return the folders that -I names."""
    return [Path(option[2:].strip()) for option in options if option.startswith("-I")]


def flatten(source: str, options=()) -> Flat:
    """Replace `#include` lines with the headers, where they are in folders named by -I.

    Headers of CUDA, and those of the host that are not found, keep their line, which the caller ignores.
    `missing` names those in quotes that were not found.
    """
    lines: list[str] = []
    places: list[tuple[str, int]] = []
    missing: list[str] = []
    _append(source, None, include_folders(options), lines, places, missing, set(), 0)
    return Flat("\n".join(lines), places, missing)


def _append(text, path, folders, lines, places, missing, once, depth):
    if depth > DEEPEST:
        raise CompileError(f"headers include each other more than {DEEPEST} deep, the last is {path}")
    name = path.name if path else ""
    shown = {i for i, line in enumerate(lines_of(without_comments(text)), 1) if re.match(r"[ \t]*#", line)}
    for number, line in enumerate(lines_of(text), 1):
        match = INCLUDE.match(line) if number in shown else None
        wanted = match and (match[1] or match[2])
        if path and number in shown and re.match(r"[ \t]*#[ \t]*pragma[ \t]+once\b", line):
            once.add(path)
            line = ""
        header = wanted and (match[2] or not is_cuda_header(wanted)) and _find(wanted, path, folders)
        if header:
            if header not in once:
                inner = header.read_text(encoding="utf-8", errors="replace")
                _append(inner, header, folders, lines, places, missing, once, depth + 1)
            line = ""
        elif wanted and match[2] and not is_cuda_header(wanted):
            missing.append(wanted)
        lines.append(line)
        places.append((name, number))


def _find(name, included_from, folders) -> Path | None:
    near = [included_from.parent] if included_from else []
    for folder in [*near, *folders]:
        if (folder / name).is_file():
            return (folder / name).resolve()
    return None
