import re
import runpy
from pathlib import Path

import pytest
from matplotlib import pyplot as plt
from PIL import Image

from distlearn import viz

DRAW = runpy.run_path(str(Path(__file__).parents[2] / "course" / "images" / "draw.py"))


def test_a_png_with_its_description(trace, tmp_path):
    path = viz.save(viz.plot_timeline(trace), tmp_path / "line.png", alt="Four ranks wait – and wait.")
    assert path == tmp_path / "line.png"
    with Image.open(path) as image:
        assert image.format == "PNG"
        assert image.text["Description"] == "Four ranks wait – and wait."
    assert list(tmp_path.iterdir()) == [path], "nothing else was written"


def test_an_svg_has_its_description_as_title_and_is_the_same_each_time(histories, tmp_path):
    files = [
        viz.save(viz.plot_history(histories), str(tmp_path / f"{i}.svg")).read_text(encoding="utf-8") for i in "ab"
    ]
    assert files[0] == files[1]
    (title,) = re.findall("<title>(.*)</title>", files[0])
    assert "training loss against epoch (1 ranks, 2 ranks, 4 ranks)" in title


def test_a_failed_drawing_leaves_the_old_file(trace, tmp_path, monkeypatch):
    ax, path = viz.plot_timeline(trace), tmp_path / "a.png"
    path.write_bytes(b"old")
    monkeypatch.setattr(ax.figure, "savefig", lambda *a, **k: (_ for _ in ()).throw(MemoryError("too large")))
    with pytest.raises(MemoryError):
        viz.save(ax, path)
    assert path.read_bytes() == b"old"


@pytest.mark.parametrize(
    ("name", "error", "match"), [("a.jpg", ValueError, "'a.jpg'"), ("no/a.png", FileNotFoundError, "no")]
)
def test_where_a_figure_cannot_go(trace, tmp_path, name, error, match):
    with pytest.raises(error, match=match):
        viz.save(viz.plot_timeline(trace), tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_only_figures_are_saved(tmp_path):
    with pytest.raises(ValueError, match="got a int"):
        viz.save(3, tmp_path / "a.png")
    with pytest.raises(ValueError, match="empty"):
        viz.save((), tmp_path / "a.png")


def test_describe_names_titles_axes_and_curves(trace):
    said = viz.describe(viz.plot_timeline(trace, title="They wait."))
    assert said.startswith("They wait: rank against time [ms] (forward, backward")
    assert viz.describe(viz.plot_speedup([1, 2], [2.0, 1.0], title="T")).startswith("T: speed-up")
    assert viz.describe(plt.figure()) == ""


@pytest.mark.nightly
@pytest.mark.parametrize("draw", ["readme_picture", "ways_picture"])
def test_pictures_of_the_readme_and_the_manual(draw, tmp_path):
    path = DRAW[draw](tmp_path / "picture.png")
    with Image.open(path) as image:
        assert 1150 <= image.width <= 1250
        assert image.text["Description"].startswith(("Left: simulated time lines", "From left to right: a 1F1B"))
    assert path.stat().st_size < 150_000
    assert plt.get_fignums() == []


def test_the_readme_picture_shows_what_it_says():
    slow, fast = (DRAW["one_step"](overlap) for overlap in (False, True))
    assert fast.makespan < 0.8 * slow.makespan
    assert min(s.start for s in slow) == 0
    assert len(slow.select(rank=0, name="update")) == 1, "one step"
    assert all(slow.exposed(r) == pytest.approx(slow.total(rank=r, lane="comm")) for r in slow.ranks)
