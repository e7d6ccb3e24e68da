"""The link between judge and submission: a check works as in one process, and the other end gets nothing more."""

import io
import json
import multiprocessing
import pickle
import socket

import numpy as np
import pytest
from distcourse import Check
from distcourse.judge import objects, student
from distcourse.judge.frames import Connection, ProtocolError
from distcourse.judge.link import ASK, Link

import distlearn as dl

from ..course.submissions import answered

pytestmark = pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="needs fork")

ANSWERS = """
kept = []
def same(x): return x
def add_one(x): x += 1
def overlapped(comm, x):
    work = comm.iall_reduce(x)
    with comm.clock.span("think", flops=1e6):
        pass
    work.wait()
    return comm.clock.now()
def wrong(): raise KeyError("lost")
def ends(f, x): return f(x[:0], x[2:2], np.empty(0), x[1:3])
def misspelt(gradient): return gradent
def call(f): return f()
class Number(int): pass
def many(kind): return {"parameters": [[eval(kind)(0)] * 1_000_000] * 4}
def read(f, name): return getattr(f, name)
class Inherits(dl.nn.ReLU): pass
mean_of = dl.nn.nbytes
def plan(k): return lambda step: k * step
class Dense(dl.nn.Layer):
    def __init__(self, d_in, d_out):
        self.W = dl.nn.Param(np.ones((d_in, d_out)), "W")
        self.params = [self.W]
    def forward(self, x): return x @ self.W.data, x
    def backward(self, dy, saved):
        self.W.grad += saved.T @ dy
        return dy @ self.W.data.T
    def replace(self): self.W.grad = self.W.grad + 1
"""


SOLUTIONS = answered("lab00", "mean_over_ranks") | answered("lab01", "step") | answered("lab07", "overlapped_backward")


def _serve(end):
    namespace = SOLUTIONS | {"np": np, "dl": dl}
    exec(ANSWERS, namespace)
    student.StudentLink(Connection(end), namespace).run()


@pytest.fixture
def answer():
    """Return a function: what the other process has under a name."""
    mine, other = socket.socketpair()
    process = multiprocessing.get_context("fork").Process(target=_serve, args=(other,), daemon=True)
    process.start()
    other.close()
    link = Link(Connection(mine), "j", objects.of_judge, objects.judge_allows)

    def named(name):
        return link.request("name", name)

    yield named
    link.request("end", None)
    mine.close()
    process.join(10)
    assert process.exitcode == 0


def test_plain_values_come_back_as_they_went(answer):
    same = answer("same")
    for value in (None, True, 3, -(2**80), 2.5, "é", b"\0", 1j, (1, [2, {"a": {3}}]), {4: (5,)}, ..., range(3), np.inf):
        got = same(value)
        assert got == value
        assert type(got) is type(value)
    assert np.isnan(same(float("nan")))
    got = same(np.float32(0.1))
    assert (type(got), got) == (np.float32, np.float32(0.1))
    words = same(np.array([["a", "bc"]]))
    assert words.tolist() == [["a", "bc"]]


@pytest.mark.parametrize("kind", ["int", "Number"])
def test_more_values_than_can_be_read_are_refused_at_once(answer, kind):
    """Fifty million of them kept a worker for 111 s, far beyond the limit of their check."""
    with pytest.raises(TypeError, match="more than 1,000,000 values in lists, tuples, sets and dicts"):
        answer("many")(kind)


def test_arrays_keep_identity_overlap_and_changes(answer):
    same, add_one = answer("same"), answer("add_one")
    table = np.arange(12.0).reshape(3, 4)
    assert same(table) is table
    assert same([table[1], table])[1] is table
    add_one(table[:, 1:3])
    assert table[0].tolist() == [0, 2, 3, 3]
    fortran, reverse = np.asfortranarray(np.arange(6.0).reshape(2, 3)), table[::-1]
    assert np.array_equal(same(fortran), fortran)
    assert same(reverse) is reverse
    fixed = np.ones(3)
    fixed.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        add_one(fixed)


