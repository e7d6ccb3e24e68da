"""Which layers share parameters: those cannot be cut each in its own way."""

from __future__ import annotations

from collections import Counter, defaultdict

from ...nn.layer import Layer


class Ties:
    """Which layers of a model are used more than once, and which parameters several layers share.

    Parameters
    ----------
    model : Layer
    """

    def __init__(self, model: Layer):
        self._uses = Counter(map(id, leaves(model)))
        self._owners = defaultdict(set)
        for layer in leaves(model):
            for p in layer.params:
                self._owners[id(p)].add(id(layer))

    def repeated(self, layer: Layer) -> bool:
        """Say whether the same layer stands in several places."""
        return self._uses[id(layer)] > 1

    def shared(self, layer: Layer) -> bool:
        """Say whether another layer has one of this layer's parameters."""
        return any(len(self._owners[id(p)]) > 1 for p in layer.params)

    def private(self, block: Layer) -> bool:
        """Say whether nothing outside a block uses its layers or parameters."""
        inside = Counter(map(id, leaves(block)))
        owners = set().union(*(self._owners[id(p)] for p in block.params))
        return owners <= set(inside) and all(self._uses[layer] == n for layer, n in inside.items())


def leaves(model: Layer):
    """Yield the layers that are no containers, in order; one that stands in several places comes several times."""
    if not model.children:
        yield model
    for child in model.children:
        yield from leaves(child)
