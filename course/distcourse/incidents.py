"""What interrupted published training runs, and replays of such runs with checkpoints: 54 days in a millisecond."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

DAY = 86_400.0


@dataclass(frozen=True)
class Incidents:
    """How often a training run was interrupted, and by what."""

    gpus: int
    mtbf: float  # mean time between interruptions of the whole machine [s]
    days: float  # length of the run, or of the time that was observed
    source: str
    causes: dict[str, int] = field(default_factory=dict)  # interruptions by cause, as printed in the source

    def on(self, gpus: int) -> Incidents:
        """Rescale the record to another number of GPUs at the same failure rate per GPU."""
        return replace(self, gpus=gpus, mtbf=self.mtbf * self.gpus / gpus, causes={})

    def draw(self, rng) -> np.ndarray:
        """Draw when the run is interrupted, in order [s]; as often as it was, if the causes are known."""
        n = sum(self.causes.values()) or rng.poisson(self.days * DAY / self.mtbf)
        return np.sort(rng.uniform(0, self.days * DAY, n))


_LLAMA_3 = {
    "Faulty GPU": 148, "GPU HBM3 Memory": 72, "Software Bug": 54, "Network Switch/Cable": 35, "Host Maintenance": 32,
    "GPU SRAM Memory": 19, "GPU System Processor": 17, "NIC": 7, "NCCL Watchdog Timeouts": 7,
    "Silent Data Corruption": 6, "GPU Thermal Interface + Sensor": 6, "SSD": 3, "Power Supply": 3,
    "Server Chassis": 2, "IO Expansion Board": 2, "Dependency": 2, "CPU": 2, "System Memory": 2,
}  # fmt: skip

INCIDENTS = {
    "llama-3": Incidents(
        16_384,
        54 * DAY / sum(_LLAMA_3.values()),
        54,
        "Llama team (2024), The Llama 3 herd of models, arXiv:2407.21783, table 5: unexpected interruptions",
        _LLAMA_3,
    ),
    "rsc-1": Incidents(
        16_384,
        1000 / 6.5 * DAY / (16_384 // 8),
        334,
        "A. Kokolis et al. (2025), Revisiting reliability in large-scale machine learning research clusters, HPCA, "
        "arXiv:2410.21680: 6.50 failures in 1,000 node-days, 11 months",
    ),
    "98k": Incidents(98_000, 18 * 60.0, 30, "Fault tolerant HSDP (2026), arXiv:2602.00277: 18 minutes at 98,000 GPUs"),
}
"""Published records, by name."""


class Replay(NamedTuple):
    """Where the time of a replayed run went [s]."""

    kept: float  # work that the end of the run still has
    saving: float
    lost: float  # work that an interruption undid, and checkpoints that it cut off
    restarting: float

    @property
    def effective(self) -> float:
        """Share of the time that was work, and kept."""
        return self.kept / sum(self)


def replay(record: Incidents, *, interval: float, cost: float, restart: float, seed: int = 0) -> Replay:
    """Replay a run: work, save, lose what was not saved when something fails, restart, go on.

    Parameters
    ----------
    interval, cost, restart : float
        Work between two checkpoints, how long a checkpoint and a restart take [s]. An interruption during a restart
        begins it anew.

    Examples
    --------
    >>> replay(INCIDENTS["llama-3"], interval=260.0, cost=3.0, restart=600.0).effective > 0.9    # as the paper reports
    True
    """
    times = record.draw(np.random.default_rng(seed))
    end, cycle = record.days * DAY, interval + cost
    began = np.concatenate([[0.0], times])  # of each stretch between two interruptions: a restart, then cycles
    stretch = np.diff(np.append(began, end))
    restarting = np.minimum(stretch, np.where(began > 0, restart, 0.0))
    running = stretch - restarting
    cycles = np.floor(running / cycle)
    undone = running - cycles * cycle
    undone[-1] = 0.0  # nothing fails at the end
    saving, lost = float(cycles.sum() * cost), float(undone.sum())
    kept = float(running.sum()) - saving - lost
    return Replay(kept, saving, lost, float(restarting.sum()))
