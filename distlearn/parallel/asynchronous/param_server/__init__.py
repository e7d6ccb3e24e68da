"""Parameter servers: workers push gradients, a server applies them, a policy says who waits for whom.

One SPMD function; rank 0 is the server, the others are workers; the same numbers on simulated ranks every time, and
the same code under MPI and on engines::

    from distlearn import SimWorld, data, nn, optim
    from distlearn.parallel.asynchronous.param_server import ParameterServer, Speeds, inverse, ssp

    def program(comm, dataset):
        model = nn.MLP((64, 32, 10), seed=0)
        speeds = Speeds(comm.size - 1, seconds=1.0, slow={0: 4.0})     # worker 0 takes 4 times as long
        server = ParameterServer(
            comm, model, nn.SoftmaxCrossEntropy(), optim.SGD(), 0.1,
            policy=ssp(4),              # or bsp(), asp(), backup(0.75), softsync(2), or a class of your own: policy.py
            rate=inverse,               # a gradient that is tau versions old counts 1 / tau
            pace=speeds, every=20,      # how long steps take; a point of the curve every 20 updates
        )
        return server.train(dataset, batch_size=32 * server.size, steps=100)

    run = SimWorld(9).run(program, data.load("digits"))[0]                     # a Run on rank 0
    run.staleness.mean(), run.updates, run.dropped, run.throughput             # run.gradients has every single one
    run.curve["version"], run.curve["time"], run.curve["loss"], run.curve["test_accuracy"]

The update that makes version 101 of a gradient computed at version 97 has staleness 100 - 97 = 3. `PolicyState` is the
server's bookkeeping alone, for thought experiments: `PolicyState(ssp(1), 2).arrive(worker, used)` says who is released.
"""

from .policy import (
    ASP,
    BSP,
    RATES,
    SSP,
    Backup,
    PolicyError,
    PolicyState,
    SoftSync,
    asp,
    backup,
    bsp,
    constant,
    inverse,
    softsync,
    ssp,
)  # fmt: skip
from .speeds import Speeds
from .training import GRADIENT, FlatModel, ParameterServer, Run

__all__ = sorted(name for name, value in globals().items() if callable(value) or name.isupper())
