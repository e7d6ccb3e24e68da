"""Public bug reports about tools of this kind, and the test that tries each one's smallest equivalent here.

What is built is tried on five of them before it is called done, and the row stays: where it was reported, what the
person did and should have got, and which test holds it.
"""

import ast
from pathlib import Path

import pytest

REPORTS = [
    (
        "Lightning-AI/pytorch-lightning #18238",
        "a model made outside and given to all ranks trains as one of the rank",
        "sim/test_copies.py::test_a_model_of_the_caller_trains_as_one_of_the_rank",
    ),
    (
        "ipython/ipyparallel #742",
        "an argument that a rank changes in place is its own copy",
        "sim/test_copies.py::test_what_a_rank_changes_is_its_own",
    ),
    (
        "open-mmlab/mmdetection #4582, mmpose #998, pytorch #13711",
        "the accuracy in the log is that of the saved weights, BatchNorm's statistics included",
        "parallel/test_statistics.py::test_all_ranks_report_and_predict_the_model_that_is_handed_out",
    ),
    (
        "PaddlePaddle/Paddle #9386, tensorflow #11965",
        "a parameter server's model has the moving statistics of its workers",
        "parallel/test_statistics.py::test_a_parameter_server_has_the_statistics_of_its_workers",
    ),
    (
        "facebookresearch/fairscale #605, audiocraft #260, apex #46",
        "a parameter frozen after the optimizer was made is refused by name, in every strategy",
        "parallel/test_misuse.py::test_freezing_too_late_is_refused_by_name",
    ),
    (
        "V2AI/Det3D #109, Horovod's elastic example (PR #1849)",
        "a learning rate set by hand is trained with, in every strategy",
        "parallel/test_misuse.py::test_settings_of_the_optimizer_hold_from_when_they_are_set",
    ),
    (
        "NVIDIA/Megatron-LM #6087, pytorch #117421",
        "weights loaded after wrapping are trained on, or refused by name",
        "parallel/test_misuse.py::test_weights_that_are_set_between_steps_are_used_or_refused_by_name",
    ),
    (
        "NVIDIA/Megatron-LM #655, pytorch #96136, OLMo-core PR #828",
        "activation checkpointing changes no number, in every strategy",
        "parallel/test_differential.py::test_on_the_simulator",
    ),
]


@pytest.mark.parametrize(("source", "expected", "held_by"), REPORTS, ids=[source for source, *_ in REPORTS])
def test_a_test_holds_what_was_reported(source, expected, held_by):
    assert "#" in source
    path, _, name = held_by.partition("::")
    tree = ast.parse((Path(__file__).parent / path).read_text(encoding="utf-8"))
    assert name in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}, expected
