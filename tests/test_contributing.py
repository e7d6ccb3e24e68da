"""CONTRIBUTING.md, followed step by step in a copy of the checkout: one piece of each kind, and a lab.

What its pages do not say, this test cannot do.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from .test_floors import ROOT

pytestmark = [pytest.mark.timeout(1200), pytest.mark.nightly]

LAYER = '''"""A learned factor for each feature."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..backend import Array
from .layer import Layer, Param, check_shape


class Scale(Layer):
    r"""Multiply each feature by a learned factor: :math:`y_{nj} = g_j x_{nj}`.

    Shapes: (..., d) to the same.

    References
    ----------
    S. Ioffe, C. Szegedy (2015), Batch normalization, ICML, section 3.
    """

    def __init__(self, d: int, *, dtype: str = "float32"):
        self.d, self.g = d, Param(np.ones(d, dtype), "g")
        self.params = [self.g]

    def forward(self, x: Array) -> tuple[Array, Any]:
        check_shape(self, x.shape, "...", self.d)
        return x * self.g.data, x

    def backward(self, dy: Array, saved: Any) -> Array:
        self.g.add((dy * saved).reshape(-1, self.d).sum(axis=0))
        return dy * self.g.data

    def output_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        check_shape(self, shape, "...", self.d)
        return shape

    def flops(self, shape: tuple[int, ...]) -> int:
        return math.prod(shape)
'''
RULE = '''"""Sign descent: of a gradient only its signs are used."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..backend import Array, get_xp
from .optimizer import ElementwiseRule


@dataclass(frozen=True)
class Sign(ElementwiseRule):
    """J. Bernstein et al. (2018), signSGD, ICML."""

    weight_decay: float = 0.0

    def update(self, data: Array, grad: Array, state: Any, lr: float, step: int) -> None:
        data -= lr * get_xp(data).sign(grad + self.weight_decay * data)
'''
STRATEGY = '''"""Gossip: after each step, every rank takes the mean with the rank before it."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...backend import Array, get_xp
from ...data.batches import Batch
from ..checkpoint.state import named_arrays, part_of_rank
from ..strategy import Replicated, update


class Gossip(Replicated):
    """One message of the model's size a step; not serial training, but the mean over ranks is kept.

    References
    ----------
    X. Lian et al. (2017), Can decentralized algorithms outperform centralized algorithms?, NIPS.
    """

    def step(self, batch: Batch) -> float:
        """Train on this rank's part of a global batch (`x`, `y`, `n`); return the loss of the whole one."""
        self.optimizer.zero_grad()
        y, saved = self.model.forward(batch.x, clock=self.clock)
        loss, dy = self.loss(y, batch.y, batch.n)
        self.model.backward(dy, saved, clock=self.clock)
        for p in self.optimizer.params:
            p.grad[...] *= batch.n / max(len(batch.x), 1)
        update(self.optimizer, self.clock)
        for p in self.optimizer.params if self.size > 1 else ():
            theirs = get_xp(p.data).empty_like(p.data)
            self.comm.send_recv(p.data, (self.rank + 1) % self.size, theirs, (self.rank - 1) % self.size)
            p.data[...] = (p.data + theirs) / 2
        return float(self.comm.all_reduce(np.array([float(loss)]))[0])

    def own_state(self) -> dict[str, Any]:
        return named_arrays(self.model.params, self.optimizer)

    def load_state_dict(self, arrays: dict[str, Array]) -> None:
        super().load_state_dict(arrays | part_of_rank(arrays, self.rank))
'''
STRATEGY_TEST = '''"""Gossip promises the mean over ranks, not serial training."""

import numpy as np

import distlearn as dl
from distlearn.testing import check_strategy


def test_gossip_keeps_what_a_strategy_must_and_the_mean():
    check_strategy(dl.Gossip, exact=False)

    def means(comm):
        model = dl.nn.MLP((3, 2), dtype="float64")
        made = dl.Gossip(comm, model, dl.nn.MeanSquaredError(), dl.optim.Optimizer(model.params, dl.optim.SGD(), 0.0))
        model.params[0].data += comm.rank
        before = comm.all_reduce(model.params[0].data.copy())
        made.step(dl.data.Batch(np.ones((2, 3)), np.ones((2, 2)), 2 * comm.size))
        return before, comm.all_reduce(model.params[0].data.copy())

    for before, after in dl.SimWorld(4).run(means):
        np.testing.assert_allclose(after, before)
