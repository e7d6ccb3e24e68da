"""`distlearn train`: what it prints, what it leaves behind, what it refuses."""

from __future__ import annotations

import json
import math
import os
import resource
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from click.testing import CliRunner

from distlearn import data
from distlearn.cli import main, output
from distlearn.cli.ranks import BoundedList, communication_share
from distlearn.parallel import CheckpointWarning
from distlearn.parallel.pipeline.schedule import actions_of
from distlearn.sim import SimWorld
from distlearn.trace import Message, Span, Trace
from distlearn.train import Settings, train
from distlearn.world import launch

SMALL = ("--hidden", "16", "--n-train", "200", "--epochs", "2", "--batch-size", "50")


@pytest.fixture
def call(tmp_path, monkeypatch):
    """Call `distlearn train` in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DISTLEARN_DEBUG", raising=False)
    return lambda *words: CliRunner().invoke(main, ["train", *map(str, words)])


def read(folder):
    return json.loads((folder / "history.json").read_text(encoding="utf-8"))


def files(folder):
    return {path.name for path in folder.iterdir() if not path.name.startswith(".")}


# -- what it does


def test_local(call, tmp_path):
    result = call(*SMALL)
    assert result.exit_code == 0, result.output
    folder = tmp_path / "runs" / "digits-mlp-local1"
    assert files(folder) == {"history.json", "model.safetensors", "trace.json", "curves.png", "timeline.png"}
    for name in ("curves.png", "timeline.png"):
        assert (folder / name).read_bytes().startswith(b"\x89PNG")
    content = read(folder)
    assert content["settings"]["hidden"] == [16]
    assert len(content["runs"][0]["epochs"]) == 2
    assert len(content["runs"][0]["losses"]) == 8
    events = json.loads((folder / "trace.json").read_text(encoding="utf-8"))["traceEvents"]
    assert {e["name"].partition("[")[0] for e in events if e["ph"] == "X"} > {"update"}
    for word in (
        "samples/s",
        "communication",
        "train accuracy",
        "validation",
        "test",
        "1 BLAS thread per rank",
        "On this machine",
    ):
        assert word in result.output


def test_numbers_are_the_librarys(call, tmp_path):
    """The command adds nothing to `train`: the same losses, the same accuracies."""
    assert call(*SMALL, "--dtype", "float64", "--world", "sim", "--size", 3, "--out", "out", "--seed", 5).exit_code == 0
    settings = Settings(hidden=(16,), n_train=200, epochs=2, batch_size=50, dtype="float64", seed=5)
    want = SimWorld(3).run(train, settings)[0].history
    run = read(tmp_path / "out")["runs"][0]
    np.testing.assert_allclose(run["losses"], want.losses, rtol=1e-12)
    assert run["epochs"][-1]["test_accuracy"] == want.last.test_accuracy


@pytest.mark.nightly(but_every=3)
@pytest.mark.parametrize(
    ("words", "layers"),
    [
        ((), "fused"),
        (("--activation", "sigmoid"), "plain"),  # nothing to fuse
        (("--strategy", "tensor"), "plain"),  # takes single layers
        (("--strategy", "pipeline"), "plain"),  # cut between the only Linear and its ReLU
        (("--strategy", "hybrid"), "fused"),
        (("--strategy", "param_server"), "fused"),
    ],
)
def test_it_says_whether_layers_are_fused(call, tmp_path, words, layers):
    result = call(*SMALL, "--world", "sim", "--size", 2, "--out", "out", *words)
    assert f", {layers} layers, float32" in result.output
    assert read(tmp_path / "out")["runs"][0]["fused"] == (layers == "fused")


def test_simulated_sizes(call, tmp_path):
    result = call(*SMALL, "--world", "sim", "--sizes", "1,2,4", "--out", "out")
    assert result.exit_code == 0, result.output
    assert (tmp_path / "out" / "speedup.png").exists()
    runs = read(tmp_path / "out")["runs"]
    assert [run["ranks"] for run in runs] == [1, 2, 4]
    assert runs[0]["communication_share"] == 0
    assert 0 < runs[1]["communication_share"] < runs[2]["communication_share"] < 1
    np.testing.assert_allclose(runs[2]["losses"], runs[0]["losses"], rtol=1e-4)
    trace = Trace.load(tmp_path / "out" / "trace.json")
    assert trace.ranks == [0, 1, 2, 3]
    assert "simulated time [s]" in result.output
    assert "speed-up" in result.output


def test_network_options_reach_the_simulator(call, tmp_path):
    base = (*SMALL, "--world", "sim", "--size", 4)
    call(*base, "--out", "fast", "--alpha", "1e-7", "--beta", "1e12")
    call(*base, "--out", "slow", "--alpha", "1e-3", "--beta", "1e6")
    call(*base, "--out", "lame", "--peak", "1e6")
    fast, slow, lame = (read(tmp_path / name)["runs"][0] for name in ("fast", "slow", "lame"))
    assert fast["seconds"] < slow["seconds"] / 100
    assert fast["communication_share"] < slow["communication_share"]
    assert lame["seconds"] > 10 * fast["seconds"]
    assert lame["losses"] == fast["losses"] == slow["losses"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--strategy", "pipeline", "--schedule", "gpipe"), "pipeline (gpipe)"),
        (("--strategy", "pipeline", "--schedule", "pipedream"), "pipeline (pipedream)"),
        (("--strategy", "hybrid", "--pp", 2, "--tp", 2), "hybrid (pipeline 2, tensor 2, 1f1b)"),
    ],
)
def test_a_pipeline_shows_its_schedule(call, tmp_path, words, said):
    """One step of it, as a picture of its own; the time line is without whole actions, whose layers it shows."""
    base = (*SMALL, "--batch-size", 65, "--epochs", 1, "--world", "sim", "--size", 4, "--hidden", "16,16")
    result = call(*base, "--out", "out", *words)
    assert result.exit_code == 0, result.output
    assert f"1 epoch, {said}" in " ".join(result.output.split())
    assert (tmp_path / "out" / "schedule.png").exists()
    trace = Trace.load(tmp_path / "out" / "trace.json")
    step = actions_of(trace.window(*output.pipeline_step(trace)))
    m = 8 if "hybrid" in words else 16
    assert [a.action.microbatch for a in step if a.rank == 3 and a.action.kind == "B"] == list(range(m))
    assert {a.action.stage for a in actions_of(trace) if a.rank == 3} == {1 if "hybrid" in words else 3}


def test_only_an_mlp_has_widths():
    digits = data.load("digits")
    assert output.title(Settings(model="lenet"), digits, None)[1].startswith("lenet, float32, seed 0; ")
    assert output.title(Settings(hidden=(9,)), digits, None)[1].startswith("MLP 64-9-10, relu, float32, seed 0; ")


def test_a_preset_can_be_changed(call, tmp_path):
    changes = ("--data", "digits", "--world", "sim", "--epochs", 2, "--sizes", "1,3", "--n-train", 500)
    result = call("--preset", "fashion-sigmoid", *changes, "--out", "out")
    assert result.exit_code == 0, result.output
    content = read(tmp_path / "out")
    settings = content["settings"]
    assert (settings["activation"], settings["lr"], settings["optimizer"]) == ("sigmoid", 0.01, "sgd")
    assert (settings["data"], settings["epochs"]) == ("digits", 2)
    assert [run["ranks"] for run in content["runs"]] == [1, 3]
    assert "60 passes" in result.output
    differed = "--data, --epochs, --n-train, --world, --sizes differed"
    assert f"(--preset fashion-sigmoid as it stands; here {differed})" in result.output


def test_the_preset_of_whole_steps_says_from_which_size_ranks_pay(call):
    changes = ("--data", "digits", "--world", "sim", "--epochs", 1, "--sizes", "1,2")
    result = call("--preset", "fashion-sigmoid-full", *changes)
    assert result.exit_code == 0, result.output
    said = " ".join(result.output.split())
    assert "faster from about 16,000 images a step on" in said.partition(" speed-up ")[0], "before the table"


def test_help_says_where_a_folder_of_data_is_looked_for(call):
    assert "folder of IDX files in DISTLEARN_DATA" in " ".join(call("--help").output.split())


def test_large_batches_and_strategies_by_option(call, tmp_path):
    result = call("--preset", "large-batch", "--data", "digits", "--epochs", 2, "--out", "out")
    assert result.exit_code == 0, result.output
    settings = read(tmp_path / "out")["settings"]
    assert (settings["batch_size"], settings["reference_batch"], settings["warmup_epochs"]) == (4096, 128, 3.0)
    assert f"learning rate {0.01 * 1293 / 128:g} after 3 epochs, batch all" in result.output
    options = ("--strategy", "local_sgd", "--average-every", 3, "--world", "sim", "--size", 2)
    result = call(*SMALL, *options, "--out", "averaged")
    assert result.exit_code == 0, result.output
    assert ", local_sgd" in result.output
    assert read(tmp_path / "averaged")["settings"]["average_every"] == 3


@pytest.mark.parametrize("world", ["local", "engines"])
def test_a_gpu_that_is_not_there_is_told_in_a_line(call, monkeypatch, world):
    monkeypatch.setattr("distlearn.backend.has_gpu", lambda: False)
    result = call(*SMALL, "--device", "gpu", "--world", world)
    assert result.exit_code == 1
    assert result.output.startswith("Error: --device gpu, but no usable GPU was found")


# -- on real ranks


@pytest.mark.mpi
def test_under_mpiexec(tmp_path):
    from distlearn.world import launch

    command = ["python", "-m", "distlearn", "train", *SMALL, "--out", str(tmp_path / "out")]
    done = launch(2, command, timeout=120, capture=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("samples/s") == 1, "one rank reports"
    assert read(tmp_path / "out")["runs"][0]["ranks"] == 2
    assert not (tmp_path / "out-2").exists()


@pytest.mark.mpi
@pytest.mark.parametrize("words", [["--data", "nowhere"], ["--n-train", "1"], ["--out", "/proc/x"], ["--lr", "1e30"]])
def test_an_error_of_rank_0_alone_ends_all_ranks(tmp_path, words):
    """Of all ranks, too; both in a line."""
    from distlearn.world import launch

    command = [sys.executable, "-m", "distlearn", "train", *SMALL, "--out", str(tmp_path / "out"), *words]
    done = launch(3, command, timeout=60, capture=True)
    assert done.returncode
    assert done.stderr.count("Error: ") == 1
    assert "Traceback" not in done.stderr


@pytest.mark.engines
def test_interrupt_leaves_nothing_behind(tmp_path):
    """Ctrl-C while engines train: the command ends, and so do they."""
    import psutil

    words = ["train", "--hidden", "16", "--epochs", "100000", "--world", "engines", "--size", "2"]
    process = subprocess.Popen(
        [sys.executable, "-m", "distlearn", *words], cwd=tmp_path, stderr=subprocess.PIPE, text=True
    )
    try:
        line = process.stderr.readline()
        assert "2 ranks: step" in line
        family = psutil.Process(process.pid).children(recursive=True)
        assert family
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert process.returncode != 0
    assert "Traceback" not in err
    _, alive = psutil.wait_procs(family, timeout=30)
    assert alive == []


def test_a_run_goes_on_from_its_checkpoint_on_any_number_of_ranks(call, tmp_path):
    words = (*SMALL, "--dtype", "float64", "--checkpoint-every", 3)
    assert call(*words, "--out", "whole").exit_code == 0
    first = call(*words, "--epochs", 1, "--checkpoint", "state")
    assert first.exit_code == 0, first.output
    assert len(list((tmp_path / "state").glob("*.safetensors"))) == 2  # steps 3 and 4
    again = call(*words, "--checkpoint", "state", "--out", "again")
    assert again.exit_code != 0
    assert "holds checkpoints of a run up to step 4: resume it, or choose another folder" in again.output
    assert len(read(tmp_path / "state" / "results")["runs"][0]["epochs"]) == 1
    rest = call(*words, "--checkpoint", "state", "--resume", "--world", "sim", "--size", 3)
    assert rest.exit_code == 0, rest.output
    assert [p.name for p in (tmp_path / "state").iterdir() if p.is_dir()] == ["results"]  # the same folder
    whole, rest = read(tmp_path / "whole")["runs"][0], read(tmp_path / "state" / "results")["runs"][0]
    np.testing.assert_allclose(rest["losses"], whole["losses"], atol=1e-12)
    assert [e["test_accuracy"] for e in rest["epochs"]] == [e["test_accuracy"] for e in whole["epochs"]]
    done = call(*words, "--checkpoint", "state", "--resume", "--out", "done")  # there is nothing left to do
    assert done.exit_code == 0, done.output


def test_another_run_is_not_resumed_unasked(call, tmp_path):
    words = (*SMALL, "--checkpoint", "state", "--out", "out")
    assert call(*words, "--epochs", 1).exit_code == 0
    for changes, differs in (
        (("--clip-norm", 0.5), "clip_norm None (now 0.5)"),
        (("--warmup-epochs", 1), "lr"),
        (("--weight-decay", 0.1), "weight_decay=0.1"),
        (("--seed", 3), "seed 0 (now 3)"),
    ):
        refused = call(*words, *changes, "--resume")
        assert refused.exit_code == 1
        assert differs in refused.output
        assert "--resume-anyway" in refused.output
        assert len(read(tmp_path / "out")["runs"][0]["losses"]) == 4  # as before
    with pytest.warns(CheckpointWarning, match="clip_norm"):
        anyway = call(*words, "--clip-norm", 0.5, "--resume-anyway")
    assert anyway.exit_code == 0, anyway.output
    assert len(read(tmp_path / "out")["runs"][0]["losses"]) == 8
    refused = call(*words, "--batch-size", 40, "--resume-anyway")  # its steps lie elsewhere
    assert refused.exit_code == 1
    assert "batch_size 50 (now 40), " in refused.output
    assert "the steps of an epoch must use the same samples" in refused.output


# -- what it refuses: one line, before any work


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--data", "nonsense"], "unknown data set 'nonsense'"),
        (["--hidden", "16,0"], "expected positive whole numbers"),
        (["--hidden", "a"], "expected positive whole numbers"),
        (["--size", "0"], "0 is not in the range x>=1"),
        (["--size", "5000", "--world", "sim"], "5000 ranks, but 'digits' has only"),
        (["--sizes", "4,2"], "increasing numbers of ranks"),
        (["--sizes", ""], "'--sizes': '', expected"),
        (["--sizes", "1,2", "--size", "2"], "give only one of them"),
        (["--world", "local", "--size", "2"], "--world local is one rank, not 2"),
        (["--lr", "-1"], "Invalid value for '--lr': -1.0, expected a number of 0 or more"),
        (["--lr", "nan"], "'--lr': nan, expected a number"),
        (["--n-train", "99999999"], "n_train is 99999999"),
        (["--activation", "selu"], "'selu' is not one of"),
        (["--cap-bytes", "0"], "Invalid value for '--cap-bytes': 0, expected a whole number of 1 or more"),
        (["--world", "sim", "--beta", "0"], "beta is 0.0"),
        (["--preset", "nothing"], "'nothing' is not one of"),
        (["--pp", "2"], "--pp has no effect when --strategy is data, only with hybrid"),
        (["--strategy", "zero3", "--no-overlap"], "--overlap has no effect when --strategy is zero3, only with data"),
        (["--model", "lenet", "--hidden", "9"], "--hidden has no effect when --model is lenet, only with mlp"),
        (["--strategy", "hybrid", "--schedule", "pipedream"], "use it with --strategy pipeline"),
        (["--resume"], "--resume needs --checkpoint"),
        (["--checkpoint", "state", "--world", "sim", "--sizes", "1,2"], "--checkpoint keeps the state of one run"),
    ],
)
def test_bad_input(call, tmp_path, words, expected):
    result = call(*words)
    assert result.exit_code in (1, 2)
    assert expected in " ".join(result.output.split())
    assert "Traceback" not in result.output
    assert list(tmp_path.iterdir()) == [], "nothing was begun"


def test_a_model_without_convolutions_is_told_in_a_line(call):
    result = call(*SMALL, "--strategy", "one_weird_trick", "--world", "sim", "--size", "2")
    assert result.exit_code == 1
    assert "Error: OneWeirdTrick: expected layers to train before the first Linear, got Linear" in result.output


def test_divergence_is_one_line(call):
    result = call(*SMALL, "--lr", "1e30", "--world", "sim", "--size", "2")
    assert result.exit_code == 1
    assert "training diverged; try a smaller learning rate" in result.output
    assert "Traceback" not in result.output


def test_a_folder_that_cannot_be_written(call, tmp_path):
    (tmp_path / "file").write_text("mine", encoding="utf-8")
    result = call(*SMALL, "--out", tmp_path / "file" / "run")
    assert result.exit_code == 2
    assert "cannot write there" in result.output
    assert (tmp_path / "file").read_text(encoding="utf-8") == "mine"


@pytest.mark.parametrize("where", ["file", "file/state"])
def test_checkpoints_that_cannot_be_written_are_told_at_the_start(call, tmp_path, where):
    (tmp_path / "file").write_text("mine", encoding="utf-8")
    result = call(*SMALL, "--checkpoint", tmp_path / where)
    assert result.exit_code == 2
    assert "--checkpoint" in result.output
    assert [path.name for path in tmp_path.iterdir()] == ["file"], "nothing was begun"


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission_is_told_at_the_start(call, tmp_path):
    (tmp_path / "state").mkdir(mode=0o500)
    result = call(*SMALL, "--checkpoint", tmp_path / "state")
    assert result.exit_code == 2
    assert "--checkpoint" in result.output
    assert "cannot write there" in result.output


INTERRUPTED = """
import os, signal, sys
from distlearn.train import fit
from distlearn.cli import main

