"""`distlearn kernel check`: find the mistakes of CUDA C kernels, and count their memory accesses, without a card."""

from __future__ import annotations

import contextlib
import io
import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

import click
import numpy as np

from .. import __version__
from ..cuda import KernelError, RawKernel, Report, compile_check
from ..cuda.arguments import spell
from ..cuda.host import argument, filled, kernels_of, launches_of
from ..cuda.report import KINDS
from ..files import whole_file
from .console import plain_errors, print_table, say

SUFFIXES = (".cu", ".cuh")


class Checked(NamedTuple):
    """What came of one kernel: a report, or why there is none."""

    path: Path
    kernel: str
    report: Report | None
    why: str = ""


@click.group()
def kernel():
    """Check CUDA C kernels without a card."""


@kernel.command()
@click.argument("path", type=click.Path(exists=True, path_type=Path))
@click.option("--name", help='The kernel, of a template with its arguments: "scale<float, 4>".')
@click.option("--grid", default="1", show_default=True, help="Blocks: 4, or 4,2.")
@click.option("--block", default="32", show_default=True, help="Threads of a block: 256, or 16,16.")
@click.option("--shared", type=click.IntRange(0), default=0, help="Bytes of dynamic shared memory.")
@click.option("--arg", "args", multiple=True, help="An argument, in order: 1024, 'float[1024]', 'int[64]=arange'.")
@click.option("--launch", is_flag=True, help="Take all of this from the launches in the file's own host code.")
@click.option("-D", "defines", multiple=True, help="A macro: -D TILE=16.")
@click.option("-I", "folders", multiple=True, help="A folder of headers.")
@click.option("--compile", "archs", help="Compile it with NVIDIA's NVRTC as well: 80,90.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@click.option(
    "--sarif", type=click.Path(dir_okay=False, path_type=Path), help="Write findings for a pull request here."
)
@click.option("--watch", is_flag=True, help="Check again whenever the file changes, until Ctrl-C.")
@click.pass_context
def check(context, path, watch, **options):
    """Run the kernels of PATH, a .cu file or a folder, in the checked emulator; exit with 1 where one is wrong.

    Without --arg or --launch it says what a kernel takes. A folder is checked by the launches of its host code.

    \b
    distlearn kernel check scale.cu --grid 4 --block 256 --arg 'float[1024]' --arg 2.5 --arg 1024
    distlearn kernel check scale.cu --launch --sarif findings.sarif
    distlearn kernel check kernels/
    """  # noqa: D301  (click wants the control character, not its name)
    while True:
        seen = path.stat().st_mtime_ns
        with plain_errors(ValueError, TypeError, OSError, KernelError):
            failed = check_path(path, **options)
        if not watch:
            context.exit(int(failed))
        while path.stat().st_mtime_ns == seen:
            time.sleep(0.3)


def check_path(path, *, name, sarif, as_json, archs, defines, folders, **how) -> bool:
    """Check what a path holds, print what was found; return whether anything is wrong."""
    options = (*(f"-D{word}" for word in defines), *(f"-I{folder}" for folder in folders))
    files = [path] if path.is_file() else sorted(p for s in SUFFIXES for p in path.rglob(f"*{s}"))
    if not files:
        raise ValueError(f"{path}: no file ends with {' or '.join(SUFFIXES)}")
    one_by_one, found = path.is_file(), []
    for file in files:
        source = file.read_text(encoding="utf-8", errors="replace")
        templates = kernels_of(source)
        names = [name] if name else templates
        if one_by_one and not names:
            raise ValueError(f"{path}: no __global__ function")
        for each in names:
            if one_by_one and len(names) > 1 and how["args"]:
                raise ValueError(f"{path} has the kernels {', '.join(names)}: say which by --name")
            with contextlib.redirect_stdout(io.StringIO()):  # what kernels print is in their reports
                found += _checked(
                    file, source, each, (f"-I{file.parent}", *options), templates.get(each), not one_by_one, **how
                )
        if archs:
            result = compile_check(source, archs.split(","), options=options, names=[name] if name else ())
            say(str(result))
            found += [Checked(file, "", None, "does not compile for a card")] * (not result.ok)
    if sarif:
        with whole_file(sarif) as fresh:
            fresh.write_text(json.dumps(to_sarif(found), indent=1), encoding="utf-8")
    if as_json:
        click.echo(json.dumps([_as_dict(one) for one in found], indent=1))
    elif one_by_one:
        for one in found:
            say(f"{one.report.printed}{one.report}" if one.report else f"{one.path}, {one.kernel}: {one.why}")
    else:
        rows = [(str(o.path.relative_to(path)), o.kernel, o.why or _outcome(o.report)) for o in found]
        print_table(str(path), ["file", "kernel", "outcome"], rows)
    return any(one.report.errors if one.report else one.why.startswith(("error", "does not")) for one in found)


