"""`distlearn predict`: classify images with a trained network."""

from __future__ import annotations

from pathlib import Path

import click
import numpy as np

from .console import plain_errors, print_table, say
from .output import write_json

ROWS = 20  # Rows of the table; --json has them all.


def read_images(path: Path, trained) -> np.ndarray:
    """Read samples from a file: a picture, an array (.npy), or images in IDX files."""
    from ..data import read_idx
    from ..data.sources import decode_image

    shape, is_array = trained.image_shape, path.suffix == ".npy"
    x = read_idx(path) if "idx" in path.name and not is_array else None  # whose errors name the file
    try:
        if is_array:
            x = np.load(path, allow_pickle=False)
            x = x[None] if x.shape in trained.shapes else x
        elif x is None:
            if shape is None:
                raise ValueError("is a picture, but this network was not trained on images")
            x = decode_image(path.read_bytes(), shape, bool(trained.settings.image_shape))[None] / 255
        return trained.rows(trained.scaled(x))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


@click.command()
@click.argument("run", type=click.Path(exists=True, path_type=Path))
@click.argument("files", nargs=-1, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--data", help="Predict the test set of a data set, and say how many are right.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="Write all classes here.")
@click.option("--top", type=click.IntRange(1), default=3, show_default=True, help="Classes to show for each sample.")
def predict(run, files, data, json_file, top):
    """Classify images with a trained network.

    RUN is a folder of `distlearn train`, or its model.safetensors. FILES are pictures of the size that the network
    takes (white on black, as in MNIST), arrays (.npy) of samples scaled to 0..1 or of bytes, or IDX files of images.

    \b
    distlearn predict runs/mnist-mlp-local1 seven.png
    distlearn predict runs/mnist-mlp-local1 --data mnist --json predictions.json
    """  # noqa: D301  (click wants the control character, not its name)
    from ..train.weights import load

    if bool(files) == bool(data):
        raise click.UsageError("give either FILES or --data")
    if json_file is not None and not json_file.parent.is_dir():
        raise click.UsageError(f"--json {json_file}: there is no folder {json_file.parent}")
    with plain_errors(ValueError, OSError):
        trained, truth = load(run), None
        if data:
            from ..data import load as load_data

            dataset = load_data(data, **trained.settings.how_to_read)
            x, truth = dataset.x_test, dataset.y_test
            if dataset.classes != trained.classes:
                raise ValueError(f"--data {data}: its classes differ from those that the network was trained on")
            names = [f"{data} test {i}" for i in range(len(x))]
        else:
            parts = [read_images(path, trained) for path in files]
            names = [
                str(path) if len(part) == 1 else f"{path} [{i}]"
                for path, part in zip(files, parts, strict=True)
                for i in range(len(part))
            ]
            x = np.concatenate(parts)
        probabilities = trained.predict(x)
    _show(names, probabilities, trained.classes, min(top, len(trained.classes)))
    if truth is not None:
        right = int((probabilities.argmax(axis=1) == truth).sum())
        say(f"{right:,} of {len(truth):,} right: {right / len(truth):.1%}")
    if json_file is not None:
        labels = [trained.classes[i] for i in probabilities.argmax(axis=1)]
        rows = [
            {"sample": name, "label": label, "probabilities": dict(zip(trained.classes, p.tolist(), strict=True))}
            for name, label, p in zip(names, labels, probabilities, strict=True)
        ]
        with plain_errors(OSError):
            write_json(json_file, rows)
        say(f"wrote {json_file}")


def _show(names, probabilities, classes, top: int) -> None:
    order = np.argsort(-probabilities, axis=1, kind="stable")[:, :top]
    rows = [
        (name, *(f"{classes[i]} {p[i]:.1%}" for i in best))
        for name, p, best in zip(names[:ROWS], probabilities, order, strict=False)
    ]
    columns = ("sample", "label", *(f"{i}." for i in range(2, top + 1)))
    more = f"{len(names) - ROWS:,} more; --json writes all of them" if len(names) > ROWS else ""
    print_table("Predictions", columns, rows, caption=more)
