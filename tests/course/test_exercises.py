"""Checks made of results: tables are up to date, every mistake is named, and the cases let nothing else through."""

import itertools
import signal
import time

import nbformat
import numpy as np
import pytest
from distcourse import exercise
from distcourse.author import source_notebooks
from distcourse.author.exercise import Exercise, Solved, differs, edited, same
from distcourse.author.strength import survivors
from distcourse.check import CheckFailed
from nbformat.v4 import new_code_cell, new_notebook

from .conftest import COURSE

FOLDERS = {p.stem: p.parent for p in source_notebooks(COURSE) if (p.parent / "exercises.py").is_file()}
SOLVED = {lab: Solved(folder) for lab, folder in FOLDERS.items()}
SLOW = {("lab09", "rule"), ("lab11", "my_policy"), ("lab12", "next_interval")}
"""Exercises whose cases are studies: nbval runs their checks with every commit."""
EXERCISES = [
    pytest.param(lab, name, marks=[pytest.mark.nightly] * ((lab, name) in SLOW))
    for lab, solved in SOLVED.items()
    for name in solved.exercises
]
STALE = "run `distlearn labs generate` and commit the result"
OTHERWISE = {
    "data_parallel_step": [
        (
            "optimizer.zero_grad()  ->  for p in model.params: p.grad[...] = 0",
            "for p in model.params:\n        comm.all_reduce(p.grad)"
            "  ->  for work in [comm.iall_reduce(p.grad) for p in reversed(model.params)]: work.wait()",
            "[value]))\n    return float(total[0])  ->  value))\n    return total",
        )
    ],
    "light_forward": [
        (f"return y, x  ->  return y, {kept}", f"block.forward(kept)  ->  block.forward({back})")
        for kept, back in (
            ("{'x': x}", "kept['x']"),
            ("lambda: x", "kept()"),
            ("type('Kept', (), {'x': x})()", "kept.x"),
        )
    ],
    "mean_over_ranks": ["def mean_over_ranks(comm, x):\n    return np.mean(comm.all_gather(x), axis=0)"],
    "swap": [
        "comm.send_recv(mine, dest=other, out=theirs, source=other)"
        "  ->  comm.rank or comm.send(mine, 1); comm.recv(theirs, other); comm.rank and comm.send(mine, 0)"
    ],
    "typed": [
        (
            ".sum(0).all_reduce()  ->  .sum(0).redistribute(Replicate())",
            "(dy @ W.T).all_reduce().whole()  ->  (W @ dy.T).all_reduce().whole().T",
            "float(np.sqrt(squares))  ->  np.sqrt(squares)",
        )
    ],
    "layers": [
        (
            "return x @ W + b  ->  return np.einsum('nk,km->nm', x, W) + b",
            "dx = comm.all_reduce(dy @ W.T)  ->  comm.iall_reduce(dx := dy @ W.T).wait()",
            "comm.all_reduce(x @ W)\n    return y + b"
            "  ->  x @ W + b * (comm.rank == 0)\n    comm.all_reduce(y)\n    return y",
            "dy @ W.T, x.T @ dy, dy.sum(axis=0)  ->  np.dot(dy, W.T), np.einsum('nk,nm->km', x, dy), sum(dy)",
        )
    ],
    "codecs": [
        (
            "np.abs(x).max(keepdims=True)  ->  np.float32([max(-x.min(), x.max())])",
            "levels * (scale / np.float32(127))  ->  np.array([scale[0] * v / 127 for v in levels], np.float32)",
            "means[1 - np.unpackbits(bits)[:n]]  ->  np.where(np.unpackbits(bits, count=n), *means).astype('f')",
            "np.argpartition(np.abs(x), -k)[-k:]  ->  np.argsort(-np.abs(x))[:k]",
        )
    ],
    "compressed_all_reduce": [
        (
            "given = x + error  ->  given = error\n    error += x",
            "sum(decode(*(part[r] for part in rows), len(x)) for r in range(comm.size))"
            "  ->  np.sum([decode(*row, x.size) for row in zip(*rows)], axis=0)",
        )
    ],
    "diloco_round": ["start - comm.all_reduce(end.copy()) / comm.size  ->  comm.all_gather(start - end).mean(axis=0)"],
    "momentum": [
        (
            "data -= lr * grad\n  ->  data[...] = data - lr * grad\n",
            "nesterov(data, grad, state, lr, step, mu=0.9):"
            "  ->  nesterov(w, g, v, eta, t, mu=0.9):\n    data, grad, state, lr = w, g, v, eta",
        )
    ],
    "adam": [
        "data -= lr * (m / (1 - beta1**t)) / (np.sqrt(s / (1 - beta2**t)) + eps)"
        "  ->  a, b = 1 - beta1**t, np.sqrt(1 - beta2**t)\n"
        "    data -= (lr * b / a * m / (np.sqrt(s) + eps * b)).astype(data.dtype)"
    ],
    "generators": [
        "def one_f_one_b(stage, n_stages, n_microbatches):"
        "  ->  def one_f_one_b(s, p, m): return list(actions(s, p, m))\ndef actions(stage, n_stages, n_microbatches):"
    ],
    "run_stage": ["return w, staleness, most  ->  return w, np.array(staleness), np.int64(most)"],
    "async_sgd": [
        (
            "comm.recv(w, 0)  ->  w[:] = comm.recv_obj(0)",
            "comm.send(w, worker)  ->  comm.send_obj(w.copy(), worker)",
            "log.append((kind, worker))  ->  log += [[kind, worker]]",
        )
    ],
    "network": [
        (
            '["2->0"], "epochs": ["1->0", "1->0"]  ->  ("2->0",), "epochs": ("2->0", "2->0")',
            "comm.send_obj(loss, 0)  ->  comm.send_obj(np.int64(loss), 0)",
            "[sum(comm.recv_obj(rank) for rank in range(1, comm.size)) for _ in range(2)]"
            "  ->  list(sum(np.array([comm.recv_obj(r), comm.recv_obj(r)]) for r in range(1, comm.size)).tolist())",
        )
    ],
    "attend": [
        (
            "q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5"
            "  ->  np.einsum('...nd,...md->...nm', q / q.shape[-1] ** 0.5, k)",
            "np.where(np.tri(s.shape[-1], dtype=bool), s, -np.inf)"
            "  ->  s + np.where(np.tri(s.shape[-1]), 0, -np.inf).astype(s.dtype)",
        )
    ],
    "merge": [
        (
            "np.exp(a[0] - safe), np.exp(b[0] - safe)"
            "  ->  (np.where(side == top, 1, np.exp(side - top)).astype(top.dtype) for side in (a[0], b[0]))",
            "return top, x * a[1] + y * b[1], x * a[2] + y * b[2]"
            "  ->  return [top, x * a[1] + y * b[1], x * a[2] + y * b[2]]",
        )
    ],
    "flash": [
        (
            "fetch(ks, k, first, m), fetch(vs, v, first, m);"
            "  ->  if (first) __syncthreads();\nfetch(vs, v, first, m), fetch(ks, k, first, m);",
            "__syncthreads();   // before the next tile  ->  ",
            "dot(mine, ks[j]) * rsqrtf(D)  ->  dot(ks[j], mine) * 0.25f",
            "less = expf(top - above)  ->  less = __expf(top - above)",
            "c < D && row < n; c++) y[row * D + c] = out[c] / total"
            "  ->  c < D; c++) if (row < n) y[row * D + c] = out[c] * (1 / total)",
        )
    ],
    "ring_attend": [
        (
            "source = (comm.rank - step) % comm.size  ->  source, arriving = (comm.rank - step) % comm.size, +keys\n"
            "        works = step < comm.size - 1 and [comm.isend(keys, right), comm.irecv(arriving, left)]",
            "more if step == 0 else merge(seen, more)"
            "  ->  merge(more, seen if step else (0 * q[:, :1] - np.float32('inf'), 0 * q[:, :1], 0 * q))",
            "arriving = np.empty_like(keys)\n            comm.send_recv(keys, right, arriving, left)"
            "  ->  for work in works: work.wait()",
        )
    ],
    "vector_add": ["c[i] = a[i] + b[i];  ->  *(c + i) = b[i] + *(a + i);"],
    "tiled": [
        (
            "float a[16][16], b  ->  float a[256], b",
            "a[ty][tx] = row  ->  a[ty * 16 + tx] = row",
            "= col < n && first + ty < k ? B[(first + ty) * n + col] : 0.0f;"
            "  ->  = 0;\n        if (col < n && first + ty < k) b[ty][tx] = B[(first + ty) * n + col];",
            "first += 16) {  ->  first += 16) {\n        if (first) __syncthreads();",
            "int i = 0; i < 16; i++) sum += a[ty][i] * b[i][tx]"
            "  ->  int i = 15; i >= 0; i--) sum = fmaf(b[i][tx], a[ty * 16 + i], sum)",
            "__syncthreads();   // before the next tile  ->  ",
            "if (row < m && col < n) C  ->  if (row >= m || col >= n) return;\n    C",
        )
    ],
    "block_sum": [
        (
            "s[t] = i < n ? x[i] : 0.0f;\n    __syncthreads();  ->  float mine = s[t] = i < n ? x[i] : 0.0f;",
            "if (t < h) s[t] += s[t + h];\n        __syncthreads();   // the step is done"
            "  ->  __syncthreads();\n        if (t < h) s[t] = mine = mine + s[t + h];",
            "= s[0]  ->  = mine",
        )
    ],
    "softmax": [
        (
            "most = row[0]  ->  most = -INFINITY",
            "sum += expf(row[j] - most);  ->  sum += p[blockIdx.x * k + j] = expf(row[j] - most);",
            "= expf(row[j] - most) / sum  ->  *= 1 / sum",
        )
    ],
    "dense_forward": [
        "y = x @ self.W.data + self.b.data\n        return y, x"
        "  ->  W, b = [p.data for p in self.params]\n        return [np.einsum('bi,io->bo', x, W) + b[None], x]"
    ],
    "cross_entropy": [
        (
            "float((np.log(total[:, 0]) - z[rows, labels]).sum())  ->  (np.log(total[:, 0]) - z[rows, labels]).sum()",
            "dlogits[rows, labels] -= 1  ->  dlogits = dlogits - np.eye(len(z.T), dtype=z.dtype)[labels]",
        )
    ],
    "numeric_gradient": [
        (
            "x[i] = kept + eps  ->  x[i] += eps",
            "x[i] = kept - eps  ->  x[i] -= 2 * eps",
            "x[i] = kept\n  ->  x[i] += eps\n",
        )
    ],
    "activations": [
        (
            "y = np.maximum(x, 0)\n        return y, y  ->  return np.maximum(x, 0), x > 0",
            "return dy * (saved > 0)  ->  dy[~saved] = 0\n        return dy",
            "dy * saved * (1 - saved)  ->  dy * (saved - saved**2)",
        )
    ],
    "sgd": ["data -= lr * grad  ->  data[...] = data + grad * -lr"],
    ("lab01", "step"): [
        (
            "self.optimizer.zero_grad()  ->  for p in self.model.params: p.grad[...] = 0",
            "batch.y, batch.n)  ->  batch.y, n=batch.n)",
            "self.optimizer.step()\n        return loss  ->  self.optimizer.step()\n        return float(loss)",
        )
    ],
}
"""Answers that are as right as the solutions, as edits of them, where a runner does more with an answer than to call it
and name results; by exercise, of those with one name by lab and exercise."""