def test_arrays_without_elements(answer):
    table = np.arange(5.0)
    nothing = table[3:3]
    assert answer("same")(nothing) is nothing
    assert answer("same")(np.empty((2, 0))).shape == (2, 0)

    def count(*parts):
        parts[-1][...] = 7
        return [part.size for part in parts]

    assert answer("ends")(count, table) == [0, 0, 0, 2]
    assert answer("ends")(count, np.arange(3.0)) == [0, 0, 0, 2]
    assert table.tolist() == [0, 7, 7, 3, 4]


def test_layers_of_the_submission(answer):
    layer = answer("Dense")(3, 2)
    assert type(layer).__name__ == "Dense"
    layer.W.data[:] = 2
    x = np.arange(3.0).reshape(1, 3)
    y, saved = layer.forward(x)
    assert saved is x
    assert y.tolist() == [[6, 6]]
    grad = layer.W.grad
    layer.backward(np.ones((1, 2)), saved)
    assert grad.tolist() == [[0, 0], [1, 1], [2, 2]]
    assert layer.params[0] is layer.W
    assert layer.W.grad is grad
    layer.replace()
    assert layer.W.grad is not grad
    assert layer.W.grad.tolist() == [[1, 1], [2, 2], [3, 3]]


def test_functions_of_the_check_are_called_back(answer):
    z = np.random.default_rng(0).normal(size=(2, 3))
    assert np.allclose(answer("numeric_gradient")(lambda: float((z**2).sum()), z), 2 * z)
    assert answer("plan")(3)(4) == 12


def test_simulated_ranks_wait_for_each_other_in_the_middle_of_an_answer(answer):
    mean, overlapped = answer("mean_over_ranks"), answer("overlapped")
    got = dl.SimWorld(4).run(lambda comm: mean(comm, np.full(2, float(comm.rank))))
    assert [g.tolist() for g in got] == [[1.5, 1.5]] * 4
    world = dl.SimWorld(3, dl.Network(1e-6, 4e9), dl.Roofline(5e9))
    assert world.run(lambda comm: overlapped(comm, np.ones(5))) == [world.makespan] * 3


def test_models_of_the_library_are_copies_that_share_their_parameters(answer):
    def trainer(cls):
        model = dl.nn.MLP((6, 5, 3), dtype="float64")
        optimizer = dl.optim.Optimizer(model.params, dl.optim.SGD(), 0.1)
        return cls(None, model, dl.nn.SoftmaxCrossEntropy(), optimizer), model

    batch = dl.data.Batch(np.random.default_rng(4).normal(size=(8, 6)), np.arange(8) % 3, 8)
    (mine, model), (theirs, twin) = trainer(answer("Trainer")), trainer(dl.Serial)
    for _ in range(3):
        assert mine.step(batch) == theirs.step(batch)
    assert mine.model is model
    for p, q in zip(model.params, twin.params, strict=True):
        assert np.array_equal(p.data, q.data)


def test_buckets_keep_their_views(answer):
    overlapped = answer("overlapped_backward")

    def run(comm, backward):
        model = dl.nn.MLP((6, 5, 3), dtype="float64")
        buckets = dl.parallel.make_buckets(model.params, 100)
        logits, saved = model.forward(np.ones((4, 6)) * comm.rank, clock=comm.clock)
        backward(comm, model, np.ones_like(logits), saved, buckets)
        return [p.grad.copy() for p in model.params]

    def plain(comm, model, dlogits, saved, buckets):
        model.backward(dlogits, saved)
        [comm.all_reduce(p.grad) for p in model.params]

    got, want = dl.SimWorld(3).run(run, overlapped), dl.SimWorld(3).run(run, plain)
    for a, b in zip(got[0], want[0], strict=True):
        assert np.allclose(a, b)


def test_exceptions_keep_their_class_and_their_place(answer):
    with pytest.raises(KeyError) as caught:
        answer("wrong")()
    assert caught.value._distlearn_frames[-1].name == "wrong"
    mine = ZeroDivisionError("mine")

    def fail():
        raise mine

    with pytest.raises(ZeroDivisionError) as caught:
        answer("call")(fail)
    assert caught.value is mine
    world, call = dl.SimWorld(2), answer("call")
    with pytest.raises(dl.DeadlockError):
        world.run(lambda comm: call(lambda: comm.recv(np.ones(1), 1 - comm.rank)))


