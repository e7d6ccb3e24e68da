import pytest

from distlearn import viz
from distlearn.cuda import CARDS, Report, Site


def report(name, flops, sectors):
    sites = [Site(1, 1, "read", "x", "global", 4, requests=1, lanes=32, sectors=sectors, ideal_sectors=4)]
    return Report(name, "gcc", (1, 1, 1), (32, 1, 1), sites=sites, flops=flops)


def test_kernels_lie_on_the_roof():
    naive, tiled = report("naive", 64, 4), report("tiled", 1 << 20, 4)
    ax = viz.plot_roofline({"naive": naive, "tiled": tiled}, "H100")
    card = CARDS["H100"]
    points = {line.get_label().split(":")[0]: line.get_xydata()[0] for line in ax.lines if line.get_label()[0] != "_"}
    assert points["naive"] == pytest.approx([0.5, 0.5 * card.bandwidth])
    assert points["tiled"] == pytest.approx([8192, card.peak])
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("arithmetic intensity [flop/byte]", "attainable [flop/s]")


def test_what_cannot_be_drawn():
    with pytest.raises(ValueError, match="'copy' does 0"):
        viz.plot_roofline(report("copy", 0, 4))
    with pytest.raises(ValueError, match="card is 'Voodoo'"):
        viz.plot_roofline(1.0, "Voodoo")


def test_what_caches_can_add_is_drawn_where_it_is_known():
    ax = viz.plot_roofline({"naive": 0.1, "tiled": 1e3}, "A100")
    assert ax.get_legend().get_title().get_text() == "fastest without caches (with every byte from L2)"
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert labels == ["naive: 0.1 flop/byte, 156 Gflop/s (722 Gflop/s)", "tiled: 1,000 flop/byte, 19.5 Tflop/s"]
    assert "L2 7,219 GB/s" in [text.get_text() for text in ax.texts]
    assert "L2" not in " ".join(text.get_text() for text in viz.plot_roofline({"naive": 0.1}, "T4").texts)


def test_measured_speeds_lie_below_the_roof():
    ax = viz.plot_roofline({"dot": 0.25, "square": 100.0}, "T4", speeds={"dot": 1e9})
    at = [tuple(line.get_xydata()[0]) for line in ax.lines if line.get_marker() == "o"]
    assert at == [(0.25, 0.25 * CARDS["T4"].bandwidth), (0.25, 1e9)]
    assert ax.get_ylim()[0] < 1e9
    assert ax.get_legend().get_texts()[0].get_text() == "dot: 0.25 flop/byte, 80 Gflop/s, measured 1 Gflop/s"
    with pytest.raises(ValueError, match="speeds has 'sum', expected names of kernels: dot"):
        viz.plot_roofline({"dot": 0.25}, "T4", speeds={"sum": 1e9})