steps = 0
def step_and_interrupt(strategy, step):
    def stepped(batch):
        global steps
        steps += 1
        if steps == int(sys.argv[1]):
            os.kill(os.getpid(), signal.SIGINT)
        return step(batch)
    return stepped
import distlearn.train.program as program
build = program.build
def built(*args, **options):
    strategy = build(*args, **options)
    strategy.step = step_and_interrupt(strategy, strategy.step)
    return strategy
program.build = built
main(["train", *sys.argv[2:]], prog_name="distlearn")
"""


@pytest.mark.parametrize("world", ["local", "sim"])
def test_ctrl_c_keeps_what_there_is(tmp_path, world):
    words = [*SMALL, "--epochs", "9", "--world", world, "--out", "out"]
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, "10", *words], cwd=tmp_path, capture_output=True, text=True, check=False
    )  # 4 steps an epoch: in the third
    assert done.returncode == 130, done.stderr
    assert "Traceback" not in done.stderr
    assert "interrupted after 2 of 9 epochs" in done.stdout + done.stderr
    run = read(tmp_path / "out")["runs"][0]
    assert [epoch["epoch"] for epoch in run["epochs"]] == [1, 2]
    assert len(run["losses"]) == 8
    assert run["interrupted"] is True
    assert files(tmp_path / "out") == {"history.json", "trace.json", "curves.png", "timeline.png"}


@pytest.mark.mpi
def test_ctrl_c_under_mpiexec_keeps_what_there_is_and_says_how_to_go_on(tmp_path):
    words = [*SMALL, "--epochs", "9", "--out", tmp_path / "out", "--checkpoint", tmp_path / "state"]
    done = launch(2, ["python", "-c", INTERRUPTED, "10", *map(str, words)], timeout=90, capture=True)
    assert done.returncode == 130, done.stderr
    text = done.stdout + done.stderr
    assert "Traceback" not in text
    assert "interrupted after 2 of 9 epochs. The same command with --resume continues" in " ".join(text.split())
    assert len(read(tmp_path / "out")["runs"][0]["epochs"]) == 2


def test_ctrl_c_before_the_first_epoch_keeps_nothing(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, "2", *SMALL, "--out", "out"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 130, done.stderr
    assert "interrupted in the first epoch: there are no results" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out" / "history.json").exists()


# -- the folder


def folder_of(path, **options):
    with output.results_folder(path, **options) as folder:
        return folder


def test_nothing_is_overwritten(tmp_path):
    first = folder_of(tmp_path / "run")
    assert first == tmp_path / "run"
    assert not first.exists(), "a run that writes nothing leaves no folder"
    first.mkdir()
    assert folder_of(tmp_path / "run") == first, "an empty folder is free"
    first.mkdir()
    (first / "history.json").write_text("old", encoding="utf-8")
    (first / "notes.txt").write_text("mine", encoding="utf-8")
    assert folder_of(tmp_path / "run") == tmp_path / "run-2"
    (tmp_path / "run-2").mkdir()
    (tmp_path / "run-2" / "x").touch()
    assert folder_of(tmp_path / "run") == tmp_path / "run-3"
    assert (first / "history.json").read_text(encoding="utf-8") == "old"
    assert folder_of(tmp_path / "run", force=True) == first
    assert (first / "history.json").read_text(encoding="utf-8") == "old", "until there are new ones"
    assert (first / "notes.txt").read_text(encoding="utf-8") == "mine"


def test_a_full_disk_costs_what_does_not_fit_and_is_one_line(call, tmp_path):
    """Also the model of the run before stays; a limit on files' sizes fails as a full disk does."""
    words = ["--epochs", "1", "--n-train", "64", "--force", "--out", "out"]
    call(*words, "--seed", "1", "--sizes", "1,2", "--world", "sim")
    folder = tmp_path / "out"
    model, history = (folder / "model.safetensors").read_bytes(), (folder / "history.json").read_bytes()
    assert (folder / "speedup.png").exists()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(model) - 1, limits[1]))
    try:
        result = call(*words, "--seed", "2")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert result.exit_code == 1
    assert result.output.splitlines()[-1].startswith("Error: out: could not write model.safetensors (File too large")
    assert (folder / "model.safetensors").read_bytes() == model
    assert (folder / "history.json").read_bytes() != history
    assert files(folder) == {"history.json", "model.safetensors", "trace.json", "curves.png", "timeline.png"}