@pytest.fixture
def check(monkeypatch):
    """Check an answer, as a notebook does in the folder of its lab; return the text of a failure, or ""."""

    def run(lab, name, text=None, hidden=False):
        monkeypatch.setattr(exercise, "FOLDER", FOLDERS[lab])
        try:
            exercise.check(lab[3:], name, SOLVED[lab].answers(name, text), hidden)
        except CheckFailed as error:
            return str(error)
        return ""

    return run


def test_tables_hold_no_line_of_a_solution():
    for lab, folder in FOLDERS.items():
        with np.load(folder / exercise.FILE) as file:
            kept = bytes(file["tables"]).decode()
            assert all(file[name].dtype.kind in "biufc" for name in file.files), "numbers alone"
        lines = [line.strip() for text in SOLVED[lab].texts.values() for line in text.splitlines()]
        code = [line for line in lines if len(line) > 20 and ("=" in line or line.startswith("return"))]
        assert len(code) > 3
        assert [line for line in code if line in kept] == []


def test_tables_are_small():
    assert all((folder / exercise.FILE).stat().st_size < 300_000 for folder in FOLDERS.values())


@pytest.mark.parametrize(("stem", "name"), EXERCISES)
def test_the_solution_passes_and_mistakes_are_named(stem, name, check, monkeypatch, request):
    """One of its mistakes (--thorough: all); that the table has the sentences of all is compared."""
    assert not check(stem, name, hidden=True)  # its visible cases are compared with the table
    solved, kept = SOLVED[stem], exercise.load(FOLDERS[stem], name)[name]
    assert {m.sentence for m in kept.mistakes} == {said for said, _ in solved.exercises[name].wrong()}, STALE
    known = list(itertools.islice(solved.mistaken(name), None if request.config.getoption("--thorough") else 1))
    monkeypatch.setattr(solved, "mistaken", lambda name: known)  # each is run once
    made = solved.table(name)
    assert same(kept._replace(mistakes=kept.mistakes[: len(made.mistakes)]), made), STALE
    for sentence, edit, tried in known:
        wrong = [exercise.wrong_in(*pair, kept.at_most, kept.rtol) for pair in zip(tried, kept.right, strict=True)]
        whole, by_name = exercise.explain(kept, tried, wrong)
        assert sentence in "\n".join([whole, *by_name.values()]), f"{sentence}: {edit}"
    first = edited(solved.texts[name], known[0][1])
    assert any(check(stem, name, first, hidden=True) for _ in range(3)), "drawn cases find it nearly always"


