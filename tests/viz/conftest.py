import pytest

import distlearn as dl
from distlearn.train import Settings, train

SETTINGS = Settings(hidden=(48, 32), epochs=3, n_train=512, batch_size=64, cap_bytes=2048, dtype="float64")
NETWORK, COMPUTE = dl.Network(alpha=5e-6, beta=1e9), dl.Roofline(peak=5e9)


@pytest.fixture(scope="session")
def worlds():
    """Worlds that have trained on the digits, by number of ranks, and what rank 0 brought back."""
    made = {}
    for size in (1, 2, 4):
        world = dl.SimWorld(size, NETWORK, COMPUTE, jitter=0.1, seed=1)
        made[size] = (world, world.run(train, SETTINGS)[0])
    return made


@pytest.fixture(scope="session")
def histories(worlds):
    return {f"{size} ranks": result.history for size, (_, result) in worlds.items()}


@pytest.fixture(scope="session")
def trace(worlds):
    """Of four ranks."""
    return worlds[4][0].trace


@pytest.fixture
def ax():
    """Axes that pyplot does not know."""
    from matplotlib.figure import Figure

    return Figure().subplots()
