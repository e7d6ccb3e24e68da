"""`distlearn profile`: tables, pictures and numbers of a small network."""

from __future__ import annotations

import json
import time

import pytest
from click.testing import CliRunner

from distlearn import backend, nn
from distlearn.cli import main


def call(*words):
    return CliRunner().invoke(main, ["profile", *words])


def test_it_writes_tables_pictures_and_numbers(tmp_path):
    result = call("mlp", "--batches", "1,4", "--products", "--out", str(tmp_path / "out"))
    assert result.exit_code == 0, result.output
    assert "mlp, batch 4: " in result.output
    names = {path.name for path in (tmp_path / "out").iterdir() if not path.name.startswith(".")}
    assert names == {"batching.png", "mlp-layers.png", "mlp-shares.png", "products.png", "profiles.json"}
    content = json.loads((tmp_path / "out" / "profiles.json").read_text(encoding="utf-8"))
    assert [p["batch"] for p in content["models"]["mlp"]] == [1, 4]
    assert content["models"]["mlp"][1]["layers"][0]["flops"] == 2 * 2 * 4 * 784 * 256
    assert [(p["batch"], p["seconds"] * p["flop_rate"]) for p in content["products"]] == [
        (n, pytest.approx(2 * n * 4096 * 9192)) for n in (1, 4)
    ]
    assert "Gflop/s" in result.output


@pytest.mark.parametrize("where", ["in the middle", "before the first"])
def test_an_interrupt_ends_it_and_keeps_what_is_done(tmp_path, monkeypatch, where):
    asked, sweep = [], nn.profile_sweep

    def interrupted(name, *, batches, **options):
        asked.append(name)
        if name == "mlp" and where == "before the first":
            raise KeyboardInterrupt
        return sweep(name, batches=batches[: 1 if name == "mlp" else None], **options)

    monkeypatch.setattr(nn, "profile_sweep", interrupted)
    result = call("lenet", "mlp", "cnn", "--batches", "1,2", "--products", "--out", str(tmp_path / "out"))
    assert result.exit_code == 0, result.output
    assert asked == ["lenet", "mlp"]
    content = json.loads((tmp_path / "out" / "profiles.json").read_text(encoding="utf-8"))["models"]
    assert {name: len(profiles) for name, profiles in content.items()} == (
        {"lenet": 2, "mlp": 1} if where == "in the middle" else {"lenet": 2}
    )
    assert not (tmp_path / "out" / "products.png").exists()


def test_layers_run_on_the_gpu(tmp_path, monkeypatch):
    monkeypatch.setattr(backend, "has_gpu", lambda: True)
    monkeypatch.setattr(backend, "to_device", lambda array, device: nn.MockDeviceArray(array))
    monkeypatch.setattr(nn.costs.profile, "free_memory", lambda xp: 1e9)
    monkeypatch.setattr(nn.costs.profile, "now", lambda xp: time.perf_counter())
    result = call("mlp", "--batches", "1,4", "--device", "gpu", "--out", str(tmp_path / "out"))
    assert result.exit_code == 0, result.output
    content = json.loads((tmp_path / "out" / "profiles.json").read_text(encoding="utf-8"))
    assert content["device"] == "gpu"
    assert "leave one of --products and --device gpu out" in call("mlp", "--device", "gpu", "--products").output


@pytest.mark.skipif(backend.has_gpu(), reason="there is a GPU")
def test_without_a_gpu_it_says_so():
    assert "no usable GPU was found (see `distlearn doctor`)" in call("mlp", "--device", "gpu").output


def test_errors_name_the_value(tmp_path):
    assert "expected one of 'mlp'" in call("vgg", "--out", str(tmp_path)).output
    assert "'1,x', expected batch sizes such as 1,16,256" in call("mlp", "--batches", "1,x").output