@pytest.mark.nightly
@pytest.mark.parametrize(("stem", "name"), EXERCISES)
def test_no_change_and_no_wrapper_passes(stem, name):
    assert survivors(SOLVED[stem], name) == []


@pytest.mark.parametrize(
    ("stem", "name"), [pair for pair in EXERCISES if {pair.values, pair.values[1]} & OTHERWISE.keys()]
)
def test_answers_written_otherwise_pass(stem, name, check):
    for edit in OTHERWISE.get((stem, name)) or OTHERWISE[name]:
        text = edited(SOLVED[stem].texts[name], edit)
        assert not check(stem, name, text)
        assert not check(stem, name, text, hidden=True)


def test_of_a_formula_that_no_mistake_explains_the_part_that_is_wrong_is_named(check):
    text = SOLVED["lab08"].texts["needed_bandwidth"]
    ignored = check("lab08", "needed_bandwidth", edited(text, "* nbytes / left  ->  * 7000 / left"))
    assert "bandwidth: doubling nbytes should multiply it by 2, but does not change it; right with " in ignored
    squared = check("lab08", "needed_bandwidth", edited(text, "* nbytes / left  ->  * nbytes**2 / left"))
    assert "bandwidth: doubling nbytes should multiply it by 2, but multiplies it by 4" in squared
    assert "bandwidth is nbytes times the right one wherever it is wrong" in squared
    factor = check("lab08", "needed_bandwidth", edited(text, "return 2 *  ->  return 2.2 *"))
    assert "bandwidth is 1.1 times the right one wherever it is wrong" in factor
    assert "doubling" not in factor
    unreal = check("lab08", "needed_bandwidth", edited(text, "* nbytes / left  ->  * nbytes / left * (-1) ** 0.5"))
    assert "doubling" not in unreal, "a complex number is no part of a formula"


