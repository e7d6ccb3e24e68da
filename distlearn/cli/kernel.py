"""`distlearn kernel check`: find the mistakes of CUDA C kernels, and count their memory accesses, without a card."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shlex
import time
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import click
import numpy as np

from .. import __version__
from ..cuda import KernelError, RawKernel, Report, compile_check
from ..cuda.arguments import argument, spell
from ..cuda.emulator.build import preprocessor
from ..cuda.emulator.device_code import kernels_of
from ..cuda.emulator.source import definitions, flatten, taken_branches
from ..cuda.host import Launch, launches_of
from ..files import whole_file
from .console import parse_numbers, plain_errors, print_table, say

SUFFIXES = (".cu", ".cuh")
SECONDS = (20, 10)  # that a launch may take, and one of the host code: a folder has many


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
@click.option("--grid", default="1", callback=parse_numbers, show_default=True, help="Blocks: 4, or 4,2.")
@click.option("--block", default="32", callback=parse_numbers, show_default=True, help="Its threads: 256, or 16,16.")
@click.option("--shared", type=click.IntRange(0), default=0, help="Bytes of dynamic shared memory.")
@click.option(
    "--arg", "args", multiple=True, help="An argument, in order: 1024, 'float[1024]', 'int[64]=arange', '{0.5f, 9}'."
)
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
        seen = watch and _written(path)
        try:
            with plain_errors(ValueError, TypeError, OSError, KernelError):
                failed = check_path(path, **options)
        except click.ClickException as error:
            if not watch:
                raise
            error.show()
        if not watch:
            context.exit(int(failed))
        while _written(path) in (seen, []):
            time.sleep(0.3)


def _written(path: Path) -> list[int]:
    """Return when the files of a path were written: nothing while an editor replaces one."""
    return [file.stat().st_mtime_ns for file in (path, *path.rglob("*")) if file.exists()]


def check_path(path, *, name, sarif, as_json, archs, defines, folders, **how) -> bool:
    """Check what a path holds, print what was found; return whether anything is wrong."""
    options = (*(f"-D{word}" for word in defines), *(f"-I{folder}" for folder in folders))
    files = [path] if path.is_file() else sorted(p for s in SUFFIXES for p in path.rglob(f"*{s}"))
    if not files:
        raise ValueError(f"{path}: no file ends with {' or '.join(SUFFIXES)}")
    if sarif and not sarif.parent.is_dir():
        raise ValueError(f"--sarif {sarif}: there is no folder {sarif.parent}")
    one_by_one, found = path.is_file(), []
    for file in files:
        source, near = file.read_text(encoding="utf-8", errors="replace"), (f"-I{file.parent}", *options)
        flat = flatten(source, near)
        code = taken_branches(flat.text, preprocessor(options, None))
        launches = launches_of(f"{code}\n{definitions(options)}", flat.place)
        templates, own = kernels_of(code), kernels_of(source)
        names = [name] if name else [kernel for kernel in templates if kernel in own or kernel in launches]
        if one_by_one and not names:
            raise ValueError(f"{path}: no __global__ function")
        if one_by_one and len(names) > 1 and how["args"]:
            raise ValueError(f"{path} has the kernels {', '.join(names)}: say which by --name")
        for each in names:
            known, given = launches.get(each, []), (file, source, each, near)
            with contextlib.redirect_stdout(io.StringIO()):  # what kernels print is in their reports
                for one in _checked(*given, templates.get(each, ""), not one_by_one, known, **how):
                    found += [one] * (one.report is not None or one not in found)  # each launch is refused alike
        if archs:
            result = compile_check(source, archs.split(","), options=options, names=[name] if name else ())
            click.echo(result, err=as_json)
            found += [Checked(file, "", None, "does not compile for a card")] * (not result.ok)
    if sarif:
        with whole_file(sarif) as fresh:
            fresh.write_text(json.dumps(to_sarif(found), indent=1), encoding="utf-8")
    checked = [one.report for one in found if one.report]
    if as_json:
        click.echo(json.dumps([_as_dict(one) for one in found], indent=1))
    elif one_by_one:
        for one in found:
            if one.report:
                say(f"{one.report.printed}{one.report}")
            if one.why:
                say(f"{', '.join(filter(None, (str(one.path), one.kernel)))}: {one.why}")
    else:
        rows = [(str(o.path.relative_to(path)), o.kernel, _outcome(o)) for o in found]
        print_table(str(path), ["file", "kernel", "outcome"], rows)
        say(f"{len(checked)} launches checked, {sum(bool(r.errors) for r in checked)} with errors; "
            f"{len(found) - len(checked)} not: `distlearn kernel check FILE` says what to type")  # fmt: skip
    if not checked and (how["launch"] or not one_by_one):
        return True  # a workflow that checks nothing is no success
    return any(one.report.errors if one.report else one.why.startswith(("error", "does not")) for one in found)


def _checked(file, source, name, options, template, folder, launches, *, grid, block, shared, args, launch):
    """Yield what comes of one kernel: of the launch that is asked for, or of each of the host code."""
    host, nowhere = launch or folder, Launch(name, 0, None, None, None, [], "")
    for one in ((launches if host else launches[:1]) if not args else ()) or [nowhere]:
        full, known = one.kernel, one is not nowhere
        try:
            why = f"its launch in line {one.line}: {one.unknown}" if known else "no launch in its host code"
            if template and "<" not in full:
                full += template
                why = f"its launch in line {one.line} names no arguments of the template" if known else why
                one = one._replace(grid=None)
            if folder and (None in one[2:5] if known else template):
                yield Checked(file, full, None, why)
                continue
            made = RawKernel(source, full, options).compile()
            signature = made._built.signature
            if args or not (known or signature):
                how = grid, block, shared, args
            else:  # what floats are makes no difference to the accesses of most kernels
                values = zip(one.arguments, signature, strict=False)
                how = (*one[2:5], [v or ("1" if code[0] in "fh" else None) for v, code in values])
            if (args or host or not signature) and None not in (*how, *how[-1]):
                report, why = _run(made, *how, SECONDS[known]), ""
                ended = ("unfinished", "infinite-loop" if known else "")  # what was chosen for a card takes long here
                for late in [e for e in report.errors if e.kind in ended]:
                    report.errors.remove(late)
                    why = f"not to its end: {late.message}"
                if known and report.errors:  # what other numbers in the arrays change is no mistake of the kernel
                    others = [f"{text}=from7" if text.startswith("bytes") else text for text in how[-1]]
                    same = {_sort_of(e) for e in _run(made, *how[:-1], others, SECONDS[True]).errors}
                    kept = [e for e in report.errors if _sort_of(e) in same]
                    if kept != report.errors:
                        report.errors = kept
                        why = "more depends on what its arrays hold, which host code sets: use --arg"
                yield Checked(file, full, report, why)
                continue
            takes = ", ".join(f"{spell(c)} {n}" for c, n in zip(signature, made.parameters, strict=False))
            line = "" if folder else f"it takes {takes}: {_line(file, full, made, one)}"
            yield Checked(file, full, None, "; ".join(filter(None, [why * host, line])))
        except KernelError as error:
            lines = [line.strip() for line in str(error).split("\n")]
            why = " ".join([*lines[:2], *(line for line in lines[2:] if "header not found" in line)])
            yield Checked(file, full, None, f"refused: {why}" if folder else f"error: {error}")
        except (ValueError, TypeError) as error:
            if args:
                raise
            yield Checked(file, full, None, f"cannot be launched: {error}")


def _run(made, grid, block, shared, texts, seconds) -> Report:
    rng, signature = np.random.default_rng(0), made._built.signature
    given = [argument(text, code, rng) for text, code in zip(texts, signature, strict=False)]
    return made.check(grid, block, (*given, *texts[len(given) :]), shared_mem=shared, time_limit=seconds)


def _sort_of(finding) -> tuple:
    return finding.kind, finding.line, finding.offset * (finding.kind == "out-of-bounds")


def _line(file, name, made, launch) -> str:
    """Return the command that checks a kernel: with what is known of a launch; sizes are 32 if not, arrays 32^3."""
    text, signature = made.device.text, made._built.signature
    grid, block, shared, given = launch[2:6]
    sides = 2 if re.search(r"Idx\s*\.\s*y", text) else 1
    grid, block = grid or (1,) * sides, block or (32 if made.device.most_threads >= 32**sides else 8,) * sides
    shared = shared or 4096 * ("extern __shared__" in text)
    words = ["--name", name, "--grid", ",".join(map(str, grid)), "--block", ",".join(map(str, block))]
    words += ["--shared", str(shared)] * bool(shared)
    for known, code in zip([*given, *[None] * len(signature)], signature, strict=False):
        usual = "1" if code[0] in "fh" else "32"
        if code[0] == "s":
            ints, bools = divmod(int(code[1:]), 4)
            usual = f"{{{', '.join(['32'] * ints + ['true'] * bools)}}}"
        if code.startswith("*"):
            usual = f"{spell(code.replace('k', ''))[:-1]}[32768]"
        words += ["--arg", known or usual]
    return shlex.join(["distlearn", "kernel", "check", str(file), *made.options[1:], *words])


def _outcome(one: Checked) -> str:
    errors = [f"{e.kind}, {e.where}" for e in one.report.errors] or ["no errors"] if one.report else []
    return "; ".join([*errors, *[one.why] * bool(one.why)])


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
            place = {"artifactLocation": {"uri": quote(Path(os.path.relpath(file)).as_posix())}, "region": region}
            results.append({
                "ruleId": f.kind, "level": "warning" if f.is_warning else "error",
                "message": {"text": f"{one.kernel}: {f.message}"}, "locations": [{"physicalLocation": place}],
            })  # fmt: skip
    rules = [{"id": kind} for kind in dict.fromkeys(r["ruleId"] for r in results)]
    driver = {"name": "distlearn kernel check", "version": __version__, "rules": rules}
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": results}],
    }  # fmt: skip
