"""Naive data parallelism, and micro-batches whose gradients add up: serial training's numbers, other costs."""

from functools import partial

import numpy as np
import pytest

from distlearn.comm import Network
from distlearn.data import Batch
from distlearn.nn import MLP
from distlearn.parallel import DataParallel, NaiveDataParallel, record_memory
from distlearn.sim import Roofline, SimWorld

from .programs import messages_of_steps, model_of, parts, run

# -- naive -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [2, 3, 5])
def test_naive_sends_one_all_reduce_per_parameter_and_one_for_the_loss(size):
    params = model_of("plain").params
    values = sum(p.size for p in params) + 2  # loss and rows
    sent = messages_of_steps(size, NaiveDataParallel, 2)
    assert tuple(sent) == (2 * (len(params) + 1) * 2 * (size - 1), 2 * 2 * (size - 1) * 8 * values)


# -- accumulation ----------------------------------------------------------------------------------------------------


def test_activations_take_the_memory_of_one_micro_batch():
    """What a forward pass saved is gone before the next begins."""

    def saved(accumulate):
        record = record_memory(
            lambda comm, model: DataParallel(comm, *parts(model), accumulate=accumulate),
            MLP((64, 64, 64, 10), seed=0),
            Batch(np.ones((48, 64), "f4"), np.zeros(48, int), 48),
        )
        return max(s.total for s in record[0] if "ward[" in s.at) - record[0][0].total

    assert 0 < saved(4) <= saved(1) / 4 * 1.01


def test_messages_are_those_of_one_batch_and_start_in_the_last_piece():
    def trace(accumulate):
        world = SimWorld(2, Network(1e-5, 1e9), Roofline(1e9))
        world.run(lambda comm: run(comm, partial(DataParallel, accumulate=accumulate, cap_bytes=300), steps=1).losses)
        return world.trace

    one, four = trace(1), trace(4)
    reduces = four.select(rank=0, name="all_reduce")
    assert [s.nbytes for s in reduces] == [s.nbytes for s in one.select(rank=0, name="all_reduce")]
    last_forward = max(s.end for s in four.select(rank=0, name="forward"))
    assert len(four.select(rank=0, name="forward")) == 4 * len(one.select(rank=0, name="forward"))
    assert min(s.start for s in reduces) > last_forward