def test_an_answer_that_does_not_end_with_an_argument_doubled_is_tried_once():
    table, calls = exercise.load(FOLDERS["lab08"], "needed_bandwidth")["needed_bandwidth"], []

    def again(case, *argument):
        calls.append(argument)
        return {exercise.RAISED: TimeoutError("no result")}

    assert exercise.responses(table, [{"bandwidth": 3.0}] * len(table.cases), again) == []
    assert len(calls) == 1 < len(table.probes)


def test_of_an_array_that_no_mistake_explains_the_argument_that_is_ignored_is_named(check):
    backward = edited(SOLVED["lab01"].texts["dense_backward"], "x.T @ dy  ->  x.T @ x")
    assert "W.grad: doubling dy should change it, but does not change it" in check("lab01", "dense_backward", backward)
    made = SOLVED["lab01"].texts["sgd"] + "\n_Rule = SGD\ndef SGD():\n    return _Rule()\n"
    assert "data: largest difference" in check("lab01", "sgd", edited(made, "lr * grad  ->  lr * step")), "no class"
    method = edited(SOLVED["lab01"].texts["sgd"], "data -= lr * grad  ->  data -= lr * step")
    assert "data: doubling grad should change it, but does not change it" in check("lab01", "sgd", method)


def test_what_no_mistake_explains_is_diagnosed_by_its_numbers(check):
    factor = check(
        "lab07", "weighted_mean", edited(SOLVED["lab07"].texts["weighted_mean"], "return   ->  return -3 * ")
    )
    assert "3 times the reference, with the opposite sign" in factor
    odd = check("lab07", "scaled_lr", edited(SOLVED["lab07"].texts["scaled_lr"], "return lr +  ->  return 0.9 * lr +"))
    assert "largest difference" in odd
    unknown = "def scaled_lr(*args):\n    return lambda step: {'rate': 1}"
    assert "wanted" in check("lab07", "scaled_lr", unknown)
    stopped = check("lab07", "local_sgd", "def local_sgd(comm, *args):\n    return comm.no_such_thing")
    assert "no_such_thing" in stopped
    assert "not written yet" in check("lab07", "scaled_lr", "def scaled_lr(*args):\n    raise NotImplementedError()")


