"""`distlearn run module:function`: run a user's function on every rank."""

from __future__ import annotations

import importlib
import json
import os
import reprlib
import subprocess
import sys
import traceback

import click

from .. import world as worlds  # which loads the kind of world that is used
from ..comm import CommError, RankError
from ..sim import SimWorld
from .console import plain_errors, say
from .options import WORLDS
from .ranks import blas_threads


def find_function(spec: str):
    """Import `module:function`; the current folder is searched, too."""
    module, colon, name = spec.partition(":")
    if not (module and colon and name):
        raise click.UsageError(f"{spec!r}: expected module:function, such as mymodule:train")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found = importlib.import_module(module.removesuffix(".py").replace("/", "."))
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise  # the module exists, but imports one that does not
        raise click.UsageError(f"{spec!r}: there is no module {error.name!r} here or installed") from error
    for part in name.split("."):
        if not hasattr(found, part):
            offers = [n for n, value in vars(found).items() if callable(value) and not n.startswith("_")]
            raise click.UsageError(f"{spec!r}: {module} has no {part!r}; it has {', '.join(offers) or 'no functions'}")
        found = getattr(found, part)
    if not callable(found):
        raise click.UsageError(f"{spec!r} is a {type(found).__name__}, expected a function of (comm, ...)")
    return found


def parse_arguments(words) -> tuple[list, dict]:
    """Turn words into arguments: JSON by position, `name=JSON` by name."""
    args, kwargs = [], {}
    for word in words:
        name, equals, value = word.partition("=")
        by_name = bool(equals) and name.isidentifier()
        text = value if by_name else word
        try:
            parsed = json.loads(text)
        except ValueError as error:
            hint = json.dumps(text)
            raise click.UsageError(
                f"argument {word!r} is not JSON ({error}); write a string as '{hint}', with quotes"
            ) from error
        if by_name:
            kwargs[name] = parsed
        elif kwargs:
            raise click.UsageError(f"argument {word!r} comes after {next(iter(kwargs))}=...; names come last")
        else:
            args.append(parsed)
    return args, kwargs


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("function", metavar="MODULE:FUNCTION")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[ARG]...")
@click.option("--world", type=click.Choice(WORLDS), help="Default: local, engines for more ranks, mpi under mpiexec.")
@click.option("--size", type=click.IntRange(1), default=None, help="Number of ranks.  [default: 1]")
@click.option("--threads", type=click.IntRange(1), help="BLAS threads of each rank; by default they share the cores.")
@click.option("--timeout", type=float, help="Longest time [s].")
@click.option(
    "--strict/--no-strict",
    default=True,
    help="Find mistakes on real ranks: sends wait for their receives, and collective calls that differ raise "
    "instead of mixing data up. The simulator always does.  [default: strict]",
)
def run(function, arguments, world, size, threads, timeout, strict):
    """Call MODULE:FUNCTION(comm, ARG...) on every rank, and print the results.

    ARGs are JSON, by position or as name=JSON. A module in the current folder is found.

    \b
    mpiexec -n 4 distlearn run mymodule:train '{"lr": 0.1}'
    distlearn run --world engines --size 4 mymodule:train hidden=128
    """  # noqa: D301  (click wants the control character, not its name)
    from .mpiexec import mpi_size

    args, kwargs = parse_arguments(arguments)
    call = find_function(function)
    ranks = mpi_size()
    if ranks:
        if world not in (None, "mpi") or size not in (None, ranks):
            raise click.UsageError(f"mpiexec started {ranks} ranks: remove --world and --size")
        # a rank that raises prints its traceback and ends them all
        with plain_errors(CommError, ModuleNotFoundError), worlds.MPIWorld(timeout=timeout, strict=strict) as place:
            results = place.run(call, *args, **kwargs)
            if place.rank == 0:
                show(results)
        return
    size = size or 1
    world = world or ("local" if size == 1 else "engines")
    if world == "local" and size != 1:
        raise click.UsageError(f"--world local is one rank, not {size}; use sim, mpi or engines")
    if world == "mpi":
        command = ["python", "-P", "-m", "distlearn", "run", *["--no-strict"] * (not strict), function, *arguments]
        try:
            sys.exit(worlds.launch(size, command, threads=threads, timeout=timeout).returncode)
        except subprocess.TimeoutExpired:
            raise click.ClickException(f"{size} ranks had not returned after {timeout:g} s, and were ended") from None
    make = {
        "local": worlds.LocalWorld,
        "sim": lambda: SimWorld(size),
        "engines": lambda: worlds.EngineWorld(size, threads=threads, timeout=timeout, strict=strict),
    }[world]
    with plain_errors(CommError, ValueError, ModuleNotFoundError), blas_threads(threads), make() as place:
        _ship_by_value(call)
        try:
            results = place.run(call, *args, **kwargs)
        except RankError as error:
            if world != "engines" and error.original is not None:  # engines say where the function raised
                traceback.print_exception(error.original)
            raise
    show(results)


def _ship_by_value(call) -> None:
    """Send the user's module to the engines by value: they may not find it, or have imported an older version."""
    import cloudpickle

    module = sys.modules.get(getattr(call, "__module__", None) or "")
    path = getattr(module, "__file__", None) or ""
    if os.path.dirname(os.path.abspath(path)) == os.getcwd():
        cloudpickle.register_pickle_by_value(module)


def show(results) -> None:
    """Print each rank's result, if there is one."""
    short = reprlib.Repr()
    short.maxstring = short.maxother = 200
    short.maxlist = short.maxtuple = short.maxdict = 10
    for rank, result in enumerate(results):
        if result is not None:
            say(f"rank {rank}: {short.repr(result)}")
