import gzip
import re

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from distlearn.data import read_idx

from .idx_writer import CODES, idx_bytes, write_idx

ARRAY = np.arange(24, dtype=np.int16).reshape(2, 3, 4) - 300  # 48 bytes behind a header of 16
GOOD = idx_bytes(ARRAY)
ZIPPED = gzip.compress(GOOD, mtime=0)


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("kind", CODES)
def test_every_type_comes_back(tmp_path, kind, suffix):
    if kind.startswith("float"):
        array = np.array([[0.5, -2.25, np.inf], [1e30, -0.0, 3.0]], kind)
    else:
        limits = np.iinfo(kind)
        array = np.array([[limits.min, limits.max, 0], [1, 2, 3]], kind)
    found = read_idx(write_idx(tmp_path / f"a{suffix}", array))
    assert found.dtype == array.dtype
    assert found.dtype.isnative
    assert found.flags.writeable
    np.testing.assert_array_equal(found, array)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    array=st.sampled_from(sorted(CODES)).flatmap(
        lambda kind: hnp.arrays(
            kind, hnp.array_shapes(max_dims=5, max_side=4, min_side=0), elements={"allow_nan": False}
        )
        if kind.startswith("float")
        else hnp.arrays(kind, hnp.array_shapes(max_dims=5, max_side=4, min_side=0))
    )
)
def test_any_array_comes_back(tmp_path, array):
    found = read_idx(write_idx(tmp_path / "a", array))
    assert found.shape == array.shape
    np.testing.assert_array_equal(found, array)


def test_gzip_is_seen_from_the_bytes_not_the_name(tmp_path):
    (tmp_path / "plain.gz").write_bytes(GOOD)
    (tmp_path / "zipped").write_bytes(ZIPPED)
    for name in ("plain.gz", "zipped"):
        np.testing.assert_array_equal(read_idx(str(tmp_path / name)), ARRAY)


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :]


DAMAGED = {
    "empty": (b"", "truncated: expected at least 4 bytes of IDX header, found 0"),
    "half a magic number": (GOOD[:3], "truncated: expected at least 4 bytes of IDX header, found 3"),
    "half a header": (GOOD[:10], "truncated: expected 16 bytes of IDX header, found 10"),
    "header alone": (GOOD[:16], "truncated: expected 48 bytes of data (2 x 3 x 4 of int16), found 0"),
    "a byte short": (GOOD[:-1], "truncated: expected 48 bytes of data (2 x 3 x 4 of int16), found 47"),
    "a byte more": (GOOD + b"\0", "too long: expected 48 bytes of data (2 x 3 x 4 of int16), found 49"),
    "wrong count": (GOOD[:7] + b"\3" + GOOD[8:], "expected 72 bytes of data (3 x 3 x 4 of int16), found 48"),
    "absurd count": (GOOD[:4] + b"\xff" * 12 + GOOD[16:], "(4294967295 x 4294967295 x 4294967295 of int16), found 48"),
    "a web page": (b"<!DOCTYPE html>", "not an IDX file: expected the bytes 0, 0, a type (8, 9, 11, 12, 13, 14)"),
    "unknown type": (b"\0\0\x0a\1\0\0\0\0", "dimensions (1 to 64), found 0, 0, 10, 1"),
    "no dimension": (b"\0\0\x08\0\5", "dimensions (1 to 64), found 0, 0, 8, 0"),
    "too many dimensions": (b"\0\0\x08\x41" + b"\0\0\0\1" * 65 + b"\5", "found 0, 0, 8, 65"),
    "gzip broken off": (
        ZIPPED[:-12],
        f"truncated: expected a whole gzip file, found only the first {len(ZIPPED) - 12} bytes",
    ),
    "gzip without its end": (ZIPPED[:-3], "truncated: expected a whole gzip file"),
    "gzip header alone": (ZIPPED[:5], "truncated: expected a whole gzip file, found only the first 5 bytes"),
    "gzip with a wrong check sum": (flipped(ZIPPED, -8 + len(ZIPPED)), "damaged: expected a whole gzip file"),
    "gzip with a damaged body": (flipped(ZIPPED, 12), "damaged: expected a whole gzip file"),
    "gzip with something behind": (ZIPPED + b"junk", "damaged: expected a whole gzip file"),
    "gzip of a short file": (gzip.compress(GOOD[:-2]), "truncated: expected 48 bytes of data"),
    "gzip of a web page": (gzip.compress(b"<html>"), "not an IDX file"),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_damage_is_named_with_file_expected_and_found(tmp_path, case):
    data, message = DAMAGED[case]
    path = tmp_path / "train-images-idx3-ubyte.gz"
    path.write_bytes(data)
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        read_idx(path)
    assert str(path) in str(caught.value)
    assert "expected" in str(caught.value)
    assert "found" in str(caught.value)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.data())
def test_no_cut_or_changed_byte_of_a_gzip_file_gives_other_numbers(tmp_path, data):
    at = data.draw(st.integers(0, len(ZIPPED) - 1))
    damaged = ZIPPED[:at] if data.draw(st.booleans()) else flipped(ZIPPED, at)
    (tmp_path / "a.gz").write_bytes(damaged)
    try:
        found = read_idx(tmp_path / "a.gz")
    except ValueError as error:
        assert str(tmp_path / "a.gz") in str(error)  # noqa: PT017  (it may also be read: gzip's own header has spare bits)
    else:
        np.testing.assert_array_equal(found, ARRAY)


def test_a_missing_file_is_an_os_error_that_names_it(tmp_path):
    with pytest.raises(FileNotFoundError, match="nothing-here"):
        read_idx(tmp_path / "nothing-here")