def test_one_of_two_functions_is_checked_before_the_other_is_written(check):
    half = SOLVED["lab10"].texts["predicted"].partition("    return [")[0] + "    raise NotImplementedError()"
    said = check("lab10", "predicted", half)
    assert "5 of 8 cases passed" in said
    assert "not written yet" in said


def test_where_none_is_right_in_another_case_no_return_is_missed_and_a_list_says_how_long_it_is(check):
    text = SOLVED["lab05"].texts["smallest_batch"]
    said = check("lab05", "smallest_batch", edited(text, "gain <= 0  ->  gain <= 0 or d_in == 512"))
    assert "wanted 20, got None" in said
    assert "return" not in said
    text = edited(SOLVED["lab11"].texts["staleness_of"], "return staleness  ->  return staleness or [0]")
    assert "wanted a list of 0, got a list of 1" in check("lab11", "staleness_of", text)


def test_a_result_that_depends_on_chance_is_named(check):
    said = check("lab08", "layer_cost", "def layer_cost(*args, **kwargs):\n    return tuple(np.random.random(2))")
    assert "values differs when called again" in said
    assert "doubling" not in said


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("np.full(5, np.nan)", "5 of 5 elements of gradient are NaN"),
        ("np.array(['a'] * 5)", "wanted an array of numbers"),
        ("np.array([{1: 2}] * 5)", "wanted an array of numbers"),
        ("10 ** 400", "wanted an array of numbers"),
        ("[10 ** 400] * 5", "wanted numbers, got a list of 5"),
        ("[gradients[0], 3]", "wanted numbers, got a list of 2"),
    ],
)
def test_what_is_no_array_of_numbers_fails_in_each_case(answer, said, check):
    found = check("lab07", "weighted_mean", f"def weighted_mean(gradients, counts):\n    return {answer}")
    assert said in found
    assert "0 of 6 cases passed" in found


def test_of_a_text_the_first_line_is_compared_and_all_is_shown(check):
    text = SOLVED["lab15"].texts["flash"]
    said = check("lab15", "flash", edited(text, "__syncthreads();   // the tiles are there  ->  \n"))
    assert "wanted no errors, got race\n" in said
    assert "no barrier lies between" in said
    assert "a barrier is missing: all must have fetched" in said


def test_a_sentence_needs_more_than_the_same_kind_of_error_in_other_cases(check):
    text = SOLVED["lab04"].texts["block_sum"]
    said = check("lab04", "block_sum", edited(text, "s[t] = i < n  ->  s[blockDim.x > 2 ? t : 256 + t] = i < n"))
    assert "wanted no errors, got out-of-bounds\n" in said
    assert "->" not in said, "what is known to go out of bounds does so in other cases, or in another array"


def test_what_is_changed_on_a_rank_is_said_and_a_list_is_no_array_of_whole_numbers(check):
    text = SOLVED["lab15"].texts["ring_attend"]
    writes = edited(text, "keys = arriving  ->  keys = arriving\n            k[...], v[...] = keys")
    assert "arguments: changed: k, v" in check("lab15", "ring_attend", writes)
    assert exercise.wrong_in({"a": [1, 2]}, {"a": np.array([1, 2])}) == ["a"]


def test_what_knows_the_visible_cases_alone_fails_in_drawn_ones(check):
    known = SOLVED["lab07"].right("predicted_speedup", SOLVED["lab07"].exercises["predicted_speedup"].cases)
    pairs = {tuple(case.values()): r["speed-up"] for case, r in zip(known.cases, known.right, strict=True)}
    text = f"def predicted_speedup(*args):\n    return {pairs!r}.get(args, float('nan'))"
    assert not check("lab07", "predicted_speedup", text)
    assert "0 of 5 cases passed" in check("lab07", "predicted_speedup", text, hidden=True)


