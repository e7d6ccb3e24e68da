import itertools
import subprocess
import sys

import matplotlib as mpl
import numpy as np
import pytest
from grey import SAME_GREY

from distlearn import viz

# G. M. Machado, M. M. Oliveira, L. A. F. Fernandes (2009), A physiologically-based model for simulation of color vision
# deficiency, IEEE TVCG 15(6), table 1, severity 1.0; on linear RGB.
DEFICIENCIES = {
    "none": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)


def lab(linear):
    """CIE L*a*b* of a linear RGB colour."""
    x, y, z = np.cbrt(np.maximum(XYZ @ linear / [0.95047, 1.0, 1.08883], 0.0089))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def linear(color):
    rgb = np.array(mpl.colors.to_rgb(color))
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


def test_colours_differ_in_greyscale():
    steps = np.diff(sorted(map(viz.lightness, viz.COLORS)))
    assert steps.min() >= SAME_GREY


def test_the_first_three_colours_differ_most_in_greyscale():
    assert np.diff(sorted(map(viz.lightness, viz.COLORS[:3]))).min() >= 20


@pytest.mark.parametrize("deficiency", DEFICIENCIES)
def test_colours_differ_for_the_colour_blind(deficiency):
    seen = [lab(np.clip(np.array(DEFICIENCIES[deficiency]) @ linear(c), 0, 1)) for c in viz.COLORS]
    assert min(np.linalg.norm(a - b) for a, b in itertools.combinations(seen, 2)) >= 15


def test_every_colour_has_its_own_dash_and_marker():
    assert len(set(map(str, viz.LINES))) == len(set(viz.MARKERS)) == len(viz.COLORS)


@pytest.mark.parametrize(("color", "expected"), [("black", 0), ("white", 100), ("#777777", 50), ("red", 53.2)])
def test_lightness(color, expected):
    assert viz.lightness(color) == pytest.approx(expected, abs=0.3)


def test_style_ends_with_its_block():
    before = dict(mpl.rcParams)
    with viz.style():
        assert mpl.rcParams["axes.spines.top"] is False
        assert mpl.rcParams["figure.constrained_layout.use"] is True
    assert dict(mpl.rcParams) == before


def test_use_style_stays():
    with mpl.rc_context():
        viz.use_style()
        assert [e["color"] for e in mpl.rcParams["axes.prop_cycle"]] == list(viz.COLORS)


def test_importing_does_not_load_matplotlib():
    code = "import sys, distlearn.viz; assert 'matplotlib' not in sys.modules, 'loaded'; distlearn.viz.table"
    subprocess.run([sys.executable, "-c", f"{code}; assert 'matplotlib' not in sys.modules"], check=True, timeout=60)


def test_a_notebook_shows_every_figure(monkeypatch):
    """Its backend is loaded by the first one, and its settings must outlive our style."""
    import nbformat
    from nbclient import NotebookClient

    monkeypatch.delenv("MPLBACKEND", raising=False)
    cells = [
        "import distlearn as dl\nw = dl.SimWorld(2, dl.Network(1e-6, 1e9))\nw.run(lambda comm: comm.barrier())",
        "dl.viz.plot_timeline(w.trace)",
        "dl.viz.plot_timeline(w.trace)",
        "import matplotlib.pyplot as plt\nplt.plot([1])",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    NotebookClient(notebook, kernel_name="python3", timeout=120).execute()
    shown = [sum("image/png" in output.get("data", ()) for output in cell.outputs) for cell in notebook.cells]
    assert shown == [0, 1, 1, 1]
