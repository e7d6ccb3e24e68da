"""From a folder of submissions to the standings: who is scored, what of it is shown, and in which order.

    submissions/TEAM/2026-11-03T1405/{classifier/ or classifier.zip, schedule.csv, kernel.cu}

1. A team has so many submissions to a track a day; more are listed, not run. Work after the deadline is listed behind
   all other, and some days later not run.
2. Of a track with a private half a new score is shown only if it is better by one standard error (the ladder).
3. Equal costs share a place; the earlier submission is listed first.
4. What is below the physical floor is named and never ranked; so is a team that staff disqualify, with the reason.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter, defaultdict
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

from .reading import Refused, team_name
from .rounds import TIME, TRACKS, Round, read_json
from .track import Result, refused

LIBRARY = "beat-this"
NOT_RUN = ("over the limit", "too late", "not judged")


@dataclass
class Entry:
    """One submission to one track."""

    team: str
    time: str
    track: str
    digest: str
    result: Result
    late: bool = False

    @classmethod
    def of(cls, row: dict) -> Entry:
        return cls(**(row | {"result": Result(**row["result"])}))


def time_of(text: str) -> datetime:
    """Read the time of a submission."""
    try:
        if re.fullmatch(TIME, text, re.ASCII):
            return datetime.strptime(text, "%Y-%m-%dT%H%M")
    except ValueError:  # the thirteenth month
        pass
    raise Refused(f"{text!a}: expected a time such as 2026-11-03T1405")


def better(before: list[int], now: list[int]) -> bool:
    """Say whether costs by case fell, on the whole, by more than one standard error of their difference.

    With d the differences, D their sum and s their standard deviation, D / n > s / sqrt(n) is D^2 > sum of d^2: exact.

    References
    ----------
    A. Blum, M. Hardt (2015), The ladder: a reliable leaderboard for machine learning competitions, ICML, section 3.1.
    """
    d = [b - a for b, a in zip(before, now, strict=True)]
    return sum(d) > 0 and sum(d) ** 2 > sum(x * x for x in d)


def digest_of(path: Path) -> str:
    total = hashlib.sha256()
    if path.is_symlink():
        return ""
    for found in sorted(path.rglob("*")) if path.is_dir() else [path]:
        if found.is_file() and not found.is_symlink():
            total.update(f"{found.relative_to(path).as_posix()} {found.stat().st_size}\n".encode())
            with found.open("rb") as file:
                total.update(hashlib.file_digest(file, "sha256").digest())
    return total.hexdigest()


def inside(path: Path) -> list[Path]:
    """Return what is in a folder; the path itself if it is none, or empty, so that it is listed with the reason."""
    visible = (p for p in path.iterdir() if p.name[0] != ".") if path.is_dir() and not path.is_symlink() else ()
    return sorted(visible) or [path]


def found_in(folder: Path):
    """Yield (team, time, track or "", path) of everything in a folder of submissions, in the order of time."""
    names = {t.file: t.name for t in TRACKS.values()} | {"classifier.zip": "classifier"}
    rows = []
    for team in (p for p in inside(Path(folder)) if p.is_dir() or p.suffix == ".zip"):
        for when in inside(team):
            paths = [when] if when == team else inside(when)
            rows += [(when.name, team.name, path.name, path) for path in paths]
    for time, team, name, path in sorted(rows):
        yield team, time, names.get(name, ""), path


def score_all(folder: Path, around: Round, known=(), *, unsafe: bool = False, progress=None) -> list[Entry]:
    """Score every submission of a folder; what is among the known entries is not run again."""
    terms, entries, per_day = around.terms, [], Counter()
    kept = {(e.team, e.time, e.track, e.digest): e.result for e in known if e.result.state not in NOT_RUN}
    deadline = time_of(terms["deadline"])
    rows = list(found_in(folder))
    if not any(re.fullmatch(TIME, time) for _, time, *_ in rows):
        raise ValueError(f"{folder}: no submission, expected folders such as TEAM/2026-11-03T1405/")
    _ = around.data, around.labels, around.draws  # an error of theirs is no team's
    for i, (team, time, track, path) in enumerate(rows):
        late, digest = False, ""
        try:
            if team_name(team) == LIBRARY:
                raise Refused(f"the team {LIBRARY} is the library's own")
            when = time_of(time)
            if not track:
                raise Refused(f"{path.name!a}: expected one of {', '.join(t.file for t in TRACKS.values())}")
            late = when > deadline
            per_day[team, track, time[:10]] += 1
            digest = digest_of(path)
            if per_day[team, track, time[:10]] > terms["per_day"]:
                result = refused(f"over the limit of {terms['per_day']} submissions a day", NOT_RUN[0])
            elif when > deadline + timedelta(days=terms["late_days"]):
                result = refused(f"more than {terms['late_days']} days late", NOT_RUN[1])
            else:
                result = kept.get((team, time, track, digest)) or around.score(track, path, team, unsafe=unsafe)
        except ValueError as error:
            result = refused(error)
        except Exception as error:  # one submission must not keep the others from being scored
            result = refused(f"{path.name!a} cannot be judged: {type(error).__name__}", NOT_RUN[2])
        entries.append(Entry(ascii(team)[1:-1][:40], ascii(time)[1:-1][:20], track, digest, result, late))
        if progress:
            progress(i + 1, len(rows))
    return entries


def library_entries(around: Round, known=()) -> list[Entry]:
    """Score what the library has for every track but the classifier: "beat this"."""
    entries, folder = [], around.secret / LIBRARY
    kept = {(e.track, e.digest): e.result for e in known if e.team == LIBRARY}
    folder.mkdir(exist_ok=True)
    for name, track in TRACKS.items():
        if hasattr(track, "beat_this"):
            path = folder / track.file
            path.write_bytes(track.beat_this(around.tasks[name]))
            digest = digest_of(path)
            result = kept.get((name, digest)) or around.score(name, path, LIBRARY, unsafe=True)
            entries.append(Entry(LIBRARY, "", name, digest, result))
    return entries


@dataclass
class Standing:
    """A line of the board."""

    team: str
    track: str
    state: str
    cost: int | None = None
    floor: int | None = None
    public: int | None = None
    time: str = ""
    place: int | None = None
    late: bool = False
    count: int = 0
    reason: str = ""
    notes: list[str] = field(default_factory=list)
    best: Entry | None = None


def standings(entries: list[Entry], disqualified: dict[str, str] | None = None) -> dict[str, list[Standing]]:
    """Return the lines of every track: those with a place first, then those without, with the reason."""
    disqualified, boards = disqualified or {}, {}
    for name, track in TRACKS.items():
        lines, of_team = [], defaultdict(list)
        for entry in sorted((e for e in entries if e.track == name), key=lambda e: (e.time, e.team)):
            of_team[entry.team].append(entry)
        for team, mine in of_team.items():
            lines.append(_line(team, name, mine, track.hidden))
            if team in disqualified:
                lines[-1].state, lines[-1].reason = "disqualified", f"disqualified: {disqualified[team]}"
        ranked = [line for line in lines if line.state in ("scored", "late")]
        ranked.sort(key=lambda s: (s.late, s.cost, s.time, s.team))
        rest = sorted((line for line in lines if line not in ranked), key=lambda s: s.team)
        for i, line in enumerate(ranked):
            above = ranked[i - 1] if i else None
            same = above is not None and (above.late, above.cost) == (line.late, line.cost)
            line.place = above.place if same else i + 1
        boards[name] = ranked + rest
    return boards


def _line(team: str, track: str, entries: list[Entry], hidden: bool) -> Standing:
    """The line of one team: its best submission on time, as the ladder shows it; else the best late one."""
    last = entries[-1]
    line = Standing(team, track, last.result.state, time=last.time, count=len(entries), reason=last.result.reason)
    for entry in entries:
        result, best = entry.result, line.best
        if result.state != "scored" or (best is not None and entry.late and not best.late):
            continue
        rises = best is None or (better(best.result.cases, result.cases) if hidden else result.cost < best.result.cost)
        if rises:
            line.best, line.late, line.state = entry, entry.late, "late" if entry.late else "scored"
            line.cost, line.floor, line.public, line.time = result.cost, result.floor, result.public, entry.time
            line.notes, line.reason = list(result.notes), ""
    if line.best:
        bad = Counter(e.result.state for e in entries if e.result.state != "scored")
        line.notes += [f"{n} {state}" for state, n in sorted(bad.items())]
    return line


def save(entries: list[Entry], path: Path) -> None:
    """Write the results that staff keep."""
    path.write_text(json.dumps([asdict(e) for e in entries], indent=1) + "\n", encoding="utf-8")


def load(path: Path) -> list[Entry]:
    return [Entry.of(row) for row in read_json(Path(path))]