def test_the_library_is_no_answer(answer):
    inherits, plain = answer("Inherits")(), answer("mean_of")
    for function in (inherits.forward, plain):
        check = Check("x")
        check.vet(function, "f")
        assert [line.advice for line in check.lines] == ["write it yourself, without the library's"]
    check = Check("own")
    check.vet(answer("same"), "f")
    assert check.ok


def test_advice_is_given_where_the_frames_are(answer):
    with pytest.raises(NameError) as caught:
        answer("misspelt")(1)
    assert "did you mean 'gradient'" in caught.value._distlearn_advice


def test_nothing_but_the_protocol_of_an_object_is_within_reach(answer):
    read, secret = answer("read"), 42

    def function():
        return secret

    def on_rank(comm):
        for thing, name in (
            (function, "__globals__"),
            (function, "__closure__"),
            (comm, "_transport"),
            (comm, "world"),
        ):
            with pytest.raises(AttributeError):
                read(thing, name)
        assert read(comm, "rank") == comm.rank

    dl.SimWorld(1).run(on_rank)
    with pytest.raises(TypeError, match="cannot pass"):
        answer("same")(io.StringIO())


class Boom:
    """Runs something when it is unpickled."""

    def __reduce__(self):
        return exec, ("raise SystemExit('unpickled')",)


@pytest.mark.parametrize(
    "node",
    [
        {"k": [["s", 1], 0]},
        {"a": ["j", 99]},
        {"h": ["j", 99]},
        {"n": ["O", "00"]},
        {"x": 3},
        {"l": 3},
        {"zz": 1},
        {"i": "f" * 20_000},
        [1],
    ],
)
def test_what_cannot_be_read_is_refused(node):
    with pytest.raises(ProtocolError):
        forged({"k": "r", "i": 1, "v": node, "b": [len(pickle.dumps(Boom()))], "n": [], "s": [], "c": [], "z": []})


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("n", [["array", ["s", 1], ["s", 2], 1 << 40, 0, [1], [8], "<f8", True]]),
        ("n", [["array", ["s", 1], ["s", 2], 8, 0, [4], [8], "<f8", True]]),
        ("n", [["array", ["s", 1], ["s", 2], 8, -64, [1], [8], "<f8", True]]),
        ("n", [["array", ["s", 1], ["s", 2], 8, 0, [1], [8], "O", True]]),
        ("n", [["array", ["j", 7], ["j", 8], 8, 0, [1], [8], "<f8", True]]),
        ("c", [[["j", 1], 0, 8, 0]]),
        ("s", [[["j", 1], ["j", 2], ["j", 3], 0, 0]]),
        ("b", [-1, "x"]),
        ("i", 7),
    ],
)
def test_forged_memory_is_refused(part, value):
    with pytest.raises(ProtocolError):
        forged({"k": "r", "i": 1, "v": None, "b": [], "n": [], "s": [], "c": [], "z": []} | {part: value})


def test_contents_beyond_what_was_sent_are_refused():
    table = np.zeros((2, 4))
    start = {"k": ASK, "i": 1, "v": {"l": ["call", None]}, "b": [], "n": [], "s": [], "z": []}
    with pytest.raises(ProtocolError, match="not shared"):
        forged(start | {"c": [[["j", 1], 32, 64, 0]]}, table[0], data=b"\xff" * 32)
    assert not table.any()


def forged(header, *sent, data=b""):
    """Send the judge a frame that no link would write."""
    mine, other = socket.socketpair()
    with mine, other:
        text, data = json.dumps(header).encode(), data or pickle.dumps(Boom())
        other.sendall(len(text).to_bytes(8, "little") + len(data).to_bytes(8, "little") + text + data)
        link = Link(Connection(mine), "j", objects.of_judge, objects.judge_allows)
        return link.request("call", None, sent, {})
