"""`distlearn predict`: files in, labels and probabilities out, nothing that was not trained for."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

from distlearn import data
from distlearn.cli import main
from distlearn.train import load

from ..data.idx_writer import write_idx

SMALL = ("--hidden", "32", "--epochs", "8", "--batch-size", "50")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("run") / "out"
    result = CliRunner().invoke(main, ["train", *SMALL, "--out", str(out)])
    assert result.exit_code == 0, result.output
    return out


@pytest.fixture(scope="module")
def digits():
    return data.load("digits")


def call(*words):
    return CliRunner().invoke(main, ["predict", *map(str, words)])


def test_a_data_set_gives_the_accuracy_that_training_told(folder, tmp_path):
    result = call(folder, "--data", "digits", "--json", tmp_path / "p.json")
    assert result.exit_code == 0, result.output
    told = json.loads((folder / "history.json").read_text(encoding="utf-8"))["runs"][0]["epochs"][-1]["test_accuracy"]
    assert f"of 360 right: {told:.1%}" in result.output
    rows = json.loads((tmp_path / "p.json").read_text(encoding="utf-8"))
    assert len(rows) == 360
    assert sum(rows[0]["probabilities"].values()) == pytest.approx(1)
    assert rows[0]["label"] == max(rows[0]["probabilities"], key=rows[0]["probabilities"].get)


def test_files_of_every_kind_agree(folder, tmp_path, digits):
    from PIL import Image

    bytes16 = np.round(digits.x_test[:3] * 16).astype(np.uint8)
    np.save(tmp_path / "bytes.npy", bytes16.reshape(3, 8, 8))
    np.save(tmp_path / "fractions.npy", digits.x_test[:3])
    np.save(tmp_path / "one.npy", digits.x_test[0])
    Image.fromarray((bytes16[0].reshape(8, 8) / 16 * 255).round().astype(np.uint8)).save(tmp_path / "one.png")
    files = [tmp_path / name for name in ("bytes.npy", "fractions.npy", "one.npy", "one.png")]
    result = call(folder, *files, "--json", tmp_path / "p.json")
    assert result.exit_code == 0, result.output
    rows = json.loads((tmp_path / "p.json").read_text(encoding="utf-8"))
    want = load(folder).predict(digits.x_test[:3])
    found = np.array([list(row["probabilities"].values()) for row in rows])
    np.testing.assert_allclose(found[:7], np.concatenate([want, want, want[:1]]), atol=1e-6)
    np.testing.assert_allclose(found[7], want[0], atol=0.02)
    assert [row["sample"].rpartition("/")[2] for row in rows[2:]] == [
        "bytes.npy [2]", "fractions.npy [0]", "fractions.npy [1]", "fractions.npy [2]", "one.npy", "one.png",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (
            lambda p: np.save(p / "x.npy", np.full((2, 64), 200, np.uint8)),
            "pixels run from 200 to 200, expected 0 to 16",
        ),
        (lambda p: np.save(p / "x.npy", np.zeros((2, 63))), "x.npy: x has shape (2, 63), expected (samples, 64)"),
        (lambda p: np.save(p / "x.npy", np.zeros((2, 1, 8, 8))), "x.npy: x has shape (2, 1, 8, 8), expected"),
        (lambda p: np.save(p / "x.npy", np.zeros((2, 64)) + 7), "x.npy: found values from 7 to 7"),
        (lambda p: write_idx(p / "idx", np.full((2, 8, 8), 17, np.uint8)), "idx: pixels run from 17 to 17"),
        (lambda p: write_idx(p / "idx", np.zeros((2, 1, 8, 8), np.uint8)), "idx: x has shape (2, 1, 8, 8), expected"),
        (lambda p: np.save(p / "x.npy", np.zeros(0)), "x.npy: x has shape (0,), expected"),
        (lambda p: (p / "x.npy").write_bytes(b"nonsense"), "x.npy"),
        (lambda p: _picture(p / "x.png", (9, 8)), "has 9 x 8 pixels, expected 8 x 8"),
        (lambda p: (p / "x.png").write_bytes(b"nonsense"), "cannot identify image"),
    ],
)
def test_files_that_do_not_fit_are_one_line(folder, tmp_path, make, expected):
    make(tmp_path)
    (file,) = tmp_path.iterdir()
    result = call(folder, file)
    assert result.exit_code == 1, result.output
    assert expected in " ".join(result.output.split())
    assert "Traceback" not in result.output


def _picture(path, size):
    from PIL import Image

    Image.new("L", size).save(path)


def test_what_else_cannot_be_done(folder, tmp_path):
    assert "give either FILES or --data" in call(folder).output
    result = call(tmp_path, "--data", "digits")
    assert result.exit_code == 1
    assert "there is no such file of weights" in result.output


def test_json_into_a_missing_folder_is_one_line_before_any_work(folder, tmp_path):
    result = call(folder, "--data", "digits", "--json", tmp_path / "no" / "p.json")
    assert result.exit_code == 2
    assert f"--json {tmp_path / 'no' / 'p.json'}: there is no folder" in result.output
    assert "Predictions" not in result.output
