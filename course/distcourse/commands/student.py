"""`distlearn start` and `distlearn progress`: open JupyterLab on the labs, and see how far one is."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from distlearn import need
from distlearn.cli.console import plain_errors, print_table, say

SETTINGS = Path(__file__).parents[1] / "jupyter"
FOLDER = click.option("--labs", type=click.Path(exists=True, path_type=Path), help="Their folder; found from here.")


@click.command(short_help="Open JupyterLab on the labs.", context_settings={"ignore_unknown_options": True})
@FOLDER
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def start(labs, arguments):
    """Open JupyterLab on the labs, with a page that shows how far you are; ARGUMENTS go to `jupyter lab`."""
    with plain_errors(OSError, ImportError):
        from ..progress import find_labs, write_page

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
    with plain_errors(ImportError):
        main = need("jupyterlab.labapp", "labs").main
    sys.exit(main([*ours, *arguments]))


@click.command(short_help="Show how far you are.")
@FOLDER
def progress(labs):
    """Show, for every lab, points of the checks that passed, predictions made and minutes.

    All is read from the notebooks as they were saved.
    """
    with plain_errors(OSError, ImportError):
        from ..progress import find_labs, read_all

        done = read_all(find_labs(labs))
    rows = [[p.lab, p.bar, *p.cells] for p in done]
    print_table("Your labs", ["lab", "done", "points of checks>", "predictions>", "minutes>"], rows)
    points, all_points = sum(p.points for p in done), sum(p.all_points for p in done)
    say(f"{points:g} of {all_points:g} points; texts are graded by hand, and count as well")
