"""ipyparallel's controller chooses ports that are free, and opens them later: another program may have one by then."""

import contextlib
import socket

import ipyparallel
import pytest

from distlearn.world import EngineWorld

pytestmark = [pytest.mark.engines, pytest.mark.timeout(120)]
POSITIONS = {"registration": 0, "iopub": 4}
"""Where a service's port is among those for engines (ipyparallel's `IPController.init_hub`)."""


@pytest.mark.parametrize("service", ["registration", pytest.param("iopub", marks=pytest.mark.nightly)])
def test_a_controller_whose_port_is_taken_is_replaced(service, monkeypatch, capsys):
    """The registration's ended the start; that of the outputs lost all of them, 5 s a rank and run."""
    started, begin = [], ipyparallel.Cluster.__init__
    with contextlib.ExitStack() as stack:
        ports = [str(stack.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1]) for _ in range(5)]
        taken = POSITIONS[service]
        free = [socket.create_server(("127.0.0.1", 0)) for _ in range(taken)]
        ports[:taken] = [str(held.getsockname()[1]) for held in free]
        for held in free:
            held.close()

        def start(self, *args, controller_args, **options):
            mine = [] if started else [f"--IPController.engine_ports={','.join(ports)}"]
            started.append(self)
            begin(self, *args, controller_args=controller_args + mine, **options)

        monkeypatch.setattr(ipyparallel.Cluster, "__init__", start)
        with EngineWorld(2, progress=False) as world:
            assert len(started) == 2
            world.run(lambda comm: print("hello"))
    assert capsys.readouterr().out == "[rank 0] hello\n[rank 1] hello\n"