'''
COLLECTIVE = '''"""A reduction to every rank by passing on: for teaching, p - 1 whole arrays from each rank."""

from __future__ import annotations

from ...backend import Array, get_xp
from ..base import Communicator


def passing_all_reduce(comm: Communicator, x: Array) -> Array:
    """Sum `x` over all ranks, in place; return it. Every rank sends p - 1 messages of n bytes."""
    passed, theirs = x.copy(), get_xp(x).empty_like(x)
    for _ in range(comm.size - 1):
        comm.send_recv(passed, (comm.rank + 1) % comm.size, theirs, (comm.rank - 1) % comm.size)
        x += theirs
        passed, theirs = theirs, passed
    return x
'''
COLLECTIVE_TEST = """from distlearn.comm.collectives.passing import passing_all_reduce
from distlearn.testing import check_collective


def test_passing():
    check_collective(passing_all_reduce, lambda xs, rank: sum(xs))
"""
KERNEL_CU = """// y[i] = x[i] < 0 ? slope * x[i] : x[i], one element a thread.
extern "C" __global__ void leaky_relu(const float* x, float* y, float slope, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] < 0 ? slope * x[i] : x[i];
}
"""
KERNEL = '''"""Leaky ReLU, one element a thread."""

from __future__ import annotations

from distlearn.cuda.kernels.variant import Launch, Variant, f32, i32


