"""Pipeline parallelism equals serial training, whatever the schedule, and costs what its docstring says."""

import gc
import re
import weakref
from functools import partial
from itertools import chain
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distlearn.comm import Network, RankError
from distlearn.data import Batch
from distlearn.nn import MLP, BatchNorm, Dropout, Linear, MeanSquaredError, Sequential, SoftmaxCrossEntropy, Tanh
from distlearn.optim import RULES, SGD, Adam, Optimizer
from distlearn.parallel import Pipeline, interleaved
from distlearn.parallel.pipeline.schedule import Schedule, check_schedule, make_schedule, simulate
from distlearn.sim import Roofline, SimWorld

from ..programs import X, Y, assert_same_params, model_of, parts, run, serial

NETWORK, COMPUTE = Network(1e-4, 1e7), Roofline(1e8)


PUZZLE = """rank 0: F1 F0 . . . . B0 B1 F2 B2
            rank 1:    F0 F1 . B0 B1 .. F2 B2  # takes the first two the other way round
            rank 2:       F0 B0 F1 B1 F2 B2"""
"""Three ranks; the last two take the first two micro-batches in another order."""


def assert_equals_serial(world, rule="momentum", steps=4, **options):
    """Compare parameters, losses and predictions with those of a serial run."""
    want = SimWorld(1).run(run, serial, "deep", rule, steps=steps)[0]
    results = world.run(run, partial(Pipeline, **options), "deep", rule, steps=steps)
    assert_same_params(results[0].params, want.params)
    for result in results:
        np.testing.assert_allclose(result.losses, want.losses, atol=1e-12)
        np.testing.assert_allclose(result.output, want.output, atol=1e-12)
    assert [r.params for r in results[1:]] == [None] * (world.size - 1)
    return results


@pytest.mark.parametrize("eager_limit", [0, 10_000])
def test_a_schedule_of_ones_own_trains_as_well(eager_limit):
    """As text, as a generator; with micro-batches in any order, that another rank takes in another order."""

    def depth_first(rank, n_ranks, n_microbatches):
        for i in reversed(range(n_microbatches)):
            yield f"F{i}"
            yield ("B", i)

    world = SimWorld(3, NETWORK, COMPUTE, eager_limit=eager_limit)
    results = assert_equals_serial(world, schedule=PUZZLE)
    assert results[0].strategy.n_microbatches == 3
    assert_equals_serial(world, schedule=depth_first, n_microbatches=5)


def test_two_stages_need_not_be_neighbours_on_the_ranks():
    """Stages 0 and 3 on one rank, 1 and 2 on the other: what passes from 1 to 2 stays where it is."""
    folded = "0F0 0F1 3F0 3B0 3F1 3B1 0B0 0B1\n1F0 2F0 1F1 2F1 2B0 1B0 2B1 1B1"
    world = SimWorld(2, NETWORK, COMPUTE)
    results = assert_equals_serial(world, schedule=folded, steps=1)
    assert [sorted(r.strategy.stages) for r in results] == [[0, 3], [1, 2]]


@given(edits=st.data(), name=st.sampled_from(["gpipe", "1f1b", "interleaved", "zero_bubble"]), p=st.integers(1, 3))
@settings(max_examples=80, deadline=None)
def test_what_the_checker_accepts_runs_and_equals_serial(edits, name, p):
    """Schedules with random edits: a backward split, whole beside its halves, actions moved, added or left out."""
    orders = [list(order) for order in make_schedule(name, p, p).orders]
    for rank, what in edits.draw(st.lists(st.tuples(st.integers(0, p - 1), st.sampled_from("sssmmmwad")), max_size=3)):
        order = orders[rank]
        i, j = (edits.draw(st.integers(0, len(order) - 1)) for _ in range(2))
        action = order[i]
        if what == "s" and action.kind == "B":
            order[i : i + 1] = [action._replace(kind="I"), action._replace(kind="W")]
        elif what == "w":
            order.insert(j, action._replace(kind="B"))
        elif what == "m":
            order.insert(j, order.pop(i))
        elif what == "a":
            order.insert(j, action._replace(kind=edits.draw(st.sampled_from("FBIW"))))
        elif what == "d" and len(order) > 1:
            order.pop(i)
    made = Schedule(tuple(map(tuple, orders)), p)
    if check_schedule(made).ok:
        results = assert_equals_serial(SimWorld(p), schedule=made, steps=1)
        assert [r.strategy.peak_in_flight for r in results] == [made.in_flight(rank) for rank in range(p)]
    else:
        with pytest.raises(RankError, match="wrong schedule"):
            SimWorld(p).run(run, partial(Pipeline, schedule=made), "deep")


@pytest.mark.parametrize("rule", ["adam", "lars"])
def test_every_rank_keeps_the_states_of_its_own_parameters(rule):
    results = assert_equals_serial(SimWorld(3), rule=rule)
    names = [[p.name for p in r.strategy.params] for r in results]
    assert [*chain(*names)] == [p.name for p in model_of("deep").params]
    assert [len(r.strategy.optimizer.states) for r in results] == [len(n) for n in names]


