"""Checkpoints: whole or refused by name; a resumed run equals one that was never interrupted."""

import errno
import os
import subprocess
import sys
import textwrap
import threading
import warnings
from functools import partial

import numpy as np
import pytest
from safetensors.numpy import load_file

from distlearn import data
from distlearn.comm import RankError
from distlearn.nn import MLP, BatchNorm, Dropout, Linear, ReLU, Sequential, Sigmoid, SoftmaxCrossEntropy
from distlearn.optim import RULES, Optimizer
from distlearn.parallel import (
    Checkpoint,
    CheckpointError,
    CheckpointStore,
    CheckpointWarning,
    DataParallel,
    Hybrid,
    Serial,
    ZeRO,
)
from distlearn.parallel.checkpoint import store as file
from distlearn.parallel.sharding import HeldElsewhere
from distlearn.sim import SimWorld
from distlearn.train import fit

from .programs import assert_same_params, serial

DATASET = data.load("digits", dtype="float64").take(90)
DATA = partial(DataParallel, cap_bytes=500)


def example(step=7):
    rng = np.random.default_rng(step)
    arrays = {
        "param/0.W": rng.normal(size=(5, 3)),
        "param/0.b": rng.normal(size=3).astype("float32"),
        "scalar": np.array(2.5),
        "empty": np.zeros((0, 4)),
        "half": rng.normal(size=4).astype("float16"),
        "count": np.arange(6, dtype="int64")[::2],
    }
    return Checkpoint(step, arrays, {"lr": 0.1, "none": None, "nested": {"list": [1, "ü", float("inf")]}})


WHOLE = file.to_bytes(example())


def test_what_is_read_is_what_was_written(tmp_path):
    store, want = CheckpointStore(tmp_path), example()
    others = load_file(store.save(want))  # other tools read the arrays, too
    got = store.latest()
    assert (got.step, got.meta) == (want.step, want.meta)
    assert list(got.arrays) == list(want.arrays)
    for name, array in want.arrays.items():
        assert got.arrays[name].dtype == array.dtype
        assert got.arrays[name].shape == array.shape
        np.testing.assert_array_equal(got.arrays[name], array)
        np.testing.assert_array_equal(others[name], array)
        got.arrays[name][...] = 0  # its own, not a view of the file
    assert got.nbytes == want.nbytes > 0


@pytest.mark.parametrize("name", ["param/0.W", "count"])
def test_the_message_names_the_damaged_array(tmp_path, name):
    needle = example().arrays[name].tobytes()
    damaged = bytearray(WHOLE)
    damaged[WHOLE.index(needle) + 3] ^= 4
    (tmp_path / "x.safetensors").write_bytes(damaged)
    with pytest.raises(CheckpointError, match=f"is damaged in array '{name}'"):
        file.read(tmp_path / "x.safetensors")


def test_other_versions_and_other_files_are_refused_by_name(tmp_path, monkeypatch):
    path = tmp_path / "x.safetensors"
    monkeypatch.setattr(file, "VERSION", "3")
    newer = file.to_bytes(example())
    monkeypatch.undo()
    for content, words in (
        (newer, "has format version 3, this library reads version 2"),
        (b"PK\x03\x04 some zip file, and long enough", "or not a checkpoint"),
        (WHOLE + b"x", "is truncated, damaged, or not a checkpoint"),
    ):
        path.write_bytes(content)
        with pytest.raises(CheckpointError, match=words):
            file.read(path)


def test_what_cannot_be_kept_is_refused_before_anything_is_written(tmp_path):
    store = CheckpointStore(tmp_path)
    with pytest.raises(TypeError, match="array 'o' has dtype object"):
        store.save(Checkpoint(1, {"o": np.array([{}])}))
    with pytest.raises(TypeError, match="JSON"):
        store.save(Checkpoint(1, {}, {"x": np.zeros(3)}))
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_checkpoint_is_named_and_the_one_before_it_is_used(tmp_path):
    store = CheckpointStore(tmp_path, keep=3)
    for step in (10, 20, 30, 40):
        store.save(example(step))
    assert store.steps == [20, 30, 40]
    store.path(40).write_bytes(store.path(40).read_bytes()[:100])
    flip = bytearray(store.path(30).read_bytes())
    flip[-100] ^= 1
    store.path(30).write_bytes(flip)
    with pytest.warns(CheckpointWarning) as caught:
        found = store.latest()
    assert found.step == 20
    texts = [str(w.message) for w in caught]
    assert "step-0000000040.safetensors: is truncated" in texts[0]
    assert "step-0000000030.safetensors: is damaged" in texts[1]
    store.path(20).write_bytes(b"")
    all_bad = pytest.raises(CheckpointError, match=r"none of the 3 can be used.*choose another folder")
    with pytest.warns(CheckpointWarning) as told, all_bad:
        store.latest()
    assert ["there is none before it" in str(warning.message) for warning in told] == [False, False, True]