def _launch(x, y, slope):
    return Launch((-(-x.size // 256),), (256,), (x, y, f32(slope), i32(x.size)))


LEAKY = Variant("leaky.cu", "leaky_relu", _launch)
VARIANTS = [LEAKY]
'''
KERNEL_REFERENCE = """def leaky_relu_reference(x, y, slope):
    y[...] = np.where(x < 0, f32(slope) * x, x)


def _leaky(rng):
    return _normal(rng, 1024), np.zeros(1024, f32), 0.1


CASES = [
    Case(leaky.LEAKY, leaky_relu_reference, _leaky, _uses(x=(4, None), y=(None, 4))),
"""


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    """A copy of the files that git would commit, with every contribution made; `clone(*command)` runs there."""
    root = tmp_path_factory.mktemp("clone")
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines():
        if (ROOT / name).is_file():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, root / name)

    def run(*command):
        environment = os.environ | {"PYTHONPATH": f"{root}{os.pathsep}{root / 'course'}"}
        done = subprocess.run(
            [sys.executable, "-m", *command], cwd=root, env=environment, capture_output=True, text=True
        )
        assert not done.returncode, f"{' '.join(command)}\n{done.stdout[-6000:]}\n{done.stderr[-3000:]}"

    contribute(root)
    run("tests.test_types")
    run("ruff", "check", "--fix", "--quiet")  # sorts the imports
    run("ruff", "format", "--quiet")
    return root, run


def edit(path: Path, *changes: tuple[str, str]) -> None:
    text = path.read_text(encoding="utf-8")
    for old, new in changes:
        assert text.count(old), f"{path}: {old!r} is not there"
        text = text.replace(old, new, 1)
    path.write_text(text, encoding="utf-8")


def contribute(root: Path) -> None:
    """Make the changes that the steps of CONTRIBUTING.md ask for."""
    library = root / "distlearn"
    # a layer
    (library / "nn/scale.py").write_text(LAYER)
    edit(library / "nn/__init__.py", ("from .shape import", "from .scale import Scale\nfrom .shape import"))
    edit(root / "tests/nn/cases.py", ("LAYERS = [\n", "LAYERS = [\n    (nn.Scale(4, **F), (3, 4)),\n"))
    # an optimizer
    (library / "optim/sign.py").write_text(RULE)
    edit(
        library / "optim/__init__.py",
        ("_RULES = (", "from .sign import Sign\n\n_RULES = (Sign, "),
    )
    edit(
        root / "tests/optim/test_formulas.py",
        (
            "CASES = {\n",
            'CASES = {\n    "sign": (RULES["sign"], lambda w, g, m, t, decay: w - LR * np.sign(g + decay * w)),\n',
        ),
    )
    # a strategy that is not serial training
    (library / "parallel/data/gossip.py").write_text(STRATEGY)
    edit(
        library / "parallel/__init__.py",
        ("from .data.local_sgd import", "from .data.gossip import Gossip\nfrom .data.local_sgd import"),
    )
    edit(
        library / "__init__.py", ('"CheckpointStore DataParallel Hybrid', '"CheckpointStore DataParallel Gossip Hybrid')
    )
    edit(library / "train/strategies.py", ('    "hybrid":', '    "gossip": (parallel.Gossip, ()),\n    "hybrid":'))
    (root / "tests/parallel/test_gossip.py").write_text(STRATEGY_TEST)
    # a collective
    (library / "comm/collectives/passing.py").write_text(COLLECTIVE)
    (root / "tests/comm/test_passing.py").write_text(COLLECTIVE_TEST)
    # a kernel
    (library / "cuda/kernels/leaky.cu").write_text(KERNEL_CU)
    (library / "cuda/kernels/leaky.py").write_text(KERNEL)
    edit(
        library / "cuda/kernels/__init__.py",
        ("    images,\n", "    images,\n    leaky,\n"),
        ("MODULES = (attention, ", "MODULES = (attention, leaky, "),
    )
    edit(
        root / "tests/cuda/cases.py",
        ("    images,\n", "    images,\n    leaky,\n"),
        ("CASES = [\n", KERNEL_REFERENCE),
    )
    # a lab, by copying the first; its exercise `share` gets another name
    source = root / "course/source"
    shutil.copytree(source / "lab00_welcome", source / "lab16_gossip")
    notebook = source / "lab16_gossip/lab16.ipynb"
    (source / "lab16_gossip/lab00.ipynb").rename(notebook)
    shutil.copy(root / "course/distcourse/lab00.py", root / "course/distcourse/lab16.py")
    text = notebook.read_text(encoding="utf-8").replace("lab00", "lab16").replace("Lab 00: Welcome", "Lab 16: Gossip")
    book = nbformat.reads(text.replace('Lab(\\"00\\"', 'Lab(\\"16\\"'), as_version=4)
    next(cell for cell in book.cells if "engines.run(my_mean)" in cell.source).metadata.tags.append("real-run")
    nbformat.write(book, notebook)
    question, link = "Does this machine work, and how do these labs work?", "lab16_gossip/lab16.ipynb"
    for page, start, row in (
        ("README.md", "| 15 attention", f"| 16 gossip | {question} | [open](labs/{link}) |"),
        ("course/syllabus.md", "| 15 attention", f"| 16 gossip | {question} | 1 | **ready** |"),
        ("labs/README.md", "| [15 Attention]", f"| [16 Gossip]({link}) | {question} | 60 | lab 00 | 4 |"),
    ):
        text = (root / page).read_text(encoding="utf-8")
        (last,) = [line for line in text.splitlines() if line.startswith(start)]
        edit(root / page, (last, f"{last}\n{row}"))
    page = root / "course/accessibility.md"
    figures, films = map(int, re.search(r"(\d+) figures and (\d+) films", page.read_text(encoding="utf-8")).groups())
    edit(
        page, (f"{figures} figures and {films} films in 16 labs", f"{figures + 4} figures and {films} films in 17 labs")
    )


def test_lint(clone):
    _, run = clone
    run("ruff", "check")
    run("ruff", "format", "--check")
    run("tests.test_size")


@pytest.mark.parametrize(
    "tests",
    [
        ["tests/nn/test_gradients.py", "tests/nn/test_layers.py", "tests/nn/test_devices.py"],
        ["tests/optim", "tests/parallel/test_gossip.py", "tests/comm/test_passing.py"],
        ["tests/cuda/test_kernels.py", "-k", "leaky"],
        ["tests/test_types.py", "tests/test_floors.py", "tests/test_house.py", "tests/test_errors.py"],
    ],
    ids=lambda tests: tests[0].removeprefix("tests/"),
)
def test_the_tests_that_its_steps_name(clone, tests):
    _, run = clone
    run("pytest", "-q", "-p", "no:cacheprovider", "-n", "0", *tests)


def test_a_lab(clone):
    _, run = clone
    run("distlearn", "labs", "check", "course/source/lab16_gossip/lab16.ipynb")
    run("distlearn", "labs", "generate", "lab16_gossip")
    pages = [f"tests/course/test_{name}.py" for name in ("landing", "syllabus", "accessibility", "anatomy")]
    pages.append("tests/test_project.py")
    run("pytest", "-q", "-p", "no:cacheprovider", "-n", "0", *pages)
    run(
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-n",
        "0",
        "tests/course/test_exercises.py",
        "-k",
        "lab16",
        "--thorough",
    )
    run("pytest", "-q", "-p", "no:cacheprovider", "-n", "0", "--nbval-lax", "course/source/lab16_gossip")
