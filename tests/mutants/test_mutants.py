from .__main__ import ROOT, where
from .table import MUTANTS


def test_the_text_of_every_fault_stands_once_in_the_library():
    wrong = [m.name for m in MUTANTS if len(where(m.old, ROOT / "distlearn")) != 1]
    assert not wrong, f"mend their text in tests/mutants/table.py: {wrong}"
    assert len(MUTANTS) >= 60
