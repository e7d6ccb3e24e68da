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
    (
        "ray #6449, joblib #1085, dask #8516",
        "a module that was edited and reloaded is the one that ranks run",
        "world/test_engines.py::test_a_module_that_was_reloaded_is_reloaded_on_the_engines",
    ),
    (
        "pyGSTi #697, shenfun #71, mfem #1133, firedrake #2669",
        "communicators of a loop are freed, in whatever order ranks drop them",
        "world/test_engines.py::test_communicators_that_nobody_keeps_are_freed",
    ),
    (
        "mpi4py #440, numba-mpi #31, ptypy #51",
        "the advice for an array that is not contiguous leads to the right sum",
        "comm/test_contract.py::test_masked_arrays_are_refused",
    ),
    (
        "mpi4py #8",
        "parts of unequal length: the error names gather_obj",
        "comm/test_contract.py::test_parts_of_unequal_length_are_told_of_objects",
    ),
    (
        "jupyter/notebook #5470",
        "a random.py beside the notebook takes no module's place",
        "world/test_engines.py::test_a_world_that_is_assigned_again_ends_and_other_files_take_no_modules_place",
    ),
    (
        "pmodels/mpich #7530, ga #254",
        "a small /dev/shm is named, with the way out",
        "world/test_engines.py::test_why_the_controller_did_not_start_is_told",
    ),
    (
        "keras #6914",
        "pixels from 0 to 255: the advice of the error trains",
        "train/test_train.py::test_pixels_that_are_scaled_as_the_errors_say_train",
    ),
    (
        "sar-gupta/neural-network-from-scratch #10",
        "a NaN of the data is named, not the learning rate",
        "train/test_train.py::test_what_made_a_loss_nan_is_named",
    ),
    (
        "accelerate #662, tensorflow/models #4065, elasticdl #89",
        "warm-up ends after the epochs that were asked for; the defaults learn under every policy",
        "train/test_asynchronous.py::test_the_defaults_learn_whatever_the_policy",
    ),
    (
        "mmpretrain #507, pytorch/vision #2831",
        ".ipynb_checkpoints is no class",
        "data/test_loader.py::test_which_images_of_a_folder_count",
    ),
    (
        "sd-scripts #1316, yolov5 #405, transferlearning #92",
        "photographs are turned as a viewer shows them",
        "data/test_loader.py::test_photos_are_turned_as_they_are_shown",
    ),
    (
        "pytorch/vision #2218, Pillow #3011",
        "16-bit pictures are scaled, not clipped",
        "data/test_loader.py::test_deep_pixels_are_scaled_not_clipped",
    ),
    (
        "jadeocr #1, makeyourownneuralnetwork #49",
        "transparent pixels are refused, with the way out",
        "data/test_loader.py::test_pixels_that_would_be_lost_are_refused",
    ),
    (
        "pytorch #5059, fairseq #1383",
        "np.random in augmentation depends on seed, epoch and row",
        "data/test_loader.py::test_global_generators_depend_on_seed_epoch_and_row_alone",
    ),
    (
        "Automodel PR #3261, canvas_grab #40",
        "a full disk keeps the old model and says one line",
        "cli/test_train.py::test_a_full_disk_costs_what_does_not_fit_and_is_one_line",
    ),
    (
        "safetensors #598, tinygrad PR #2453",
        "bfloat16 weights load",
        "train/test_weights.py::test_bfloat16_is_read_and_eight_bits_are_named",
    ),
    (
        "tensorizer PR #27, pytorch #32691",
        "integers, NaN and what overflows are no weights",
        "train/test_weights.py::test_what_cannot_be_weights_is_refused_and_changes_nothing",
    ),
    (
        "tensorflow-onnx #993, MMdnn #595",
        "channels-first pictures are refused",
        "train/test_weights.py::test_channels_first_are_refused",
    ),
    (
        "perfetto #4280, #6277, #928, #394",
        "no span or arrow of a trace is dropped",
        "test_trace.py::test_perfetto_draws_every_span_and_arrow",
    ),
    (
        "dynamo PR #12525, r-simmer #97",
        "times and amounts that are none are refused",
        "sim/test_world.py::test_no_clock_stands_at_what_is_no_time",
    ),
    (
        "matplotlib-inline #22",
        "every figure of a notebook is shown",
        "viz/test_look.py::test_a_notebook_shows_every_figure",
    ),
    (
        "fairseq #2235",
        "GELU's slope is finite in half precision",
        "nn/test_half.py::test_an_activation_is_right_from_end_to_end",
    ),
    (
        "pytorch #60939, ultralytics PR #24990",
        "scores of attention may be larger than half precision",
        "nn/test_half.py::test_scores_of_attention_may_be_larger_than_half_precision",
    ),
    (
        "candle PR #3719, MIOpen #2109",
        "average pooling sums in single precision",
        "nn/test_half.py::test_pools_softmax_and_losses_sum_in_single_precision",
    ),
    (
        "burn #5699, pytorch #46849",
        "a finite half gradient is clipped to its direction",
        "nn/test_half.py::test_a_norm_is_right_where_squares_are_not",
    ),
    (
        "optax #1754, chainer #6299",
        "an eps that half precision rounds to 0 is refused",
        "optim/test_mixed.py::test_an_eps_that_is_0_is_refused_and_mixed_precision_trains",
    ),
    (
        "apex #1658, apex PR #42",
        "master weights follow weights that are loaded",
        "optim/test_mixed.py::test_masters_go_on_from_weights_that_were_changed",
    ),
    (
        "apex #715, DeepSpeed #697",
        "a loss scale that falls for ever ends, with the place",
        "optim/test_mixed.py::test_a_scale_that_falls_for_ever_ends_and_names_the_place",
    ),
    (
        "Automodel PR #3830, transformers #34242, prime-rl #1957",
        "a loss that ignores n is named",
        "parallel/test_misuse.py::test_a_loss_that_does_as_the_error_says_trains_as_that_of_the_library",
    ),
    (
        "torchmetrics #845, lightning #2346",
        "F1 is equal on any number of ranks",
        "train/test_metrics.py::test_a_metric_of_several_sums_is_equal_on_any_number_of_ranks",
    ),
    (
        "CUDA by Example (the book's repository, lock.h) #1",
        "host members are left out, and locks order accesses",
        "cuda/test_shadow.py::test_a_lock_of_each_bucket",
    ),
    (
        "cupy #5436, cupy #9667",
        "templates are found by their expressions",
        "cuda/test_card.py::test_names_are_those_of_nvrtc",
    ),
    (
        "cutlass #1811",
        "what the emulator lacks is refused by name",
        "cuda/test_card.py::test_both_refuse",
    ),
    (
        "Paddle PR #32494",
        "a gradient that a layer or loss forgets is named",
        "parallel/test_misuse.py::test_a_layer_that_forgets_its_gradient_is_named",
    ),
    (
        "Liger-Kernel #254, #272",
        "a loss that writes into the output is named at the first step",
        "parallel/test_misuse.py::test_a_loss_that_is_no_loss_is_named_at_the_first_step",
    ),
]


@pytest.mark.parametrize(("source", "expected", "held_by"), REPORTS, ids=[source for source, *_ in REPORTS])
def test_a_test_holds_what_was_reported(source, expected, held_by):
    assert "#" in source
    path, _, name = held_by.partition("::")
    tree = ast.parse((Path(__file__).parent / path).read_text(encoding="utf-8"))
    assert name in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}, expected