def test_a_mistake_in_some_cases_alone_is_named_if_it_explains_all_that_failed(check):
    text = SOLVED["lab07"].texts["scaled_lr"]
    never_below = edited(text, "batch_size / base_batch_size\n  ->  max(1, batch_size / base_batch_size)\n")
    said = check("lab07", "scaled_lr", never_below)
    assert said.count("k may be less than 1") == 1
    assert "4 of 5 cases passed" in said


@pytest.mark.parametrize("body", ["raise NotImplementedError", "return 1", "return 1, 2", "return 1, 2 / (kernel - 1)"])
def test_how_many_cases_there_are_depends_on_no_answer(body, check):
    text = f"def layer_cost(kernel, *args, **kwargs):\n    {body}"
    assert "0 of 4 cases passed" in check("lab08", "layer_cost", text)


FIRST = "import numpy as np\ndef first(x, k, m=2):\n    return x[:k] * m"


def small(tmp_path, **more):
    """A lab of one exercise, whose results are those of a plain call."""
    told = {"grade_id": "first", "solution": True, "grade": False, "locked": False, "schema_version": 3, "task": False}
    nbformat.write(new_notebook(cells=[new_code_cell(FIRST, metadata={"nbgrader": told})]), tmp_path / "lab99.ipynb")
    (tmp_path / "exercises.py").write_text("EXERCISES = {}")
    solved = Solved(tmp_path)
    cases = [{"x": np.arange(5.0), "k": 3}, {"x": np.arange(2.0, 6.0), "k": 1}]
    solved.exercises["first"] = Exercise(
        **{
            "cases": cases,
            "draw": lambda rng: {"x": rng.normal(size=6), "k": int(rng.integers(1, 6)), "m": float(rng.normal())},
            "mistakes": {},
        }
        | more
    )
    return solved


def test_a_table_is_refused_where_it_would_not_tell(tmp_path):
    with pytest.raises(ValueError, match="no case finds the mistake 'only floats'"):
        small(tmp_path, mistakes={"only floats": "* m  ->  * float(m)"}).table("first")
    with pytest.raises(ValueError, match="no case tells 'b' from 'a'"):
        small(tmp_path, mistakes={"a": "* m  ->  * 3", "b": "x[:k] * m  ->  3 * x[:k]"}).table("first")
    solved = small(tmp_path)
    solved.texts["first"] = FIRST + " + np.random.rand()"
    with pytest.raises(ValueError, match="differ from call to call"):
        solved.table("first")
    solved.texts["first"] = FIRST + " + 1 // 0"
    with pytest.raises(ValueError, match="the solution raises ZeroDivisionError"):
        solved.table("first")
    with pytest.raises(ValueError, match="the mistake 'a' is no Python"):
        small(tmp_path, mistakes={"a": "return  ->  return )"}).table("first")
    with pytest.raises(ValueError, match="occurs 0 times"):
        small(tmp_path, mistakes={"a": "* 7  ->  * 3"}).table("first")


def test_weak_cases_are_found(tmp_path):
    weak = [{"x": np.array([0.0, 1.0, 2.0]), "k": 2}, {"x": np.array([0.0, 3.0, 1.0]), "k": 2, "m": 2}]
    found = survivors(small(tmp_path, cases=weak, draw=lambda rng: weak[0]), "first")
    assert "return x[:k] * m  ->  return x[:m] * m" in found
    assert "return x[:k] * m  ->  return x[:k] * k" in found
    assert not any("frozen" in what and " x " not in what for what in found), "the others are never another value"
    assert survivors(small(tmp_path), "first") == []


def test_a_missing_result_is_explained_by_a_mistake_that_lacks_it_alone():
    told = [
        exercise.Mistake("a list", [{"b": ["a list of 2", []]}]),
        exercise.Mistake("no b", [{"b": ["missing", []]}]),
    ]
    table = exercise.Table([{}], [{"a": 1.0, "b": 2.0}], told, False, [], None, [], [])
    assert exercise.explain(table, [{"a": 1.0}], [["b"]])[0] == "no b"
    assert exercise.explain(table._replace(mistakes=told[:1]), [{"a": 1.0}], [["b"]]) == ("", {})