@pytest.mark.parametrize("kind", ["deep", "deep tied"])
def test_gradients_are_complete_when_on_grad_says_so(kind):
    """Once each, the last layer's first, a shared one after its sum; in the same order however few samples there are.

    Else replicas whose part of a batch is empty would sum other buckets than those that have samples.
    """

    def program(comm, batch):
        pipeline = Pipeline(comm, *parts(model_of(kind)), n_microbatches=3)
        seen = []
        pipeline.accumulate(Batch(X[:batch], Y[:batch], 20), on_grad=lambda p: seen.append((p.name, p.grad.copy())))
        assert sorted(n for n, _ in seen) == sorted(p.name for p in pipeline.params)
        assert all(np.array_equal(g, p.grad) for n, g in seen for p in pipeline.params if p.name == n)
        return [name for name, _ in seen]

    names = SimWorld(3).run(program, 20)
    if kind == "deep tied":
        assert all(n[-1] in ("1.W", "1.b") for n in names[::2])
    else:
        assert [*chain(*reversed(names))] == [p.name for p in reversed(model_of(kind).params)]
    for batch in (0, 1, 2):
        assert SimWorld(3).run(program, batch) == names


def executed(comm, schedule, m, **options):
    """One step, and when it began on this rank."""
    options = {"schedule": schedule, "n_microbatches": m, "shape": (8, 32), **options}
    pipeline = Pipeline(comm, *parts(MLP((32,) * 9, "relu", seed=1)), **options)
    x, y = np.ones((64, 32), "float32"), np.zeros(64, int)
    pipeline._cut_batch(x)  # stages agree on shapes once: those messages are not part of a step
    comm.barrier()
    began = comm.clock.now()
    pipeline.accumulate(Batch(x, y, 64))
    return SimpleNamespace(began=began, pipeline=pipeline)


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "interleaved", partial(interleaved, n_virtual=3)])
@pytest.mark.parametrize(("size", "m"), [(1, 4), (2, 4), (2, 8), (4, 8)])
def test_the_time_line_is_what_the_schedule_predicts(schedule, size, m):
    """Stages of unequal cost on a simulated machine: every action starts and ends when `simulate` says."""
    world = SimWorld(size, Network(alpha=3e-6), Roofline(1e9))
    results = world.run(executed, schedule, m)
    trace = world.trace.window(max(r.began for r in results))
    made = results[0].pipeline.schedule
    model = MLP((32,) * 9, "relu", seed=1)
    costs = {"F": [0.0] * made.n_stages, "B": [0.0] * made.n_stages}
    for s, part in enumerate(results[0].pipeline.slices):
        for layer, shape in model.parts((64 // m, 32))[part]:
            costs["F"][s] += layer.flops(shape) / 1e9
            costs["B"][s] += layer.backward_flops(shape) / 1e9
    predicted = simulate(made, forward=costs["F"], backward=costs["B"], transfer=3e-6)
    for rank in range(size):
        got = trace.select(rank=rank, lane="stage")
        want = sorted(predicted.trace.select(rank=rank), key=lambda s: s.start)
        assert [s.name for s in got] == [s.name for s in want]
        np.testing.assert_allclose([s[3:5] for s in got], [s[3:5] for s in want], rtol=1e-9, atol=1e-15)


def test_messages_and_bytes_are_those_of_the_docstring():
    world = SimWorld(4, collectives="formula")  # the messages are those of the strategy itself
    results = world.run(executed, "1f1b", 8)
    began = max(r.began for r in results)
    stages = [m for m in world.trace.messages if m.tag]
    assert len(stages) == 2 * 3 * 8  # three cuts, there and back, eight micro-batches
    assert sum(m.nbytes for m in stages) == 2 * 3 * 64 * 32 * 4
    assert began == 0


def test_halves_cost_what_backward_costs():
    x = np.zeros((4, 8), np.float32)

    def seconds(schedule):
        world = SimWorld(1, compute=Roofline(peak=1e9))

        def program(comm):
            net = Sequential(Linear(8, 5, 0), Tanh(), Linear(5, 3, 1))
            strategy = Pipeline(comm, *parts(net), schedule=schedule)
            strategy.step(Batch(x, np.zeros(4, int), 4))

        world.run(program)
        return world.makespan, [s.name for s in world.trace.select(rank=0, lane="compute")]

    whole, names = seconds("F0 B0")
    halves, split = seconds("F0 I0 W0")
    assert halves == pytest.approx(whole)
    assert "backward_weights[0.Linear]" in split
    assert "backward_weights[0.Linear]" not in names


def test_batch_norm_normalises_micro_batches():
    """As serial training does that accumulates gradients over the same micro-batches."""

    def model_of_norms():
        layers = [Linear(7, 6, 1, dtype="float64"), BatchNorm(6, dtype="float64"), Tanh()]
        return Sequential(
            *layers, Linear(6, 6, 2, dtype="float64"), BatchNorm(6, dtype="float64"), Linear(6, 4, 3, dtype="float64")
        )

    def program(comm):
        pipeline = Pipeline(comm, *parts(model_of_norms(), lr=0.3), n_microbatches=3)
        pipeline.step(Batch(X[:20], Y[:20], 20))
        return pipeline.gather_params()

    serial = model_of_norms()
    for rows in (slice(0, 7), slice(7, 14), slice(14, 20)):
        y, saved = serial.forward(X[rows])
        serial.backward(SoftmaxCrossEntropy()(y, Y[rows], 20)[1], saved)
    Optimizer(serial.params, RULES["sgd"](), 0.3).step()
    for size in (1, 2, 3):
        assert_same_params(SimWorld(size).run(program)[0], {p.name: p.data for p in serial.params})


def test_a_rank_holds_on_to_nothing_but_its_stages():
    def program(comm):
        model = model_of("deep")
        strategy = Pipeline(comm, *parts(model, Adam(), 0.3))
        others = [weakref.ref(layer) for layer in model.layers]
        del model
        gc.collect()
        kept = [i for i, ref in enumerate(others) if ref() is not None]
        return kept, strategy.slices[comm.rank]

    for kept, part in SimWorld(3).run(program):
        assert kept == list(range(part.start, part.stop))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"schedule": "F0 B0 F1 B1\nF0 F1 B0 B1"}, "deadlock: rank 0 at position 1 (B0) waits for B0"),
        ({"schedule": "F0 F1 B0 B1"}, "the schedule's number of ranks is 1, expected 2"),
        ({"schedule": "zigzag"}, "word 0 is 'zigzag'"),
        ({"schedule": "interleaved", "n_microbatches": 3}, "expected a multiple of the 2 ranks"),
        ({"schedule": "pipedream"}, "use PipeDream"),
        ({"stages": [slice(0, 4)]}, "1 slices, but the schedule has 2 stages"),
        ({"stages": [slice(0, 4), slice(5, 11)]}, "expected slices that hold the layers 0 to 10 once"),
        ({"stages": [1.0, 2.0]}, "2 costs for the 11 layers"),
        ({"stages": []}, "stages: [], expected a list: slices of the layers"),
        ({"stages": 2}, "stages: 2, expected a list: slices of the layers"),
        ({"schedule": partial(interleaved, n_virtual=6), "n_microbatches": 2}, "12 stages of 11 layers"),
    ],
)
def test_what_cannot_be_is_said_before_anything_runs(options, message):
    with pytest.raises(RankError, match=re.escape(message)):
        SimWorld(2).run(run, partial(Pipeline, **options), "deep")