def test_a_renamed_and_a_missing_checkpoint_are_refused(tmp_path):
    store = CheckpointStore(tmp_path)
    store.save(example(5))
    os.rename(store.path(5), store.path(6))
    with pytest.raises(CheckpointError, match="holds step 5: the file was renamed"):
        store.load(6)
    with pytest.raises(CheckpointError, match=r"does not exist; there are those of steps \[6\]"):
        store.load(5)
    assert CheckpointStore(tmp_path / "nothing").latest() is None


def test_a_full_disk_leaves_what_was_there(tmp_path, monkeypatch):
    store = CheckpointStore(tmp_path)
    store.save(example(1))

    def full(target):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        store.save(example(2))
    assert [p.name for p in tmp_path.iterdir()] == ["step-0000000001.safetensors"]
    assert store.latest().step == 1


KILLED = """
    import os, signal, sys
    import numpy as np
    from distlearn.parallel import Checkpoint, CheckpointStore
    from distlearn.parallel.checkpoint import store as checkpoint

    store, moment = CheckpointStore(sys.argv[1]), sys.argv[2]
    store.save(Checkpoint(1, {"x": np.arange(1000.0)}))

    def die(*args):
        os.kill(os.getpid(), signal.SIGKILL)

    if moment == "while writing":
        checkpoint.to_bytes = lambda what: b"half of it"
        os.fsync = die
    elif moment == "before the rename":
        os.replace = die
    else:
        checkpoint._sync_folder = die
    store.save(Checkpoint(2, {"x": np.arange(1000.0) + 1}))
"""


