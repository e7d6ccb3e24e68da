"""Settings are declared once: checks, docstring and command line come from the same place."""

from dataclasses import fields

import pytest
from click.testing import CliRunner

from distlearn.cli import main
from distlearn.cli.train import train as command
from distlearn.sim import SimWorld
from distlearn.train import Settings, train
from distlearn.train.settings import SETTINGS

FAST = Settings(data="digits", hidden=(16, 12), dtype="float64", epochs=2, batch_size=100, n_train=350)


def test_every_setting_is_an_option_of_the_command():
    options = {p.name: p for p in command.params}
    for name, setting in SETTINGS.items():
        assert setting.help.rstrip(".") in (options[name].help or ""), name
        assert f"    {name} : " in Settings.__doc__
    assert [f.name for f in fields(Settings)] == list(SETTINGS)


def test_the_defaults_of_the_command_are_those_of_the_library():
    with command.make_context("train", []) as ctx:
        assert Settings(**{name: ctx.params[name] for name in SETTINGS}) == Settings()


def test_what_a_setting_needs_exists():
    for name, setting in SETTINGS.items():
        if setting.needs is not None:
            other, values = setting.needs
            assert set(values) <= set(SETTINGS[other].choices), name


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("lr", float("inf"), "a number of 0 or more"),
        ("lr", "fast", "a number of 0 or more"),
        ("warmup_epochs", float("nan"), "a number of 0 or more"),
        ("epochs", 2.0, "a whole number of 1 or more"),
        ("epochs", True, "a whole number of 1 or more"),
        ("batch_size", 0, "a whole number of 1 or more"),
        ("clip_norm", 0.0, "a number above 0"),
        ("hidden", (16, 0), "positive whole numbers"),
        ("hidden", 16, "positive whole numbers"),
        ("overlap", "no", "True or False"),
        ("compress", "zip", "one of fp16, int8, one_bit, top_k"),
        ("evaluate_every", -1, "a whole number of 0 or more"),
    ],
)
def test_wrong_values_are_named_here_and_as_options(name, value, expected):
    with pytest.raises(ValueError, match=f"Settings: {name} is .*, expected {expected}"):
        Settings(**{name: value})
    if SETTINGS[name].kind in (int, float) and value is not True:
        result = CliRunner().invoke(main, ["train", f"--{name.replace('_', '-')}", str(value)])
        assert result.exit_code == 2
        assert f"'--{name.replace('_', '-')}'" in result.output


def test_hidden_widths_may_be_a_list():
    assert Settings(hidden=[8, 4]) == Settings(hidden=(8, 4))


@pytest.mark.parametrize("strategy", ["data"])
@pytest.mark.parametrize("codec", SETTINGS["compress"].choices)
def test_compressed_gradients_learn_and_are_not_the_plain_ones(strategy, codec):
    settings = FAST.but(strategy=strategy, epochs=6, lr=0.01 if codec == "one_bit" else 0.05, keep_ratio=0.1)
    plain = SimWorld(2).run(train, settings)[0]
    result = SimWorld(2).run(train, settings.but(compress=codec))[0]
    assert result.history.last.loss < result.history.epochs[0].loss
    assert result.history.losses != plain.history.losses