HOLD = """
import sys, pathlib
from distlearn.cli import output
with output.results_folder(pathlib.Path(sys.argv[1])) as folder:
    print(folder.name, flush=True)
    sys.stdin.readline()
"""


def test_two_commands_at_once_write_into_two_folders(tmp_path):
    """Neither has written anything yet: the folder is empty, and taken all the same."""
    other = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path / "run")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert other.stdout.readline() == "run\n"
        with output.results_folder(tmp_path / "run") as folder:
            assert folder == tmp_path / "run-2"
    finally:
        other.communicate("\n", timeout=60)
    assert folder_of(tmp_path / "run") == tmp_path / "run", "it went without a result: the folder is free again"


def test_commands_at_once_in_one_process_count_too(tmp_path):
    with output.results_folder(tmp_path / "run") as first, output.results_folder(tmp_path / "run") as second:
        assert (first.name, second.name) == ("run", "run-2")


def test_json_is_json(tmp_path):
    path = output.write_json(tmp_path / "x.json", {"a": math.nan, "b": (1, np.float32(0.5)), 3: [math.inf, None]})
    assert json.loads(path.read_text(encoding="utf-8")) == {"a": None, "b": [1, 0.5], "3": [None, None]}


def test_middle_steps():
    spans = [Span(0, "compute", name, t, t + 1) for t, name in enumerate(["forward", "update"] * 10)]
    assert output.middle_steps(Trace(spans)) == (8, 14)
    assert output.middle_steps(Trace(spans[:6])) == (None, None)
    start, end = output.middle_steps(Trace([*spans, Span(0, "compute", "evaluate", 9, 9.5)]))
    assert end - start == 6
    assert not start <= 9 < end


