"""The numbers of course/accessibility.md are those of the palette and the labs."""

import re

from distcourse.author import Source, source_notebooks
from matplotlib.colors import to_rgb

from distlearn.viz import COLORS, lightness
from distlearn.viz.look import INK

from .conftest import COURSE

TEXT = (COURSE / "accessibility.md").read_text(encoding="utf-8")


def contrast_to_white(colour) -> float:
    """WCAG 2.2: the ratio of relative luminances."""
    linear = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in to_rgb(colour)]
    return 1.05 / (sum(w * v for w, v in zip((0.2126, 0.7152, 0.0722), linear, strict=True)) + 0.05)


def test_the_palette_has_the_contrast_that_is_stated():
    rows = re.findall(r"^\| (#\w{6}) \| ([\d.]+) \| (\d+) \| (.+) \|$", TEXT, re.MULTILINE)
    assert [row[0] for row in rows] == list(COLORS)
    for colour, ratio, light, enough in rows:
        assert float(ratio) == round(contrast_to_white(colour), 1)
        assert int(light) == round(lightness(colour))
        assert (enough == "yes") == (contrast_to_white(colour) >= 3)
    assert f"have {contrast_to_white(INK):.1f} : 1" in TEXT


def test_the_figures_are_counted():
    calls = [
        (len(c.calls("lab.show")), len(c.calls("lab.film"))) for p in source_notebooks(COURSE) for c in Source(p).code
    ]
    figures, films = map(sum, zip(*calls, strict=True))
    assert f"{figures} figures and {films} films in {len(source_notebooks(COURSE))} labs" in TEXT
