"""`distlearn start` and `distlearn progress`: open JupyterLab on the labs, and see how far one is."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from distlearn.cli.console import plain_errors, print_table, say

SETTINGS = Path(__file__).parents[1] / "jupyter"
FOLDER = click.option("--labs", type=click.Path(exists=True, path_type=Path), help="Their folder; found from here.")


@click.command(short_help="Open JupyterLab on the labs.", context_settings={"ignore_unknown_options": True})
@FOLDER
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def start(labs, arguments):
    """Open JupyterLab on the labs, with a page that shows how far you are; ARGUMENTS go to `jupyter lab`."""
    from ..progress import find_labs, write_page

    with plain_errors(OSError):
        page = write_page(find_labs(labs))
    folder = page.parent
    ours = [
        "--log-level=ERROR",
        f"--ServerApp.root_dir={folder.parent}",
        f"--ServerApp.preferred_dir={folder}",
        f"--LabApp.default_url=/lab/tree/{folder.name}/{page.name}",
        f"--LabApp.extra_labextensions_path={SETTINGS / 'labextensions'}",
    ]
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        ours.append("--allow-root")
    if sys.platform == "linux" and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        ours.append("--no-browser")
    paths = [str(SETTINGS), *filter(None, [os.environ.get("JUPYTER_CONFIG_PATH")])]
    os.environ["JUPYTER_CONFIG_PATH"] = os.pathsep.join(paths)
    from jupyterlab.labapp import main

    sys.exit(main([*ours, *arguments]))


@click.command(short_help="Show how far you are.")
@FOLDER
def progress(labs):
    """Show, for every lab, points of the checks that passed, predictions made and minutes.

    All is read from the notebooks as they were saved.
    """
    from ..progress import find_labs, read_all

    with plain_errors(OSError):
        labs = find_labs(labs)
        done = read_all(labs)
    rows = [[p.lab, p.bar, *p.cells] for p in done]
    print_table("Your labs", ["lab", "done", "points of checks>", "predictions>", "minutes>"], rows)
    points, all_points = sum(p.points for p in done), sum(p.all_points for p in done)
    say(f"{points:g} of {all_points:g} points; texts are graded by hand, and count as well")
    for folder in sorted(labs.glob("lab[0-9][0-9]_*")):
        wanted, others = folder.name[:5] + ".ipynb", ", ".join(sorted(path.name for path in folder.glob("*.ipynb")))
        if others and not (folder / wanted).exists():
            say(f"not counted: {folder.name} has {others}, expected {wanted}: rename the one to count", err=True)
