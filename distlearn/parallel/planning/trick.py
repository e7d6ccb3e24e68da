"""One weird trick: data parallelism up to the first dense layer, tensor parallelism from there on."""

from __future__ import annotations

import copy
import math

from ...comm.network.formulas import sent_bytes
from ...nn.container import Sequential
from ..tensor import Traffic
from ..tensor.one_weird_trick import SplitModel
from .buckets import params_of, summed_by
from .job import Cost, Job
from .layout import Layout
from .memory import activation_bytes, rank_memory
from .work import RankSpec


def has_trick(model: Sequential) -> bool:
    """Say whether "one weird trick" applies: layers to train before the first dense one."""
    try:
        SplitModel.of(model, RankSpec(1))
    except ValueError:
        return False
    return True


def trick_cost(job: Job, layout: Layout) -> Cost:
    """Cost data parallelism up to the first dense layer and tensor parallelism from there on."""
    p, ranks, rates = layout.dp, layout.ranks("dp"), job.rates
    features, dense, partial = SplitModel.of(copy.deepcopy(job.model), RankSpec(p))
    shape = (-(-job.shape[0] // p), *job.shape[1:])
    boundary = features.output_shape(shape)
    whole = (job.shape[0], *boundary[1:])
    before, behind = rates.layers(features, shape, ranks), rates.layers(dense, whole, ranks)
    nbytes = job.itemsize * p * math.prod(boundary)
    turns = ["all_gather", "reduce_scatter"][: 1 + partial]
    params = params_of([*before, *behind])
    computing = sum(t.forward + t.backward for t in [*before, *behind]) + job.update(params)
    sending = sum(t.sending_forward + t.exposed_backward for t in behind)
    sending += sum(rates.collective(Traffic(name, nbytes), ranks) for name in turns)
    sending += summed_by(job, before, ranks) - sum(t.backward for t in before)
    gradients = sum(q.nbytes for q in params_of(before) if not q.frozen)
    sent = sum(t.nbytes for t in behind) + sent_bytes("all_reduce", gradients, p)
    sent += sum(sent_bytes(name, nbytes, p) for name in turns)
    kept = activation_bytes(features, shape, job.itemsize) + activation_bytes(dense, whole, job.itemsize)
    memory = rank_memory(params, job.rule, kept)
    return Cost(layout, computing + sending, computing, sending, 0.0, sent, memory)
