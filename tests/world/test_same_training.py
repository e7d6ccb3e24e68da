"""One training program, the same numbers in every world: simulated ranks, ranks under mpiexec, engines."""

import os

import numpy as np
import pytest

from distlearn.data import available
from distlearn.sim import SimWorld
from distlearn.train import Settings, train
from distlearn.world import EngineWorld, launch

from ..parallel.programs import assert_same_params

FAST = Settings(data="digits", hidden=(17, 12), dtype="float64", epochs=2, batch_size=97, n_train=350, cap_bytes=3000)
UNEVEN = FAST.but(batch_size=50, n_train=333, activation="sigmoid", optimizer="sgd", overlap=False)
SETTINGS = {
    "overlapped": FAST,
    "uneven": UNEVEN,
    "accumulated": FAST.but(accumulate=3, check_every=2),
    "naive": FAST.but(strategy="data_naive"),
    "tensor": FAST.but(strategy="tensor"),
    "averaged": UNEVEN.but(strategy="local_sgd", average_every=1),
    "pipeline": UNEVEN.but(strategy="pipeline", n_microbatches=3, activation="tanh", hidden=(17, 12, 9)),
    **{f"zero{stage}": FAST.but(strategy=f"zero{stage}", optimizer="adam", lr=0.01) for stage in (1, 2, 3)},
}
"""Every one of them gives on any number of ranks what serial training gives."""


@pytest.fixture(scope="module")
def serial():
    serial = {name: settings.but(strategy="serial") for name, settings in SETTINGS.items()}
    return {name: SimWorld(1).run(train, settings)[0] for name, settings in serial.items()}


@pytest.mark.mpi
@pytest.mark.parametrize("size", [2, 3])
def test_under_mpiexec(serial, size, tmp_path):
    done = launch(size, ["python", "-m", "tests.world.train_rank", tmp_path], timeout=100, capture=True)
    assert done.returncode == 0, done.stderr
    for name, want in serial.items():
        with np.load(tmp_path / f"{name}.npz") as got:
            assert_same_params(dict(got), want.params, what=f"{name}, {size} ranks")


@pytest.fixture(scope="module")
def engines():
    with EngineWorld(4, progress=False, timeout=120) as world:
        yield world


@pytest.mark.nightly
@pytest.mark.engines
def test_on_engines(serial, engines):
    for name, want in serial.items():
        results = engines.run(train, SETTINGS[name])
        assert_same_params(results[0].params, want.params, what=name)
        for result in results:
            np.testing.assert_allclose(result.history.losses, want.history.losses, atol=1e-12)


@pytest.mark.nightly
@pytest.mark.engines
@pytest.mark.skipif(
    not os.environ.get("DISTLEARN_DATA") or available()[1].origin == "download",
    reason="needs MNIST: set DISTLEARN_DATA to a folder that holds it",
)
def test_mnist_reaches_95_percent_on_four_engines(engines):
    results = engines.run(
        train, Settings(data="mnist", hidden=(256, 128), lr=0.1, epochs=12, batch_size=128, evaluate_every=12)
    )
    assert results[0].history.last.test_accuracy >= 0.95
    assert {span.rank for span in engines.trace} == {0, 1, 2, 3}
    assert {"compute", "comm"} <= {span.lane for span in engines.trace}
