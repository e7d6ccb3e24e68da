import pytest

from distlearn.cuda.emulator.compilers import find_compilers

# zig's first build compiles its own C library for half a minute; one test file covers it (test_zig.py).
KINDS = [c.kind for c in find_compilers() if c.kind != "zig"] or [c.kind for c in find_compilers()]


@pytest.fixture(params=KINDS or [pytest.param("", marks=pytest.mark.skip(reason="no C++ compiler"))])
def compiler(request):
    """Return each kind of C++ compiler that this machine has."""
    return request.param
