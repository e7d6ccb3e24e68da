"""Time lines of one training step, one below the other on the same axis: how much communication is exposed."""

from __future__ import annotations

from .look import styled, write_title
from .timeline import plot_timeline


@styled
def plot_overlap(steps, *, axes=None, title=None):
    """Draw steps one below the other, each with its exposed communication.

    Parameters
    ----------
    steps : dict of str to Overlap
        What `experiments.data_parallel.backward_step` returns, by name.
    axes : sequence of Axes, optional
    title : str, optional

    Returns
    -------
    axes : tuple of Axes
    """
    if axes is None:
        from matplotlib import pyplot as plt  # here, not above: pyplot chooses a backend when it is imported

        _, axes = plt.subplots(len(steps), 1, figsize=(8.4, 0.4 + 2.1 * len(steps)), squeeze=False)
        axes = list(axes[:, 0])
    longest = max(step.seconds for step in steps.values())
    for i, (ax, (name, step)) in enumerate(zip(axes, steps.items(), strict=True)):
        told = f"{name}: {1e3 * step.exposed:.2f} of {1e3 * step.communicating:.2f} ms of communication exposed"
        plot_timeline(step.trace, start=0.0, end=longest, ax=ax, title=told, legend=i == 0)
        if i < len(steps) - 1:
            ax.set_xlabel("")
    told = ", ".join(f"{name} {1e3 * step.seconds:.2f} ms" for name, step in steps.items())
    write_title(axes[0].figure, f"A step: {told}", title)
    return tuple(axes)
