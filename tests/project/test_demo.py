"""The fourteen invented submissions: what each is worth, on every machine; the same page every time."""

import pytest
from distcourse.author import sandbox
from distcourse.project import board, page

from .submissions import demo

EXPECTED = """
classifier 1 basalt 30 scored
classifier 2 amber-otters 36 scored
classifier - copper-finches - wrong
classifier - delta-llamas - refused
classifier - ember-owls - impossible
schedule 1 copper-finches 431 scored
schedule 2 amber-otters 436 scored
schedule 3 beat-this 454 scored
schedule - basalt - wrong
kernel 1 basalt 1995 scored
kernel 2 beat-this 2883 scored
kernel 3 amber-otters 94409 scored
kernel - copper-finches - refused
kernel - delta-llamas - wrong
kernel - ember-owls - refused
"""


@pytest.mark.nightly
@pytest.mark.skipif(bool(sandbox.available()), reason=sandbox.available() or "a sandbox")
def test_the_demo_is_the_same_everywhere(around, tmp_path):
    rows = demo.submissions(around)
    assert len(rows) == 14
    demo.write(rows, tmp_path / "submissions")
    entries = board.library_entries(around) + board.score_all(tmp_path / "submissions", around)
    lines = [line for lines in board.standings(entries).values() for line in lines]
    found = [f"{s.track} {s.place or '-'} {s.team} {s.cost or '-'} {s.state}" for s in lines]
    assert found == EXPECTED.strip().split("\n")
    for name in ("one", "two"):
        page.write_board(entries, around.terms, tmp_path / name)
    for name in ("board.html", "board.csv"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
