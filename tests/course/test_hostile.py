"""Hostile submissions gain nothing and harm nothing; honest ones beside them keep their points."""

import hashlib
import json
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace

import nbformat
import psutil
import pytest
from distcourse.author import sandbox
from distcourse.author.source import BEGIN_HIDDEN, END_HIDDEN, Source

import distlearn

from . import grading, hostile
from .conftest import COURSE, LABS
from .submissions import sliced, solved

pytestmark = [pytest.mark.notebook, pytest.mark.timeout(1500)]
PER_COMMIT = ()
"""tests/distcourse/test_sandbox.py and test_odd_submissions.py ask with every commit what is most of this."""

if sandbox.available():
    pytest.skip(f"no sandbox: {sandbox.available()}", allow_module_level=True)

LIMITS = "\nc.Execute.timeout = c.ExecuteAll.least = 30\nc.ExecuteAll.iopub_timeout = 2\nc.ExecuteAll.restarts = 1\n"
LIMITS += "c.ExecuteAll.most_stretch = 1\n"
LIMITS += (
    "c.ExecuteAll.most_restarts = 2\nc.ExecuteAll.grace = 2\nc.ExecuteAll.memory = 2**30\nc.ExecuteAll.budget = 120\n"
)
MACHINE = Path("/proc/sys/kernel/core_pattern")
"""A setting of the machine, which its administrator may change."""
SECRET = "the-secret-of-" + "another-student"


def contents(*folders):
    """A digest of every file."""
    return {
        str(path): hashlib.sha256(path.read_bytes()).hexdigest()
        for folder in folders
        for path in Path(folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


@pytest.fixture(scope="module")
def graded(lab, tmp_path_factory, jupyter_home):
    """Grade every kind that the lab gets, between two honest students, with a secret in the grader's environment."""
    root = tmp_path_factory.mktemp(lab)
    course = grading.make_course(root, COURSE, lab)
    with (course / grading.CONFIG).open("a", encoding="utf-8") as file:
        file.write(LIMITS)
    spoils = root / "spoils"
    spoils.mkdir()
    (spoils / "kept").write_text(SECRET, encoding="utf-8")
    library = Path(distlearn.__file__).parent
    released = grading.generate(course, lab)
    (source,) = (course / "source" / lab).glob("*.ipynb")
    honest = sliced(solved(released, nbformat.read(source, as_version=4)))
    honest.cells.append(nbformat.v4.new_markdown_cell(SECRET))
    places = {"SPOILS": str(spoils), "COURSE": str(course), "LIBRARY": str(library), "SECRET": SECRET}
    kinds = hostile.kinds_of(lab, LABS)
    names = {f"h{i:02}": kind for i, kind in enumerate(kinds)}
    grading.submit(course, lab, "before", honest)
    grading.submit(course, lab, "zafter", honest)
    for name, kind in names.items():
        grading.submit(course, lab, name, hostile.submission(kind, sliced(released), places))
    watched = [spoils, course / "source", course / "submitted", root / "labs"]
    before = contents(*watched)
    machine = MACHINE.read_text(encoding="ascii")
    found = SimpleNamespace()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PLANTED", SECRET)
        found.scores = grading.grade_all(course, lab, ["before", *names, "zafter"])
    assert MACHINE.read_text(encoding="ascii") == machine
    found.names, found.course, found.lab = names, course, lab
    found.changes = dict(set(contents(*watched).items()) ^ set(before.items()))
    found.spoiled = [p for p in library.rglob("*.py") if "\nspoiled" in p.read_text(encoding="utf-8")]
    found.source = Source(source)
    return found


class Reader(HTMLParser):
    """Finds what a page would run of a submission."""

    def __init__(self):
        super().__init__()
        self.active, self._script = [], False

    def handle_starttag(self, tag, attrs):
        """Look at one element."""
        self._script = tag == "script"
        self.active += [(tag, k, v) for k, v in attrs if v and "HOSTILE" in v and (k[:2] == "on" or "script:" in v)]

    def handle_endtag(self, tag):
        """Leave an element."""
        self._script = False

    def handle_data(self, data):
        """Look at the text of an element."""
        if self._script and "HOSTILE" in data:
            self.active.append(("script", data))


def page_of(graded, student):
    """The autograded notebook."""
    (path,) = (graded.course / "autograded" / student / graded.lab).glob("*.ipynb")
    return path.read_text(encoding="utf-8")


def test_no_hostile_submission_gains_a_point(graded):
    gained = {
        (graded.names[name], check): score["score"]
        for name, scores in graded.scores.items()
        if name in graded.names
        for check, score in scores.items()
        if check.startswith("check_") and score["score"]
    }
    assert not gained


def test_honest_submissions_beside_them_keep_their_points(graded):
    for name in ("before", "zafter"):
        lost = {n: s for n, s in graded.scores[name].items() if n.startswith("check_") and s["score"] < s["max"]}
        assert not lost, name


def test_nothing_outside_changed(graded):
    assert not graded.changes
    assert not graded.spoiled


def test_nothing_was_read(graded):
    hidden = [
        line.strip()
        for cell in graded.source.code
        for line in cell.region(BEGIN_HIDDEN, END_HIDDEN).splitlines()
        if len(line.strip()) > 30
    ]
    assert hidden
    for name, kind in graded.names.items():
        outputs = json.dumps([cell.get("outputs") for cell in json.loads(page_of(graded, name))["cells"]])
        assert SECRET not in outputs, kind
        assert "REACHED" not in outputs, kind
        assert not [line for line in hidden if json.dumps(line)[1:-1] in outputs], kind


def test_no_process_is_left(graded):
    left = [p for p in psutil.process_iter(["cmdline"]) if "90909" in (p.info["cmdline"] or ())]
    assert not left


def test_pages_carry_no_script_and_no_path(graded):
    for name, kind in graded.names.items():
        page = grading.feedback(graded.course, graded.lab, name)
        reader = Reader()
        reader.feed(page)
        assert not reader.active, kind
        if kind in hostile.MADE:
            assert str(graded.course) not in page
            assert str(Path(distlearn.__file__).parent) not in page


def test_each_kind_goes_to_a_lab():
    assert {kind for lab in LABS for kind in hostile.kinds_of(lab, LABS)} == set(hostile.KINDS)
