"""The practice round, once for all tests of the project."""

import pytest
from distcourse.project.rounds import make


@pytest.fixture(scope="session")
def around(tmp_path_factory):
    return make(tmp_path_factory.mktemp("project") / "round", practice=True)