@pytest.mark.parametrize(
    ("got", "found"),
    [
        ((1, 2), {"a": 1, "b": 2}),
        (np.array([3, 4]), {"a": 3, "b": 4}),
        (None, {"a": None, "b": None}),
        (5.0, dict.fromkeys("ab", "a float, not the 2 results a, b")),
        ((1, 2, 3), dict.fromkeys("ab", "a tuple of 3, not the 2 results a, b")),
        ({"a": 1, "b": 2}, dict.fromkeys("ab", "a dict of 2, not the 2 results a, b")),
    ],
)
def test_several_results_are_named(got, found):
    assert exercise.named(got, "a", "b") == found


def test_a_table_is_kept_as_it_was_made(tmp_path):
    solved = small(tmp_path, mistakes={"three times": "* m  ->  * 3"})
    exercise.save({"first": solved.table("first")}, tmp_path)
    assert not differs({"first": solved.table("first")}, tmp_path)
    table = exercise.load(tmp_path)["first"]
    np.testing.assert_array_equal(table.cases[0]["x"], np.arange(5.0))
    np.testing.assert_array_equal(table.right[0]["result"], [0, 2, 4])
    solved.exercises["first"].mistakes["four times"] = "* m  ->  * 4"
    assert differs({"first": solved.table("first")}, tmp_path)
    solved.texts["first"] = edited(FIRST, "* m  ->  * m * 1.001")
    solved.exercises["first"].mistakes.clear()
    assert differs({"first": solved.table("first")}, tmp_path)


def test_an_answer_that_does_not_end_or_changes_its_arguments_is_said_to(tmp_path, check, monkeypatch):
    monkeypatch.setattr(exercise, "LIMIT", 0.2)
    endless = check("lab07", "scaled_lr", "def scaled_lr(*args):\n    while True: pass")
    assert "no result after 0.2 s: does every loop end?" in endless
    swallows = "def scaled_lr(*args):\n    for _ in range(2):\n        try:\n            while True: pass\n"
    assert "cases passed" in check("lab07", "scaled_lr", swallows + "        except Exception: pass")
    waits = edited(
        SOLVED["lab07"].texts["scaled_lr"], "    k = batch_size  ->      __import__('time').sleep(0.3); k = batch_size"
    )
    assert not check("lab07", "scaled_lr", waits), "a busy machine is no endless loop"
    pops = edited(SOLVED["lab07"].texts["weighted_mean"], "n = sum(counts)  ->  n = sum(counts); counts.pop()")
    assert "arguments: changed: counts" in check("lab07", "weighted_mean", pops)
    on_ranks = edited(SOLVED["lab09"].texts["layers"], "    return x @ W + b  ->      y = x @ W + b; b *= 0; return y")
    assert "arguments: changed: b" in check("lab09", "layers", on_ranks)


def test_who_stops_inside_an_answer_has_time(check, monkeypatch):
    """As lab 00 tells students to do."""
    monkeypatch.setattr(exercise, "LIMIT", 0.1)
    said = []

    def typed(prompt=""):
        said.append(prompt)
        time.sleep(0.3 if len(said) == 1 else 0)
        return "c"

    monkeypatch.setattr("builtins.input", typed)
    stops = edited(SOLVED["lab00"].texts["mean_over_ranks"], "total = x  ->  import pdb; pdb.set_trace(); total = x")
    interrupted = signal.getsignal(signal.SIGINT)
    assert not check("lab00", "mean_over_ranks", stops)
    signal.signal(signal.SIGINT, interrupted)  # which pdb's "continue" changes
    assert len(said) > 10, "every rank of every case stops"


def test_a_table_that_is_missing_or_old_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setattr(exercise, "FOLDER", tmp_path)
    with pytest.raises(FileNotFoundError, match=r"no results\.npz .* beside its notebook"):
        exercise.find("first")
    np.savez(tmp_path / exercise.FILE, tables=np.frombuffer(b'{"first": [[], [], []]}', np.uint8))
    with pytest.raises(ValueError, match="belongs to another version of distlearn"):
        exercise.find("first")
    exercise.save({"first": small(tmp_path).table("first")}, tmp_path)
    with pytest.raises(ValueError, match="no exercise 'second', expected one of first"):
        exercise.find("second")
