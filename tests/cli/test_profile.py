"""`distlearn profile`: tables, pictures and numbers of a small network."""

from __future__ import annotations

import json

from click.testing import CliRunner

from distlearn.cli import main


def call(*words):
    return CliRunner().invoke(main, ["profile", *words])


def test_it_writes_tables_pictures_and_numbers(tmp_path):
    result = call("mlp", "--batches", "1,4", "--products", "--out", str(tmp_path / "out"))
    assert result.exit_code == 0, result.output
    assert "mlp, batch 4: " in result.output
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"batching.png", "mlp-layers.png", "mlp-shares.png", "products.png", "profiles.json"}
    content = json.loads((tmp_path / "out" / "profiles.json").read_text(encoding="utf-8"))
    assert [p["batch"] for p in content["models"]["mlp"]] == [1, 4]
    assert content["models"]["mlp"][1]["layers"][0]["flops"] == 2 * 2 * 4 * 784 * 256


def test_errors_name_the_value(tmp_path):
    assert "expected one of 'mlp'" in call("vgg", "--out", str(tmp_path)).output
    assert "'1,x', expected batch sizes such as 1,16,256" in call("mlp", "--batches", "1,x").output
