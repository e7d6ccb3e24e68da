"""The standings: the ladder, days, late work, ties, remarks; and the page."""

import csv
import io
import json
import re

import pytest
from click.testing import CliRunner
from distcourse.commands.project import project
from distcourse.project import board, page
from distcourse.project.board import Entry, better, score_all, standings
from distcourse.project.rounds import Round, make
from distcourse.project.track import Result

from .submissions import EXAMPLE, write


def entry(team, time, cost=None, *, track="schedule", cases=(), state="scored", late=False, reason=""):
    result = Result(state, cost, 1 if cost else None, cases=list(cases), reason=reason)
    return Entry(team, time, track, "", result, late)


def rows(entries, track="schedule", **options):
    return [(s.place, s.team[0], s.cost, s.state) for s in standings(entries, **options)[track]]


def test_the_ladder_asks_for_one_standard_error():
    assert better([1] * 100, [0] * 5 + [1] * 95)  # 25 > 5
    assert not better([1] * 100, [0] + [1] * 99)  # 1 > 1 is not
    assert not better([1, 0] * 50, [0, 1] * 50)
    assert not better([1] * 10 + [0] * 8, [0] * 10 + [1] * 8)  # 4 > 18 is not: ten mended, eight broken
    assert better([10, 12, 11], [9, 11, 10])


def test_probing_learns_little():
    """A team that changes one prediction a day sees its score move only when enough have improved."""
    cases = [[1] * k + [0] * (50 - k) for k in range(30, 20, -1)]
    found = [entry("a-team", f"2026-12-{10 + i}T0900", sum(c), track="kernel", cases=c) for i, c in enumerate(cases)]
    shown = [standings(found[: i + 1])["kernel"][0].cost for i in range(len(found))]
    assert shown == [30, 30, 28, 28, 26, 26, 24, 24, 22, 22]


def test_places():
    found = [entry("b-team", "2026-12-01T0900", 10), entry("a-team", "2026-12-02T0900", 10),
             entry("c-team", "2026-12-01T0900", 9), entry("c-team", "2026-12-02T0900", 12),
             entry("d-team", "2026-12-19T0900", 5, late=True), entry("e-team", "2026-12-01T0900", state="impossible"),
             entry("f-team", "2026-12-01T0900", 3)]  # fmt: skip
    assert rows(found, disqualified={"f-team": "shared its labels"}) == [
        (1, "c", 9, "scored"), (2, "b", 10, "scored"), (2, "a", 10, "scored"),
        (4, "d", 5, "late"), (None, "e", None, "impossible"), (None, "f", 3, "disqualified")]  # fmt: skip
    assert standings(found, {"f-team": "shared its labels"})["schedule"][-1].reason == "disqualified: shared its labels"


def test_late_work_does_not_replace_what_was_on_time():
    found = [entry("a-team", "2026-12-01T0900", 10), entry("a-team", "2026-12-19T0900", 5, late=True)]
    assert rows(found) == [(1, "a", 10, "scored")]


def test_days_names_and_times(around, tmp_path):
    text = (EXAMPLE / "schedule.csv").read_bytes()
    for team, time in (("beat-this", "2026-12-01T0900"),
                       ("a-team", "2026-12-01T0900"), ("a-team", "2026-12-01T1000"), ("a-team", "2026-12-01T1100"),
                       ("a-team", "2026-12-01T1200"), ("a-team", "2026-12-20T2358"), ("a-team", "2026-12-30T0000"),
                       ("a-team", "yesterday"), ("=A1", "2026-12-01T0900"),
                       ("b\u0430d", "2026-12-01T0900")):  # fmt: skip
        write(tmp_path / team / time, "schedule.csv", text)
    write(tmp_path / "b-team/2026-12-01T0900", "results.json", b"[]")
    write(tmp_path / "b-team", "2026-12-02T0900", b"a file")
    (tmp_path / "b-team/2026-12-03T0900").mkdir()
    (tmp_path / "b-team/2026-12-03T0900/schedule.csv").symlink_to("/etc/passwd")
    found = {(e.team, e.time): e for e in score_all(tmp_path, around)}
    assert {k: e.result.state for k, e in found.items()} == {
        ("beat-this", "2026-12-01T0900"): "refused",
        ("a-team", "2026-12-01T0900"): "scored", ("a-team", "2026-12-01T1000"): "scored",
        ("a-team", "2026-12-01T1100"): "scored", ("a-team", "2026-12-01T1200"): "over the limit",
        ("a-team", "2026-12-20T2358"): "scored", ("a-team", "2026-12-30T0000"): "too late",
        ("a-team", "yesterday"): "refused", ("=A1", "2026-12-01T0900"): "refused",
        ("b\\u0430d", "2026-12-01T0900"): "refused", ("b-team", "2026-12-01T0900"): "refused",
        ("b-team", "2026-12-02T0900"): "refused", ("b-team", "2026-12-03T0900"): "refused"}  # fmt: skip
    assert found["a-team", "2026-12-20T2358"].late
    assert "expected one of" in found["b-team", "2026-12-01T0900"].result.reason


