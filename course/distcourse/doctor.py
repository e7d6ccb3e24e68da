"""Lab 00's first cell: whether this machine can run the labs."""

# It imports little, as a package that is missing or broken is what it is to find.

from html import escape

from IPython.display import HTML

from distlearn.cli.doctor import CHECKS, HEADS, examine, rows_of, summary
from distlearn.tables import Table


def diagnose() -> HTML:
    """Check what labs need, but for engines: a table, and the commands that fix problems."""
    checks = [examine(name) for name in CHECKS if name != "engines"]
    table = Table(HEADS, rows_of(checks), right=(False, False, False))._repr_html_()
    fixes = "".join(f"<p>{escape(c.name)}:</p><pre>{escape(c.fix)}</pre>" for c in checks if c.fix)
    return HTML(f"{table}{fixes}<p><b>{escape(summary(checks))}</b></p>")
