"""Published runs: what is read from the tables, and how well sealed rows of them are predicted."""

import numpy as np
import pytest
from distcourse.backtest import predict_step, published, skill

from tests.benchmarks.bench_backtest import backtest, measured, predicted

TABLES = published()
TABLE = TABLES["Megatron-LM, table 2"]


def test_every_row_is_a_layout_of_its_gpus_and_a_batch_of_its_replicas():
    assert sum(len(table.runs) for table in TABLES.values() if table.name.startswith("MPT")) == 216
    for table in TABLES.values():
        assert {"open"} < {run.part for run in table.runs}
        for run in table.runs:
            assert run.replicas * run.tensor * run.pipeline * run.context == run.gpus, run
            assert run.microbatches * run.replicas * run.microbatch == run.batch, run
            assert run.blocks % (run.pipeline * run.chunks) == 0 or "llama-405b" in str(run) or "bloom" in str(run), run
            assert 0.01 < measured(table, run) / (table.peak / 1e12) < 0.75, run


def test_operations_are_those_that_the_papers_count():
    run = TABLE.runs[-1]
    P, tokens = 529.6e9, run.batch * run.length
    assert run.flops(False) == pytest.approx(6 * P * tokens, rel=0.03)
    formula = 96 * tokens * run.blocks * run.width**2
    formula *= 1 + run.length / 6 / run.width + run.symbols / 16 / run.blocks / run.width
    assert run.flops(True) == pytest.approx(formula)


@pytest.mark.nightly
def test_sealed_rows_are_predicted_better_than_by_a_constant():
    """BLOOM's bubble, from its largest batch alone."""
    found = backtest(TABLES["BLOOM, three batches"])
    (score,) = (score for score in found.scores() if score.part == "sealed")
    assert score.rows == 2
    assert score.skill > 0.5
    assert found.predicted == sorted(found.predicted)
    assert found.worst().part != "open"


def test_zero_falls_behind_where_it_gathers_longer_than_it_computes():
    """The largest runs of table 2: 48 and 159 TFLOP/s."""
    zero, both = (predicted(TABLE, TABLE.runs[i], efficiency=0.6, links=4) for i in (5, 11))
    assert both > 2 * zero


def test_a_step_is_the_sum_of_what_layouts_change():
    run = TABLE.runs[-1]._replace(recompute=False)
    plain = predict_step(run, TABLE, 0.6, 8)
    assert (plain.again, plain.seconds) == (0, pytest.approx(sum(plain)))
    again = predict_step(run._replace(recompute=True), TABLE, 0.6, 8)
    assert again.passes == plain.passes
    assert 0.2 < again.again / plain.passes < 0.4  # forward is a third of both passes
    chunks = predict_step(run._replace(chunks=3), TABLE, 0.6, 8)
    assert chunks.bubble / (chunks.passes + chunks.messages) == pytest.approx(34 / 3 / run.microbatches)
    assert chunks.messages == pytest.approx(3 * plain.messages)
    alone = predict_step(run._replace(gpus=8, pipeline=1, batch=64), TABLE, 0.6, 8)
    assert alone.bubble == alone.messages == alone.reduction == 0


def test_skill():
    measured = np.array([144.0, 88, 44])
    assert skill(measured, measured, 100) == 1
    assert skill(np.full(3, 100), measured, 100) == 0
    assert skill(2 * measured, measured, 88) < 0