def _checked(file, source, name, options, is_template, host, *, grid, block, shared, args, launch):
    """Yield what comes of one kernel: of the launch that is asked for, or of each of the host code."""
    for one in (launches_of(source, name) if launch or host else ()) or [None]:
        full = one.kernel if one else name
        try:
            if one and one.unknown:
                yield Checked(file, full, None, f"its launch in line {one.line}: {one.unknown}")
                continue
            if "<" not in full and is_template:
                yield Checked(file, full, None, f"a template: name its arguments, --name '{full}<float>'")
                continue
            made, rng = RawKernel(source, full, options).compile(), np.random.default_rng(0)
            signature = made._built.signature
            if one:
                grid, block, shared, given = one.grid, one.block, one.shared, _given(one, signature, rng)
            elif args:
                grid, block = _numbers(grid), _numbers(block)
                given = tuple(argument(text, code, rng) for text, code in zip(args, signature, strict=False))
                given += args[len(signature) :]
            else:
                takes = [spell(code) for code in signature]
                known = ", ".join(f"{t} {n}" for t, n in zip(takes, made.parameters, strict=False)) or "nothing"
                line = " ".join(f"--arg '{t[:-1]}[1024]'" if t.endswith("*") else f"--arg '<{t}>'" for t in takes)
                none = "no launch in its host code; " if launch or host else ""
                yield Checked(file, full, None, f"{none}it takes {known}: --grid 1 --block 32 {line}".rstrip())
                continue
            yield Checked(file, full, made.check(grid, block, given, shared_mem=shared))
        except KernelError as error:
            first = str(error).partition("\n")[0]
            yield Checked(file, full, None, f"refused: {first}" if host else f"error: {error}")
        except (ValueError, TypeError) as error:
            if not host:
                raise
            yield Checked(file, full, None, f"cannot be launched: {error}")


def _given(launch, signature, rng) -> tuple:
    """Make the arguments of a launch of the host code."""
    made = []
    for value, code in zip(launch.arguments, signature, strict=False):
        if isinstance(value, tuple):
            item = argument("t[1]", code, rng)
            made.append(filled((max(1, value[1] // item.itemsize),), item.dtype, "", rng))
        else:
            made.append(value if code.startswith("*") else argument(repr(value), code, rng))
    return tuple(made) + tuple(launch.arguments[len(signature) :])


def _numbers(text: str) -> tuple:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ValueError(f"{text!r}: expected whole numbers, such as 256 or 16,16") from None


def _outcome(report: Report) -> str:
    return "; ".join(f"{e.kind}, {e.where}" for e in report.errors) or "no errors"


def _as_dict(one: Checked) -> dict:
    kept = {"file": str(one.path), "kernel": one.kernel, "why": one.why}
    if one.report is None:
        return kept
    counted = {k: v for k, v in asdict(one.report).items() if k not in ("recorded", "source", "kernel")}
    return kept | counted | {"bytes_moved": one.report.bytes_moved, "bytes_requested": one.report.bytes_requested}


def to_sarif(found: list[Checked]) -> dict:
    """Return the findings in the Static Analysis Results Interchange Format, version 2.1.0."""
    results = []
    for one in found:
        for f in [*one.report.errors, *one.report.warnings] if one.report else []:
            file = (one.path.parent / f.file) if f.file else one.path
            region = {"startLine": max(1, f.line), "startColumn": max(1, f.column), "snippet": {"text": f.source}}
            place = {"artifactLocation": {"uri": file.as_posix()}, "region": region}
            results.append({
                "ruleId": f.kind, "level": "warning" if f.is_warning else "error",
                "message": {"text": f"{one.kernel}: {f.message}"}, "locations": [{"physicalLocation": place}],
            })  # fmt: skip
    rules = [{"id": kind} for kind in dict.fromkeys([*(k for k, _ in KINDS), *(r["ruleId"] for r in results)])]
    driver = {"name": "distlearn kernel check", "version": __version__, "rules": rules}
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": results}],
    }  # fmt: skip
