"""What the course's tests share: which labs there are, and a Jupyter home of their own."""

import os
import sys
from pathlib import Path

import nbgrader.api
import pytest
from alembic.script import ScriptDirectory
from distcourse.author import find_course, lab_names
from nbgrader.dbutil import ALEMBIC_DIR

COURSE = find_course(Path(__file__).parents[2])
LABS = lab_names(COURSE)


@pytest.fixture(scope="session", autouse=True)
def jupyter_home(tmp_path_factory):
    """Keep kernels, engines and nbgrader out of the user's own folders, and find them all again by it."""
    home = tmp_path_factory.mktemp("jupyter")
    ours = {
        "IPYTHONDIR": str(home / "ipython"),
        "JUPYTER_CONFIG_DIR": str(home / "config"),
        "JUPYTER_RUNTIME_DIR": str(home / "runtime"),
        "MPLCONFIGDIR": os.environ.get("MPLCONFIGDIR", str(home / "matplotlib")),
        "OPENBLAS_NUM_THREADS": "1",  # of kernels: their arrays are small; engines share out the cores by themselves
        "PATH": os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"],
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ours.items():
            patch.setenv(name, value)
        # asked for by every new gradebook; nbgrader starts a process for it, which imports all of nbgrader: 4 s
        patch.setattr(nbgrader.api, "get_alembic_version", ScriptDirectory(ALEMBIC_DIR).get_current_head)
        yield home


@pytest.fixture(scope="session")
def course():
    """The course directory of this repository."""
    return COURSE


def pytest_generate_tests(metafunc):
    """Run every test that asks for a `lab` once per lab; those not in a module's `PER_COMMIT` only at night."""
    if "lab" in metafunc.fixturenames:
        often = getattr(metafunc.module, "PER_COMMIT", LABS)
        labs = [pytest.param(lab, marks=[] if lab in often else pytest.mark.nightly) for lab in LABS]
        metafunc.parametrize("lab", labs, scope="module")