# -- the communication share


def spans(*rows):
    return [Span(0, lane, name, start, end) for lane, name, start, end in rows]


def test_communication_share():
    trace = Trace(
        spans(
            ("comm", "broadcast", 0, 10),  # before the first step
            ("compute", "forward", 10, 13),
            ("compute", "backward", 13, 16),
            ("comm", "all_reduce", 15, 18),  # one second hidden, two exposed
            ("compute", "update", 18, 20),
            ("compute", "forward", 20, 25),
            ("comm", "all_reduce", 30, 50),
            ("compute", "evaluate", 20, 50),  # what is inside does not count
            ("disk", "checkpoint", 50, 58),
            ("comm", "gather", 51, 57),
            ("compute", "forward", 60, 64),
            ("comm", "all_reduce", 64, 66),
            ("compute", "update", 66, 70),
            ("comm", "barrier", 70, 80),
        )
    )
    assert communication_share(trace) == pytest.approx((2 + 2) / (10 + 10))
    assert math.isnan(communication_share(Trace()))


def test_a_pipeline_that_updates_after_every_microbatch_waits_between_its_updates():
    rows = [("compute", "forward", 0, 1), ("compute", "update", 1, 2), ("comm", "recv", 2, 5)]
    rows += [("compute", "forward", 5, 6), ("compute", "update", 6, 7)]
    assert communication_share(Trace(spans(*rows))) == pytest.approx(3 / 7)
    simulated = Trace(spans(*[row for row in rows if row[0] == "compute"]), [Message(1, 0, 8, 4.0, 5.0, 0)])
    assert communication_share(simulated) == pytest.approx(3 / 7)


