"""`distlearn project`: check a submission, score a folder of them, draw the board, make a round."""

from __future__ import annotations

from pathlib import Path

import click

from distlearn.cli.console import make_progress, plain_errors, print_table, say

_path = click.Path(path_type=Path)
_there = click.Path(path_type=Path, exists=True)
_unsafe = click.option("--unsafe", is_flag=True, help="Run submissions without a sandbox, with your rights.")


@click.group()
def project():
    """The final project: check, score, show, make a round."""


@project.command(short_help="Check a submission against the public part.")
@click.argument("paths", nargs=-1, required=True, type=_there)
@click.option("--round", "where", type=_there, help="The round's public folder; without it the practice round.")
def check(paths, where):
    """Check files (schedule.csv, kernel.cu, classifier/ or classifier.zip), and score them.

    Your own program runs with your rights. Exit status 1 if something is refused.
    """
    from ..project.rounds import TRACKS, Round, practice

    with plain_errors(OSError, ValueError):
        around, bad = Round(where) if where else practice(), False
        for path in paths:
            track = next((t for t in TRACKS.values() if path.name in (t.file, f"{t.file}.zip")), None)
            if track is None:
                expected = ", ".join([*(t.file for t in TRACKS.values()), "classifier.zip"])
                raise ValueError(f"{path}: expected one of {expected}")
            found = around.score(track.name, path, "check", unsafe=True)
            bad = bad or found.state != "scored"
            if found.state == "scored":
                shown = found.cost if found.public is None else found.public
                floor = f", nothing is below {found.floor:,}" if found.floor else ""
                say(f"{path}: {shown:,} {track.unit}{floor}. {'; '.join(found.notes)}")
            else:
                say(f"{path}: {found.state}: {found.reason}", err=True)
    if bad:
        raise SystemExit(1)


@project.command(short_help="Score a folder of submissions.")
@click.argument("submissions", type=_there)
@click.argument("where", metavar="ROUND", type=_there)
@click.option("--results", type=_path, help="Kept here; by default ROUND/secret/results.json.")
@_unsafe
def score(submissions, where, results, unsafe):
    """Score SUBMISSIONS/<team>/<time>/... with the seed and the labels of ROUND; what was scored before is kept."""
    from ..author.sandbox import require
    from ..project.board import library_entries, load, save, score_all
    from ..project.rounds import Round

    with plain_errors(OSError, ValueError, RuntimeError):
        if not unsafe:
            require()
        around, path = Round(where / "public", where / "secret"), results or where / "secret/results.json"
        known, progress = load(path) if path.exists() else [], make_progress("project", "submission")
        try:
            entries = library_entries(around, known) + score_all(
                submissions, around, known, unsafe=unsafe, progress=progress
            )
        finally:
            progress.close()
        save(entries, path)
        rows = [(e.team, e.time, e.track, e.result.state, e.result.cost, e.result.reason) for e in entries]
        print_table("Submissions", ["team", "time", "track", "state", "cost>", "why"], rows)
        say(f"wrote {path}; next: distlearn project board {where} FOLDER")


@project.command(short_help="Draw the board.")
@click.argument("where", metavar="ROUND", type=_there)
@click.argument("target", metavar="FOLDER", type=_path)
@click.option("--results", type=_path, help="By default ROUND/secret/results.json.")
def board(where, target, results):
    """Write FOLDER/board.html and board.csv. ROUND/secret/disqualified.json may hold {"team": "reason"}."""
    from ..project.board import load
    from ..project.page import write_board
    from ..project.rounds import Round, read_json

    with plain_errors(OSError, ValueError):
        terms, out = Round(where / "public").terms, where / "secret/disqualified.json"
        entries, reasons = load(results or where / "secret/results.json"), read_json(out) if out.exists() else {}
        if not isinstance(reasons, dict):
            raise ValueError(f'{out}: {type(reasons).__name__}, expected {{"team": "reason"}}')
        for team in sorted({*reasons} - {e.team for e in entries}):
            say(f"{out}: {team!r} has handed nothing in", err=True)
        write_board(entries, terms, target, reasons)
        say(f"wrote {target / 'board.html'} and {target / 'board.csv'}")


@project.command(short_help="Make a round from a data set.")
@click.argument("folder", type=_path)
@click.option("--data", default="digits", show_default=True, help="A data set of the library, or a .npz with x and y.")
@click.option("--practice", is_flag=True, help="With a seed that everybody knows.")
def make(folder, data, practice):
    """Make FOLDER/public, to give out, and FOLDER/secret, the seed and the labels; outside of any repository."""
    from ..project.rounds import make as run

    with plain_errors(OSError, ValueError):
        run(folder, data, practice=practice)
        say(f"wrote {folder / 'public'} (give it out) and {folder / 'secret'} (keep it)")