def test_a_stage_that_gives_no_gradient_is_named():
    def program(comm, cut):
        model = Sequential(Tanh(), Linear(7, 4, 0, dtype="float64", input_gradient=False))
        options = {} if cut is None else {"stages": [slice(0, cut), slice(cut, None)]}
        Pipeline(comm, *parts(model, lr=0.3), **options).step(Batch(X, Y, 60))

    with pytest.raises(RankError, match=r"rank 1: ValueError: stage 1: .* has no gradient of its input"):
        SimWorld(2).run(program, 1)
    with pytest.raises(RankError, match="2 stages of 2 layers, of which the first 2 stay together, expected 1 to 1"):
        SimWorld(2).run(program, None)


def test_inputs_of_another_shape_are_agreed_on_again():
    """Sentences of another length, images of another size: whatever the layers take."""

    def program(comm):
        model = Sequential(*(x for i in range(3) for x in (Linear(4, 4, i, dtype="float64"), Tanh())))
        strategy = Pipeline(comm, model, MeanSquaredError(), Optimizer(model.params, RULES["sgd"](), 0.1))
        return [strategy.step(Batch(x, x * 0.5, len(x))) for x in (X[:, :4], X[:, :4].reshape(30, 2, 4), X[:, :4])]

    want = SimWorld(1).run(program)[0]
    for losses in SimWorld(3).run(program):
        np.testing.assert_allclose(losses, want, atol=1e-12)


def test_layers_on_two_ranks_do_not_draw_from_one_generator():
    """Each rank would have its own copy, and the masks would depend on where the model is cut."""

    def program(comm):
        rng = np.random.default_rng(0)
        model = Sequential(Linear(7, 6, 0), Dropout(0.5, rng), Linear(6, 6, 1), Dropout(0.5, rng), Linear(6, 4, 2))
        optimizer = Optimizer(model.params, SGD(), 0.1)
        return Pipeline(comm, model, SoftmaxCrossEntropy(), optimizer, stages=[1] * 5).n_microbatches

    assert SimWorld(1).run(program) == [4]
    told = r"layers '1\.Dropout' and '3\.Dropout', which are on different ranks, draw from one generator"
    with pytest.raises(RankError, match=told):
        SimWorld(2).run(program)
