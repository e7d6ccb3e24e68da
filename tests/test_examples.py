"""Examples in docstrings give what they say."""

import doctest
import importlib

import numpy as np
import pytest

from .test_floors import modules

WITH_EXAMPLES = [name for name, path in modules() if ">>> " in path.read_text(encoding="utf-8")]


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_examples(name):
    loaded = importlib.import_module(name)
    outcome = doctest.testmod(loaded, extraglobs={"np": np}, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert outcome.failed == 0


def test_there_are_many():
    assert len(WITH_EXAMPLES) > 50
