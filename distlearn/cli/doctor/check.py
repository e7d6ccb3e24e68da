"""The result of one check of the doctor, and the list of all: printed, as JSON, and as a table in a notebook."""

from __future__ import annotations

import html
from dataclasses import asdict, dataclass

from ...tables import CSS_AMBER, CSS_GREEN, CSS_RED

VERDICTS = {"ok": "✓", "info": "i", "warning": "!", "problem": "✗"}
"""From best to worst, with the symbol of each; a problem keeps a lab from running."""

STYLES = {"ok": "green", "info": "default", "warning": "yellow", "problem": "bold red"}
ASCII = {"✓": "+", "✗": "x"}


@dataclass(frozen=True)
class Check:
    """The result of one check.

    Parameters
    ----------
    name : str
        What was checked: "MPI".
    found : str
        What is there: "mpiexec of MPICH 5.0.2, 2 ranks say hello".
    verdict : {"ok", "info", "warning", "problem"}
        A warning lets labs run, slower or not all of them; a problem does not.
    fix : str
        The command that fixes it, ready to be pasted into a terminal; several lines where it takes several.
    """

    name: str
    found: str
    verdict: str = "ok"
    fix: str = ""

    def __post_init__(self):
        if self.verdict not in VERDICTS:
            raise ValueError(f"Check {self.name!r}: verdict is {self.verdict!r}, expected one of {', '.join(VERDICTS)}")
        if self.verdict == "problem" and not self.fix:
            raise ValueError(f"Check {self.name!r}: a problem needs the command that fixes it")

    @property
    def symbol(self) -> str:
        """The verdict's symbol."""
        return VERDICTS[self.verdict]


class Diagnosis(list):
    """The results of all checks; displayed as a table in a notebook."""

    @property
    def ok(self) -> bool:
        """Whether a lab can run: no problem was found (warnings do not count)."""
        return not any(check.verdict == "problem" for check in self)

    @property
    def verdict(self) -> str:
        """One sentence on all of it."""
        count = {verdict: sum(c.verdict == verdict for c in self) for verdict in VERDICTS}
        problems, warnings = (_plural(count[v], v) for v in ("problem", "warning"))
        if not self.ok:
            return f"{problems}: labs cannot run until the commands above have been run."
        return f"Labs can run ({warnings})." if count["warning"] else "Labs can run."

    def as_dict(self) -> dict:
        """All results, ready for JSON."""
        return {"ok": self.ok, "verdict": self.verdict, "checks": [asdict(check) for check in self]}

    def print(self) -> None:
        """Print the table, and under it every command that fixes something."""
        from ..console import console, make_table, say, speaks_unicode

        def shown(symbol):
            return symbol if speaks_unicode() else ASCII.get(symbol, symbol)

        rows = [(c.name, c.found, f"{shown(c.symbol)} {c.verdict}") for c in self]
        styles = [STYLES[c.verdict] for c in self]
        console().print(make_table("distlearn doctor", ("check", "found", "verdict"), rows, styles=styles))
        for check in self:
            if check.fix:
                say(f"{shown(check.symbol)} {check.name}:")
                for line in check.fix.splitlines():
                    say(f"    {line}", style="bold")
        say(self.verdict, style="bold green" if self.ok else "bold red")

    def _repr_html_(self) -> str:
        """The table for a notebook; colour is never the only sign."""
        colors = {"ok": CSS_GREEN, "info": "inherit", "warning": CSS_AMBER, "problem": CSS_RED}
        rows = []
        for c in self:
            fix = f"<pre style='margin:0.3em 0 0'>{html.escape(c.fix)}</pre>" if c.fix else ""
            mark = (
                f"<td style='text-align:left;color:{colors[c.verdict]};white-space:nowrap'>{c.symbol} {c.verdict}</td>"
            )
            found = f"<td style='text-align:left'>{html.escape(c.found)}{fix}</td>"
            rows.append(f"<tr><td style='text-align:left'><b>{html.escape(c.name)}</b></td>{found}{mark}</tr>")
        head = "".join(f"<th style='text-align:left'>{name}</th>" for name in ("check", "found", "verdict"))
        return f"<table><tr>{head}</tr>{''.join(rows)}</table><p><b>{html.escape(self.verdict)}</b></p>"

    def __repr__(self) -> str:
        return "\n".join([*(f"{c.symbol} {c.name}: {c.found}" for c in self), self.verdict])


def _plural(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"
