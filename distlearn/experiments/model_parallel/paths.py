"""What the paths of GoogLeNet's modules cost."""

from __future__ import annotations

from ...nn import init
from ...nn.models.googlenet import TABLE, Inception

_SIZE = {"3": 28, "4": 14, "5": 7}


def inception_costs(batch: int = 32) -> dict[str, list[int]]:
    """Return the operations of a training step of each path, by the module's name in table 1 of the paper.

    Examples
    --------
    >>> costs = inception_costs()["3a"]
    >>> [f"{c / sum(costs):.0%}" for c in costs]
    ['8%', '79%', '10%', '4%']
    """
    found, c_in = {}, 192
    for name, row in TABLE.items():
        module, shape = Inception(c_in, *row, init.seeds(None)), (batch, _SIZE[name[0]], _SIZE[name[0]], c_in)
        found[name] = [path.flops(shape) + path.backward_flops(shape) for path in module.layers]
        c_in = module.output_shape(shape)[-1]
    return found
