"""When gradients have been summed over replicas: buckets fill up and are sent while backward goes on."""

from __future__ import annotations

from ..data.bucket import make_buckets
from ..play import play_queues
from ..tensor import Traffic
from .job import Job
from .work import LayerTime


def summed_by(job: Job, layers: list[LayerTime], ranks: list[int], held: float = 0.0) -> float:
    """Return when the gradients have been summed over replicas, in seconds since the last backward pass began."""
    if len(ranks) < 2:
        return sum(t.backward + t.exposed_backward for t in layers)
    computing, sending = [], []  # two queues: a rank's collectives run one after another
    seconds, needs = {"held": held}, {}
    params = [p for p in params_of(layers) if not p.frozen]
    buckets = make_buckets(params, job.cap_bytes, extra=2) if params else []
    bucket_of = {id(p): k for k, bucket in enumerate(buckets) for p in bucket.params}
    missing = [len(bucket.params) for bucket in buckets]
    ended: list = []  # what must have ended before the next layer begins
    for i, layer in enumerate(reversed(layers)):
        computing += [("inputs", i), ("weights", i)]
        seconds["inputs", i], seconds["weights", i] = layer.backward - layer.hiding, layer.hiding
        needs["inputs", i] = ended
        if layer.sending_backward:  # hides behind the gradient of the weights
            sending.append(("inside", i))
            seconds["inside", i], needs["inside", i] = layer.sending_backward, [("inputs", i)]
            ended = [("weights", i), ("inside", i)]
        else:
            ended = [("weights", i)]
        for p in layer.params:
            k = bucket_of.pop(id(p), None)
            if k is None:
                continue
            missing[k] -= 1
            if not missing[k]:
                sending.append(("bucket", k))
                seconds["bucket", k] = job.rates.collective(Traffic("all_reduce", buckets[k].flat.nbytes), ranks)
                needs["bucket", k] = ended + ["held"] * (k == len(buckets) - 1)
    queues = [["held"], computing, sending]
    times = play_queues(queues, seconds.get, lambda task: ((before, 0.0) for before in needs.get(task, ()))).times
    return max(times[queue[-1]][1] for queue in queues[1:] if queue)


def params_of(layers: list[LayerTime]) -> list:
    """Parameters of some layers, each once, in order."""
    return list({id(p): p for layer in layers for p in layer.params}.values())