def test_kept():
    kept = BoundedList(2)
    for i in range(5):
        kept.append(i)
    assert kept == [0, 1]
    assert kept.dropped == 3


def test_a_long_run_keeps_a_bounded_trace(call, tmp_path, monkeypatch):
    monkeypatch.setattr("distlearn.cli.ranks.SPANS", 60)
    result = call(*SMALL, "--world", "sim", "--size", 2, "--out", "out")
    assert result.exit_code == 0, result.output
    assert "first part of the run" in result.output
    assert len(Trace.load(tmp_path / "out" / "trace.json")) == 60
    assert read(tmp_path / "out")["runs"][0]["spans_not_kept"] > 0


def test_progress_lines(capsys):
    from distlearn.cli.console import Lines

    lines = Lines("2 ranks")
    for step in range(1, 101):
        lines(step, 100, loss=1.0 / step, samples=step * 10)
        time.sleep(0.0005)
    err = capsys.readouterr().err.splitlines()
    assert len(err) == 11
    assert err[0] == "2 ranks: step 1 of 100, loss 1"
    assert "samples/s" in err[-1]


@pytest.mark.parametrize(
    ("load", "words", "said"), [(0.1, (), False), (50.0, (), True), (50.0, ("--world", "sim"), False)]
)
def test_a_busy_machine_is_told(call, monkeypatch, load, words, said):
    monkeypatch.setattr("distlearn.world.launching.busy_cores", lambda: load)
    assert ("times are unreliable" in call(*SMALL, *words).output) == said
