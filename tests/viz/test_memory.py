"""Memory over time: bands add up to what a rank holds, and what was measured lies on their edge."""

import numpy as np
import pytest

from distlearn import viz
from distlearn.data import Batch
from distlearn.nn import MLP, LeNet, SoftmaxCrossEntropy
from distlearn.optim import Adam, Optimizer
from distlearn.parallel import Serial, ZeRO, record_memory
from distlearn.sim import MetaArray

META = Batch(MetaArray((16, 784)), MetaArray(16, np.int64), 16)
REAL = Batch(np.ones((16, 784), "f4"), np.arange(16) % 10, 16)


def serial(comm, model):
    return Serial(comm, model, SoftmaxCrossEntropy(), Optimizer(model.params, Adam(), 0.1))


def zero(comm, model):
    return ZeRO(comm, model, SoftmaxCrossEntropy(), Optimizer(model.params, Adam(), 0.1), stage=3)


def test_measured_points_lie_on_the_bands():
    record, measured = (record_memory(serial, LeNet(), batch) for batch in (META, REAL))
    ax = viz.plot_memory(record, measured=measured)
    top = [band.get_paths()[0].get_extents().y1 for band in ax.collections]
    assert max(top) == pytest.approx(max(ax.lines[0].get_ydata()), rel=0.02)  # index tables have no owner
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert labels[0] == "measured"
    assert "saved by 11 layers" in labels
    assert labels[-1] == "parameters"


def test_on_a_network_the_axis_is_time():
    record = record_memory(zero, MLP((784, 64, 10)), META, size=2, network="ethernet-10g", compute="V100")
    ax = viz.plot_memory(record, rank=1)
    assert ax.get_xlabel() == "time [µs]"
    assert ax.get_ylabel().startswith("memory of rank 1 [")
    assert {"saved by 0.Linear", "communication"} <= {text.get_text() for text in ax.get_legend().get_texts()}
