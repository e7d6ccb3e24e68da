"""When gradients have been summed over replicas: buckets fill up and are sent while backward goes on."""

from __future__ import annotations

from ..data.bucket import make_buckets
from ..tensor import Traffic
from .job import Job
from .work import LayerTime


def summed_by(job: Job, layers: list[LayerTime], ranks: list[int], held: float = 0.0) -> float:
    """Return when the gradients have been summed over replicas, in seconds since the last backward pass began.

    Parameters
    ----------
    job : Job
    layers : list of LayerTime
    ranks : list of int
        The replicas.
    held : float
        The last bucket, in which the loss rides along, does not start before this moment.
    """
    if len(ranks) < 2:
        return sum(t.backward + t.exposed_backward for t in layers)
    params = [p for p in params_of(layers) if not p.frozen]
    buckets = make_buckets(params, job.cap_bytes, extra=1) if params else []
    bucket_of = {id(p): bucket for bucket in buckets for p in bucket.params}
    left = {id(bucket): len(bucket.params) for bucket in buckets}
    now = free = 0.0
    for layer in reversed(layers):
        now, issued = now + layer.backward, now + layer.backward - layer.hiding
        if layer.sending_backward:  # a rank's collectives run one after another
            free = max(issued, free) + layer.sending_backward
            now = max(now, free)
        for p in layer.params:
            bucket = bucket_of.pop(id(p), None)
            if bucket is None:
                continue
            left[id(bucket)] -= 1
            if not left[id(bucket)]:
                start = max(now, free, held if bucket is buckets[-1] else 0.0)
                free = start + job.rates.collective(Traffic("all_reduce", bucket.flat.nbytes), ranks)
    return max(now, free)


def params_of(layers: list[LayerTime]) -> list:
    """Parameters of some layers, each once, in order."""
    return list({id(p): p for layer in layers for p in layer.params}.values())
