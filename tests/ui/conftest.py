"""Tests in a real browser run on demand: `make ui`, which is `pytest tests/ui --ui`."""

from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_addoption(parser):
    parser.addoption("--ui", action="store_true", help="run the tests in a real browser")


def pytest_collection_modifyitems(config, items):
    if not config.getoption("--ui", default=False):
        for item in items:
            if HERE in item.path.parents:
                item.add_marker(pytest.mark.skip(reason="needs a browser: make ui"))