@pytest.mark.parametrize(("moment", "step"), [("while writing", 1), ("before the rename", 1), ("after the rename", 2)])
def test_a_process_that_is_killed_while_it_saves_costs_the_newest_checkpoint_at_most(tmp_path, moment, step):
    command = [sys.executable, "-c", textwrap.dedent(KILLED), str(tmp_path), moment]
    assert subprocess.run(command, timeout=60).returncode == -9
    store = CheckpointStore(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = store.latest()
    assert found.step == step
    np.testing.assert_array_equal(found.arrays["x"], np.arange(1000.0) + step - 1)
    store.save(Checkpoint(3))
    assert not list(tmp_path.glob(".*"))  # what the dead process left is gone


@pytest.mark.filterwarnings("ignore:Data type alias")  # some bits make an "<f8" into that
def test_every_bit_of_a_small_checkpoint_counts(tmp_path):
    """Also those that make a dtype into something that NumPy cannot even parse."""
    store = CheckpointStore(tmp_path)
    arrays = {"a": np.arange(3.0), "b": np.array(2, "i2")}
    whole = store.save(Checkpoint(1, arrays)).read_bytes()
    store.save(Checkpoint(2, arrays))
    for bit in range(8 * len(whole)):
        turned = bytearray(whole)
        turned[bit // 8] ^= 1 << bit % 8
        store.path(2).write_bytes(turned)
        with pytest.raises(CheckpointError):
            store.load(2)
    for length in range(len(whole)):
        store.path(2).write_bytes(whole[:length])
        with pytest.raises(CheckpointError, match=r"truncated|not a checkpoint"):
            store.load(2)


@pytest.mark.parametrize("keep", [1, 2])
def test_damaged_checkpoints_of_later_steps_cost_no_new_one_its_place(tmp_path, keep):
    store = CheckpointStore(tmp_path, keep=keep)
    for step in (10, 20, 30):
        store.save(example(step))
    for step in store.steps:
        store.path(step).write_bytes(b"torn")
    assert store.save(example(15)).exists()
    with pytest.warns(CheckpointWarning, match="the one before it is used"):
        assert store.latest().step == 15


WRITER = """
    import sys
    import numpy as np
    from distlearn.parallel import Checkpoint, CheckpointStore

    store = CheckpointStore(sys.argv[1])
    for step in range(40):
        store.save(Checkpoint(step, {"x": np.zeros(100_000)}))
"""


def test_two_writers_do_not_take_each_others_files(tmp_path):
    command = [sys.executable, "-c", textwrap.dedent(WRITER), str(tmp_path)]
    both = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    for process in both:
        assert process.communicate(timeout=60)[1] == ""
    assert [p.name for p in sorted(tmp_path.iterdir())] == [f"step-{step:010d}.safetensors" for step in (37, 38, 39)]
    assert CheckpointStore(tmp_path).latest().step == 39


def test_what_nobody_finishes_is_removed_even_if_another_machine_began_it(tmp_path):
    store = CheckpointStore(tmp_path)
    old, new = (tmp_path / f".new-another.host-{pid}-step-0000000001.safetensors" for pid in (1, 2))
    for left in (old, new):
        left.write_bytes(b"half of it")
    os.utime(old, (1e9, 1e9))
    store.save(example(2))
    assert not old.exists()
    assert new.exists()


def test_a_file_in_the_place_of_the_folder_and_steps_that_are_none_are_refused(tmp_path):
    (tmp_path / "file").write_text("important")
    with pytest.raises(NotADirectoryError, match="expected a folder, this is a file"):
        CheckpointStore(tmp_path / "file")
    store = CheckpointStore(tmp_path / "new")
    for step in (-1, 2.5, "3", 10**10):
        with pytest.raises(ValueError, match="expected a whole number of 0 or more and up to 9999999999"):
            store.save(Checkpoint(step))
    assert not store.folder.exists()
    store.save(Checkpoint(np.int64(7)))
    assert store.latest().step == 7


# -- training ----------------------------------------------------------------------------------------------------------


def a_model(kind="mlp"):
    if kind == "mlp":
        return MLP((64, 10, 10), "sigmoid", seed=3, dtype="float64")
    if kind == "deep":
        model = MLP((64, 10, 9, 8, 10), "sigmoid", seed=3, dtype="float64")
        model.params[3].frozen = True
        return model
    first, last = Linear(64, 9, 1, dtype="float64"), Linear(9, 10, 2, dtype="float64")
    if kind == "tied":
        shared = Linear(9, 9, 3, dtype="float64")
        return Sequential(first, shared, Sigmoid(), shared, Sigmoid(), last)
    noise = Dropout(0.3, rng=5), last, Dropout(0.1, rng=6)  # the last of what all ranks of tensor parallelism have
    return Sequential(first, BatchNorm(9, dtype="float64"), ReLU(), *noise)


class Stop(Exception):
    """The end of a run that is interrupted."""


def fit_until(stop, strategy, folder, epochs, **options):
    """Train with checkpoints in a folder; raise `Stop` after so many steps."""

    def report(step, total, **values):
        if step == stop:
            raise Stop

    store = None if folder is None else CheckpointStore(folder)
    options |= {"epochs": epochs, "batch_size": 20, "seed": 1, "report": report}
    if store is None:
        options["every"] = 0
    return fit(strategy, DATASET, **options, checkpoints=store)


def train(comm, make, folder=None, *, kind="mlp", rule="adam", stop=None, resume=False, every=4, epochs=3, lr=0.05):
    """Train; return history, rank 0's parameters, this rank's own, and the strategy."""
    model = a_model(kind)
    strategy = make(comm, model, SoftmaxCrossEntropy(), Optimizer(model.params, RULES[rule](), lr))
    history = fit_until(stop, strategy, folder, epochs, every=every, resume=resume)
    own = {p.name: p.data.copy() for p in model.params if not isinstance(p.data, HeldElsewhere)}
    return history, strategy.gather_params(), own, strategy


def interrupted(size, make, folder, stop, **options):
    with pytest.raises(Exception, match="Stop"):
        SimWorld(size).run(train, make, folder, stop=stop, **options)


def without_times(history):
    return [e._replace(seconds=0) for e in history.epochs], history.losses


@pytest.mark.parametrize("rule", sorted(RULES))
def test_a_resumed_run_equals_an_undisturbed_one_bit_for_bit(tmp_path, rule):
    want_history, want, *_ = SimWorld(1).run(train, serial, rule=rule)[0]
    interrupted(1, serial, tmp_path, 11, rule=rule)
    assert CheckpointStore(tmp_path).steps == [4, 8]
    history, got, *_ = SimWorld(1).run(train, serial, tmp_path, rule=rule, resume=True)[0]
    assert_same_params(got, want, tol=0)
    assert without_times(history) == without_times(want_history)
    assert CheckpointStore(tmp_path).steps == [8, 12, 15]


@pytest.mark.parametrize(
    ("make", "kind", "stop"),
    [
        (DATA, "mlp", 3),  # before the first checkpoint
        (DATA, "mlp", 6),
        (DATA, "mlp", 13),
        (DATA, "noisy", 6),
        (DATA, "noisy", 13),
        (ZeRO, "noisy", 13),
        (partial(ZeRO, stage=3), "noisy", 6),
        (partial(Hybrid, dp=3), "noisy", 6),
        (partial(Hybrid, pp=3, n_microbatches=2), "noisy", 6),
    ],
)
def test_as_many_ranks_go_on_bit_for_bit(tmp_path, make, kind, stop):
    """Of parameters, masks and running statistics."""
    want_history, want, own, _ = SimWorld(3).run(train, make, kind=kind)[0]
    interrupted(3, make, tmp_path, stop, kind=kind)
    results = SimWorld(3).run(train, make, tmp_path, kind=kind, resume=True)
    assert_same_params(results[0][1], want, tol=0)
    for history, _, got, _ in results if make is DATA else []:
        assert_same_params(got, own, tol=0)
        assert without_times(history) == without_times(want_history)


def test_a_run_can_be_interrupted_again_and_again_and_from_a_damaged_checkpoint(tmp_path):
    want = SimWorld(2).run(train, DATA)[0][1]
    interrupted(2, DATA, tmp_path, 6)
    interrupted(2, DATA, tmp_path, 9, resume=True)
    store = CheckpointStore(tmp_path)
    store.path(8).write_bytes(b"\x89DLCKPT\n")
    with pytest.warns(CheckpointWarning, match="is truncated"):
        got = SimWorld(2).run(train, DATA, tmp_path, resume=True)[0][1]
    assert_same_params(got, want, tol=0)


def test_a_finished_run_is_resumed_without_a_step_and_can_be_prolonged(tmp_path):
    history, want, *_ = SimWorld(2).run(train, DATA, tmp_path)[0]
    again, got, *_ = SimWorld(2).run(train, DATA, tmp_path, resume=True)[0]
    assert_same_params(got, want, tol=0)
    assert without_times(again) == without_times(history)
    longer = SimWorld(2).run(train, DATA, tmp_path, resume=True, epochs=4)[0]
    whole = SimWorld(2).run(train, DATA, epochs=4)[0]
    assert_same_params(longer[1], whole[1], tol=0)
    with pytest.raises(
        RankError, match=r"epochs is 3, but the newest checkpoint in .* is in epoch 4: expected 4 or more"
    ):
        SimWorld(2).run(train, DATA, tmp_path, resume=True, epochs=3)  # its history would end before its weights


def test_a_disk_that_is_full_does_not_end_training(tmp_path, monkeypatch):
    want = SimWorld(2).run(train, DATA)[0][1]

    def full(self, checkpoint):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(CheckpointStore, "save", full)
    with pytest.warns(CheckpointWarning) as caught:
        got = SimWorld(2).run(train, DATA, tmp_path)[0][1]
    assert len(caught) == 4
    assert f"no checkpoint of step 4 could be saved in {tmp_path} (the disk is full)" in str(caught[0].message)
    assert_same_params(got, want, tol=0)


def test_a_file_is_written_while_training_goes_on(tmp_path, monkeypatch):
    save, done = CheckpointStore.save, threading.Event()

    def slowly(self, checkpoint):
        assert done.wait(10)  # the first write ends only when later steps have been done
        return save(self, checkpoint)

    def report(step, total, **values):
        if step == 7:
            done.set()

    monkeypatch.setattr(CheckpointStore, "save", slowly)
    model = a_model()
    strategy = Serial(None, model, SoftmaxCrossEntropy(), Optimizer(model.params, RULES["adam"](), 0.05))
    fit(strategy, DATASET, epochs=3, batch_size=20, report=report, checkpoints=CheckpointStore(tmp_path), every=4)
    trace = strategy.clock.trace
    first, *others = trace.select(name="write", lane="background")
    assert len(others) == len(trace.select(name="checkpoint", lane="disk")) - 1 == 3
    assert sum(first.start < span.start < first.end for span in trace.select(name="update")) >= 3


def test_a_strategy_that_keeps_its_state_in_parts_is_refused_before_the_first_step(tmp_path):
    class Sharded(Serial):
        checkpointable = False

        def step(self, batch):
            raise AssertionError("it has begun")

    model = a_model("mlp")
    strategy = Sharded(None, model, SoftmaxCrossEntropy(), Optimizer(model.params, RULES["sgd"](), 0.1))
    with pytest.raises(TypeError, match=r"Sharded has no state that all ranks share, so it cannot save"):
        fit(strategy, DATASET, epochs=1, batch_size=20, checkpoints=CheckpointStore(tmp_path))
