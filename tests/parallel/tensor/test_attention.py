"""Attention in tensor parallelism: some heads on each rank, equal to the serial layer."""

import numpy as np

from distlearn import nn
from distlearn.parallel import account, parallelize
from distlearn.parallel.tensor import HeadParallelAttention
from distlearn.sim import SimWorld


def test_it_sends_what_it_says():
    shape = (2, 8, 12)

    def program(comm):
        layer = nn.MultiHeadAttention(12, 6, range(4))
        model = parallelize(nn.Sequential(layer), comm)
        y, saved = model.forward(np.zeros(shape, np.float32))
        model.backward(y, saved)
        return type(model.layers[0])

    world = SimWorld(2, collectives="formula")
    assert world.run(program)[0] is HeadParallelAttention
    told = account(nn.Sequential(nn.MultiHeadAttention(12, 6, range(4))), shape, 2)
    assert told.rows[0].how == "heads over ranks, outputs summed"
    assert [t.nbytes for t in told.forward + told.backward] == [2 * 8 * 12 * 4] * 2
    sent = [s.nbytes for s in world.trace.select(rank=0, name="all_reduce")]
    assert sent == [2 * 8 * 12 * 4] * 2


def test_a_rank_has_its_share_of_the_weights():
    def program(comm):
        return sum(p.size for p in HeadParallelAttention(comm, nn.MultiHeadAttention(12, 6, range(4))).params)

    whole = sum(p.size for p in nn.MultiHeadAttention(12, 6, range(4)).params)
    for n in SimWorld(3).run(program):
        assert n == (whole - 12) // 3 + 12  # but for the output's bias, which all have
