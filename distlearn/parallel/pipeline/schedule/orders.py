"""The schedules of the literature, as generators: what one rank does, in order.

With p ranks and m micro-batches, each of cost f forward and b backward on every rank:

=================  ==================  ===========================  ==========================================
schedule           bubble (share)      activations in flight        weights
=================  ==================  ===========================  ==========================================
`gpipe`            (p-1) / (m+p-1)     m                            updated once, after all micro-batches
`one_f_one_b`      (p-1) / (m+p-1)     min(p - stage, m)            updated once
`interleaved`      (p-1) / (v m+p-1)   about p (1 + (p-1) / (p v))  updated once; v stages a rank
`pipedream`        falls to 0          p - stage                    updated after every B, stale by p - stage - 1
=================  ==================  ===========================  ==========================================
"""

from __future__ import annotations

from collections.abc import Iterator

from .action import Action


def _check(name: str, rank: int, n_ranks: int, n_microbatches: int, what: str = "stage") -> None:
    """Raise unless the numbers make sense."""
    if not 0 <= rank < n_ranks:
        raise ValueError(f"{name}: {what} is {rank!r}, expected 0 to {n_ranks - 1} (there are {n_ranks})")
    if n_microbatches < 1:
        raise ValueError(f"{name}: n_microbatches is {n_microbatches!r}, expected 1 or more")


def gpipe(stage: int, n_stages: int, n_microbatches: int) -> Iterator[Action]:
    """All micro-batches forward, then all of them backward.

    Simple, and memory grows with the number of micro-batches: all of their activations are in flight at once. Backward
    takes them in the same order as forward (the paper's figure in the opposite one, which costs the same).

    Parameters
    ----------
    stage : int
        Of which rank, from 0.
    n_stages, n_microbatches : int

    References
    ----------
    Y. Huang et al. (2019), GPipe: efficient training of giant neural networks using pipeline parallelism, NeurIPS,
    figure 2(c).

    Examples
    --------
    >>> from distlearn.parallel.pipeline.schedule import format
    >>> format(gpipe(0, 2, 3))
    'F0 F1 F2 B0 B1 B2'
    """
    _check("gpipe", stage, n_stages, n_microbatches)
    for kind in ("F", "B"):
        for i in range(n_microbatches):
            yield Action(kind, i)


def one_f_one_b(stage: int, n_stages: int, n_microbatches: int) -> Iterator[Action]:
    """Fill the pipeline, then one forward, one backward: as soon as a gradient can be there, its activations go.

    The bubble is GPipe's; at most p - stage micro-batches are in flight, however many there are.

    Parameters
    ----------
    stage : int
        Of which rank, from 0.
    n_stages, n_microbatches : int

    References
    ----------
    D. Narayanan et al. (2019), PipeDream: generalized pipeline parallelism for DNN training, SOSP, section 3.2. With a
    flush: D. Narayanan et al. (2021), Efficient large-scale language model training on GPU clusters using Megatron-LM,
    SC, section 2.2.1.

    Examples
    --------
    >>> from distlearn.parallel.pipeline.schedule import format
    >>> for stage in range(2):
    ...     print(format(one_f_one_b(stage, 2, 3)))
    F0 F1 B0 F2 B1 B2
    F0 B0 F1 B1 F2 B2
    """
    _check("one_f_one_b", stage, n_stages, n_microbatches)
    ahead = min(n_stages - stage - 1, n_microbatches)
    for i in range(ahead):
        yield Action("F", i)
    for i in range(n_microbatches):
        if i + ahead < n_microbatches:
            yield Action("F", i + ahead)
        yield Action("B", i)


def interleaved(rank: int, n_ranks: int, n_microbatches: int, n_virtual: int = 2) -> Iterator[Action]:
    """1F1B with several stages a rank: the pipeline fills v times as fast, for v times the messages.

    Rank r has the stages r, r + p, r + 2 p, ...; micro-batches go round in groups of p.

    Parameters
    ----------
    rank : int
    n_ranks, n_microbatches : int
        The number of micro-batches is a multiple of the number of ranks: the last group would leave ranks idle
        or, worse, waiting for each other.
    n_virtual : int
        v, stages of a rank.

    References
    ----------
    D. Narayanan et al. (2021), Efficient large-scale language model training on GPU clusters using Megatron-LM, SC,
    section 2.2.2.

    Examples
    --------
    >>> from distlearn.parallel.pipeline.schedule import format
    >>> for rank in range(2):
    ...     print(format(interleaved(rank, 2, 2)))
    0F0 0F1 2F0 2F1 2B0 2B1 0B0 0B1
    1F0 1F1 3F0 3B0 3F1 3B1 1B0 1B1
    """
    _check("interleaved", rank, n_ranks, n_microbatches, "rank")
    if n_virtual < 1:
        raise ValueError(f"interleaved: n_virtual is {n_virtual!r}, expected 1 or more stages for each rank")
    if n_microbatches % n_ranks:
        raise ValueError(
            f"interleaved: n_microbatches is {n_microbatches}, expected a multiple of the {n_ranks} ranks: "
            "micro-batches go round in groups of that many"
        )
    groups = range(0, n_microbatches, n_ranks)
    order = [(chunk, first + i) for first in groups for chunk in range(n_virtual) for i in range(n_ranks)]
    ahead = min(2 * (n_ranks - rank - 1) + (n_virtual - 1) * n_ranks, len(order))
    forward = [Action("F", i, rank + chunk * n_ranks) for chunk, i in order]
    backward = [Action("B", i, rank + (n_virtual - 1 - chunk) * n_ranks) for chunk, i in order]
    yield from forward[:ahead]
    for i, action in enumerate(backward):
        yield from forward[ahead + i : ahead + i + 1]
        yield action


def pipedream(stage: int, n_stages: int, n_microbatches: int) -> Iterator[Action]:
    """1F1B without a flush: every B also updates the stage's weights, so that the pipeline never runs empty.

    The order is that of `one_f_one_b`; what differs is what B means, and that a micro-batch is a mini-batch of its own.
    Run it with `PipeDream`, which stashes the weights that each mini-batch went forward with.

    Parameters
    ----------
    stage : int
        Of which rank, from 0.
    n_stages, n_microbatches : int

    References
    ----------
    D. Narayanan et al. (2019), PipeDream: generalized pipeline parallelism for DNN training, SOSP, sections 3.2 and
    3.3.
    """
    yield from one_f_one_b(stage, n_stages, n_microbatches)


SCHEDULES = {"gpipe": gpipe, "1f1b": one_f_one_b, "interleaved": interleaved, "pipedream": pipedream}
"""Schedules by name."""
