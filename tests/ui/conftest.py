"""Tests in a real browser run on demand: `make ui`, which is `pytest tests/ui --ui`."""

from pathlib import Path

import pytest

from . import browser

HERE = Path(__file__).parent


def pytest_addoption(parser):
    parser.addoption("--ui", action="store_true", help="run the tests in a real browser")


def pytest_collection_modifyitems(config, items):
    if not config.getoption("--ui", default=False):
        for item in items:
            if HERE in item.path.parents:
                item.add_marker(pytest.mark.skip(reason="needs a browser: make ui"))


@pytest.fixture(scope="session", autouse=True)
def _a_browser():
    """Every test here needs Playwright and a browser."""
    pytest.importorskip("playwright", reason="needs the extra 'ui': pip install -e '.[ui]'")
    if browser.chromium() is None:
        pytest.skip("needs an installed Chromium or Chrome")
