"""The emulator can be lifted out: it imports nothing else of distlearn, and runs where there is no distlearn."""

import ast
import shutil
import subprocess
import sys

import pytest

from distlearn.cuda.emulator.build import RUNTIME
from distlearn.cuda.emulator.compilers import find_compilers

FOLDER = RUNTIME.parent
PACKAGES = {"numpy", "filelock", "platformdirs"}


def test_it_imports_nothing_else_of_distlearn():
    strangers = []
    for path in FOLDER.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.level != 1:
                names = [f"{'.' * node.level}{node.module or ''}"]
            known = sys.stdlib_module_names | PACKAGES
            strangers += [f"{path.name}: {name}" for name in names if name.partition(".")[0] not in known]
    assert strangers == []


PROGRAM = """
import sys
import numpy as np
from lifted.build import build
from lifted.compilers import find_compiler
from lifted.device_code import device_code
from lifted.launch import Bound, run

code = device_code("__global__ void twice(float* x) { x[threadIdx.x] *= 2; }", "twice")
made = build(code, "twice", find_compiler())
x = np.arange(4, dtype=np.float32)
bound = Bound([x, np.int64(0).tobytes()], [*made.signature, "s8"], ["x", "pointers"])  # no pointers in structs
report, _, _ = run(made.path, (1, 1, 1), (5, 1, 1), 0, bound, {}, statistics=True, races=True, time_limit=20.0)
assert x.tolist() == [0, 2, 4, 6], x
assert [f["kind"] for f in report["findings"]] == [0], report  # thread 4 is out of bounds
assert not any(name.startswith("distlearn") for name in sys.modules)
"""


@pytest.mark.skipif(not find_compilers(), reason="no C++ compiler")
def test_it_runs_elsewhere(tmp_path):
    shutil.copytree(FOLDER, tmp_path / "lifted", ignore=shutil.ignore_patterns("__pycache__"))
    done = subprocess.run([sys.executable, "-c", PROGRAM], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