def test_what_was_scored_is_not_run_again(around, tmp_path, monkeypatch):
    write(tmp_path / "a-team/2026-12-01T0900", "schedule.csv", (EXAMPLE / "schedule.csv").read_bytes())
    first = score_all(tmp_path, around)
    board.save(first, tmp_path / "results.json")
    monkeypatch.setattr(type(around), "score", lambda *a, **k: pytest.fail("it was known"))
    again = score_all(tmp_path, around, board.load(tmp_path / "results.json"))
    assert [e.result for e in again] == [e.result for e in first]


def test_a_mistake_of_staff_blames_no_team(tmp_path):
    made = make(tmp_path / "r", practice=True)
    file, write_to = made.public / "round.json", tmp_path / "s/a-team/2026-12-01T0900"
    text = file.read_text(encoding="utf-8")
    write(write_to, "schedule.csv", (EXAMPLE / "schedule.csv").read_bytes())
    for wrong, said in (
        (text.replace('"per_day": 3', '"per_day": "3"'), "per_day is '3', expected a value such as 3"),
        (text.replace("late_days", "late_day"), "late_days is None"),
        (text.replace("2026-12-18T2359", "2026-12-18"), "deadline is '2026-12-18'"),
        (text.replace('"kernel"', '"colonel"'), "'kernel' is missing"),
        (text[:-5], "round.json: not JSON"),
    ):
        file.write_text(wrong, encoding="utf-8")
        with pytest.raises(ValueError, match=re.escape(said)):
            Round(made.public, made.secret)
    file.write_text(text, encoding="utf-8")
    (made.secret / "labels.npz").rename(tmp_path / "lost.npz")
    with pytest.raises(FileNotFoundError, match=r"labels\.npz"):
        score_all(tmp_path / "s", Round(made.public, made.secret))
    with pytest.raises(ValueError, match="no submission, expected folders such as TEAM/"):
        score_all(tmp_path / "r", made)


def test_what_could_not_be_judged_is_judged_again(around, tmp_path, monkeypatch):
    write(tmp_path / "a-team/2026-12-01T0900", "schedule.csv", (EXAMPLE / "schedule.csv").read_bytes())
    (tmp_path / "b-team.zip").write_bytes(b"")
    with monkeypatch.context() as patch:
        patch.setattr(type(around), "score", lambda *a, **k: 1 / 0)
        entries = score_all(tmp_path, around)
    assert [e.result.state for e in entries] == ["not judged", "refused"]
    assert "b-team.zip" in entries[1].result.reason
    assert score_all(tmp_path, around, entries)[0].result.state == "scored"


def test_the_page_and_the_table_say_the_same_and_run_nothing(around, tmp_path):
    bad = entry("b-team", "2026-13-45T9999", state="refused", reason="=1+1 <script>alert(1)</script>\n  secret = x[i];")
    found = [entry("a-team", "2026-12-01T0900", 400), entry("a-team", "2026-12-02T0900", 350), bad]
    html = page.as_html(standings(found), around.terms)
    assert "<script>alert" not in html
    assert "&lt;script&gt;" in html
    assert "After the submission of 2026-12-02T0900." in html
    assert "secret" not in html + page.as_csv(standings(found)), "a team's source is not for others"
    assert "http" not in html.replace("Content-Security-Policy", "").replace("http-equiv", "")
    table = list(csv.DictReader(io.StringIO(page.as_csv(standings(found)))))
    assert [(r["place"], r["team"], r["cost"]) for r in table] == [("1", "a-team", "350"), ("", "b-team", "")]
    assert table[1]["remarks"].startswith("'=")


def test_a_student_and_staff_by_command(tmp_path):
    def run(*words, status=0):
        done = CliRunner().invoke(project, [str(word) for word in words])
        assert done.exit_code == status, done.output
        return done.output

    run("make", tmp_path / "r", "--practice")
    said = run("check", EXAMPLE / "schedule.csv", "--round", tmp_path / "r/public")
    assert "756 ticks, nothing is below 301" in said
    write(tmp_path / "bad", "schedule.csv", b"=1\n")
    run("check", tmp_path / "bad/schedule.csv", status=1)
    write(tmp_path / "s/a-team/2026-12-01T0900", "schedule.csv", (EXAMPLE / "schedule.csv").read_bytes())
    run("score", tmp_path / "s", tmp_path / "r", "--unsafe")
    (tmp_path / "r/secret/disqualified.json").write_text(json.dumps({"b-team": "why"}))
    run("board", tmp_path / "r", tmp_path / "board")
    assert "a-team" in (tmp_path / "board/board.html").read_text(encoding="utf-8")
