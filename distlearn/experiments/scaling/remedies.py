"""What helps where communication is the bottleneck: fewer weights, fewer bits per gradient, fewer gradients."""

from __future__ import annotations

from ...nn.container import Sequential
from ...nn.linear import Linear
from ...nn.pool import GlobalAvgPool
from ...nn.shape import Flatten
from ...parallel.data.codecs import FP16, Int8, OneBit, TopK
from ...parallel.planning.named import model_and_sample, name_of
from .stall import Curve, scaling_curve

CODECS = {"fp16": FP16(), "8 bit": Int8(), "1 bit": OneBit(), "top 1 %": TopK(0.01), "top 0.1 %": TopK(0.001)}


def without_dense(model: Sequential) -> Sequential | None:
    """Replace a model's dense layers by the mean over the image and one small dense layer, as GoogLeNet does.

    Parameters
    ----------
    model : Sequential
        Not modified: the new model shares its convolutions.

    Returns
    -------
    model : Sequential or None
        None if there is no `Flatten` before dense layers. The new model's accuracy is not considered:
        that needs training.
    """
    layers = model.layers
    cut = next((i for i, layer in enumerate(layers) if isinstance(layer, Flatten)), None)
    if cut is None:
        return None
    channels = next(layer.W.data.shape[-1] for layer in reversed(layers[:cut]) if layer.params)
    dtype = layers[-1].W.data.dtype
    return Sequential(*layers[:cut], GlobalAvgPool(), Linear(channels, layers[-1].d_out, "zeros", dtype=dtype))


def remedies(
    model="alexnet", network="ethernet-10g", *, nodes=(4, 16, 64), batch: int = 128, progress=None, **options
) -> list[Curve]:
    """Simulate a training step with every remedy: none, no dense layers, and every codec.

    Some 15 s with the defaults; `viz.plot_remedies` draws them. Every message of a codec is simulated, the work of
    encoding is not.

    Parameters
    ----------
    model : str or Sequential
    network : Network or str
    nodes : sequence of int
    batch : int
        Images for each node.
    progress : callable, optional
        `progress(step, total, **values)` after every remedy; `distlearn.world.progress.Bar()` shows a bar.
    **options
        For `scaling_curve`.

    Returns
    -------
    curves : list of Curve
        The first one is without a remedy.
    """
    name = name_of(model)
    model, sample = model_and_sample(model, options.pop("sample", None))
    dense_free = without_dense(model)
    runs = {"": (model, None)} | ({} if dense_free is None else {"no dense layers": (dense_free, None)})
    runs |= {remedy: (model, codec) for remedy, codec in CODECS.items()}
    curves = []
    for i, (remedy, (net, codec)) in enumerate(runs.items()):
        fixed = {"nodes": nodes, "batch": batch, "sample": sample, "remedy": remedy, "codec": codec, "name": name}
        curves.append(scaling_curve(net, network, **fixed, **options))
        if progress is not None:
            progress(i + 1, len(runs), remedy=remedy or "none")
    return curves
