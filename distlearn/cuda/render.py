"""A report as text and as HTML."""

from __future__ import annotations

import html

from ..tables import CSS_GREEN, CSS_RED  # never alone: the words say the same


def count(n: float, unit: str = "") -> str:
    """Write a number with a prefix: 1310720 bytes as '1.31 MB'."""
    for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(n) >= factor:
            return f"{n / factor:.3g} {prefix}{unit}"
    return f"{n:.3g} {unit}".strip()


def summary(report) -> str:
    """Return the line of totals."""
    intensity = report.arithmetic_intensity
    return (
        f"{report.flops:,} flop, {count(report.bytes_moved, 'B')} moved for {count(report.bytes_requested, 'B')} "
        f"requested, {intensity:.2f} flop/byte, {report.active_lanes:.0%} of lanes active"
    )


def verdict(site) -> tuple[str, bool]:
    """Describe how well a site uses memory, and whether that is good."""
    if site.space == "shared":
        if site.worst_conflict == 1:
            return "no bank conflict", True
        return f"{site.worst_conflict}-way bank conflict, {site.wavefronts_per_request:.2f} passes", False
    text = f"{site.sectors_per_request:.2f} sectors (ideal {site.ideal_per_request:.2f})"
    return (text, True) if site.coalesced else (f"{text}, not coalesced", False)


def title(report) -> str:
    """Return the first line."""
    n, m = len(report.errors), len(report.warnings)
    found = "no errors" if n == 0 else f"{n} error" + "s" * (n > 1)
    found += f", {m} warning" + "s" * (m > 1) if m else ""
    return f"{report.kernel}, grid {report.grid}, block {report.block}: {found}"


def to_text(report) -> str:
    """Return the report as plain text."""
    out = [title(report)]
    out += [f"  !! {error}" for error in report.errors]
    out += [f"  !  warning: {warning}" for warning in report.warnings]
    if report.truncated:
        out.append("  (threads do very much between two barriers: only the beginning was counted by line)")
    if report.sites:
        out.append(f"  {summary(report)}")
        width = max(len(s.array) for s in report.sites)
        for s in report.sites:
            where = f"line {s.line:3d}" + f" {s.file}" * bool(s.file)
            out.append(
                f"  {where}  {s.access:6s} {s.space:8s} {s.array:{width}s} {s.size:2d} B  "
                f"{s.requests:8,d} requests, {s.active_lanes:4.0%} lanes, {verdict(s)[0]}"
            )
    return "\n".join(out)


def to_html(report) -> str:
    """Return the report as an HTML table."""
    colour = CSS_RED if report.errors else CSS_GREEN
    out = [f'<div><b style="color:{colour}">{html.escape(title(report))}</b>']
    if report.errors or report.warnings:
        out.append("<ul>")
        for e in [*report.errors, *report.warnings]:
            times = f" ({e.count} times)" if e.count > 1 else ""
            kind = f"warning: {e.kind}" if e.is_warning else e.kind
            shown = "".join(f"<br><code>{html.escape(line)}</code>" for line in e.shown_lines)
            out.append(f"<li><b>{kind}</b>, {e.where}: {html.escape(e.message)}{times}{shown}</li>")
        out.append("</ul>")
    if report.sites:
        heads = ["line", "source", "access", "array", "bytes per lane", "warp accesses", "lanes active", "memory"]
        out.append(f"<p>{html.escape(summary(report))}</p><table><thead><tr>")
        out += [f'<th style="text-align:left">{h}</th>' for h in heads]
        out.append("</tr></thead><tbody>")
        for s in report.sites:
            text = s.source.strip() if len(s.source.strip()) <= 60 else s.source.strip()[:59] + "…"
            words, good = verdict(s)
            cells = [
                f"{s.line} {s.file}".strip(),
                f"<code>{html.escape(text)}</code>",
                s.access,
                f"{html.escape(s.array)} ({s.space})",
            ]
            cells += [s.size, f"{s.requests:,}", f"{s.active_lanes:.0%}"]
            style = ' style="text-align:left"'
            row = "".join(f"<td{style}>{c}</td>" for c in cells)
            out.append(f'<tr>{row}<td style="text-align:left;color:{CSS_GREEN if good else CSS_RED}">{words}</td></tr>')
        out.append("</tbody></table>")
    out.append("</div>")
    return "".join(out)
