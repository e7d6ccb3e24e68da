import tempfile
import zlib

import pytest

from distlearn.cuda import RawKernel, has_nvrtc, kernel
from distlearn.cuda.emulator import build
from distlearn.cuda.emulator.compilers import find_compilers
from distlearn.cuda.emulator.device_code import for_card
from tests.emulated import HOPPER, compiled

# zig's first build compiles its own C library for half a minute; one test file covers it (test_zig.py).
KINDS = [c.kind for c in find_compilers() if c.kind != "zig"] or [c.kind for c in find_compilers()]
PREFERRED = KINDS[:1] or [pytest.param("", marks=pytest.mark.skip(reason="no C++ compiler"))]


@pytest.fixture(params=[*PREFERRED, *(pytest.param(kind, marks=pytest.mark.nightly) for kind in KINDS[1:])])
def compiler(request):
    """Return the C++ compiler that is found first; every night also each other kind that this machine has."""
    return request.param


@pytest.fixture
def fresh_cache(monkeypatch, tmp_path):
    """Let a test say where kernels are kept, with temporary files in `tmp_path`."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    caches = build.cache_directory, build.prepare
    for cached in caches:
        cached.cache_clear()
    yield
    for cached in caches:
        cached.cache_clear()


@pytest.fixture(autouse=True)
def a_card_takes_it_too(monkeypatch, request):
    """Let every fourth kernel that is built for the emulator be compiled for a card, and found there (1/30 s each).

    With cooperative groups, whose headers take 4 s, it is every 24th.
    """
    thorough = request.config.getoption("--thorough", default=False)

    def built(code, name, compiler, *, options=()):
        made = build.build(code, name, compiler, options=options)
        every = 24 if "cooperative_groups" in code.flat.text else 4
        # a header that is not there may declare anything, for the emulator; a card's compiler needs it
        if has_nvrtc() and not code.flat.missing and (thorough or not zlib.crc32(code.text.encode()) % every):
            card = for_card(code.flat.text, options, [name])
            image, symbols, log = compiled(card.text, card.options, (name,), HOPPER)
            said = [kind for kind, *_ in made.warnings] if image is None else []
            if "too much shared data" in log or "removed-intrinsic" in said:
                return made  # which the emulator says of a launch
            assert image is not None, f"the emulator takes what NVRTC refuses: {log}\n{card.text}"
            assert b".text." + symbols[name].encode() + b"\0" in image
        return made

    monkeypatch.setattr(kernel, "build", built)


@pytest.fixture
def run(compiler):
    """Return a function that builds a kernel, launches it, finds nothing wrong and gives the arguments back."""

    def launch(source, name, grid, block, args, *, shared_mem=0, constants=(), options=()):
        kernel = RawKernel(source, name, options, compiler=compiler)
        for constant, value in dict(constants).items():
            kernel.set_constant(constant, value)
        report = kernel.check(grid, block, args, shared_mem=shared_mem)
        assert report.errors == [], str(report)
        return args

    return launch
