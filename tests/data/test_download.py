"""The download against a server on 127.0.0.1 that truncates, refuses, stalls and lies."""

import hashlib
import io
import re
import socket
import threading

import numpy as np
import pytest

from distlearn.data import available, load, sources
from distlearn.data.sources import FILES, KNOWN, RETRIES, fetch

from .bad_server import BadServer

FILE = "train-images-idx3-ubyte.gz"
DATA = np.random.default_rng(0).bytes(300_000)
SHA256 = hashlib.sha256(DATA).hexdigest()


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr("pooch.core.time.sleep", lambda seconds: None)
    monkeypatch.setattr(sources, "TIMEOUT", (30, 30))  # a busy machine is not a server that stalls


@pytest.fixture
def server():
    with BadServer({FILE: DATA}) as server:
        yield server


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "cache" / "mnist"


def get(server, folder, *mirrors):
    return fetch(FILE, folder, [server.mirror(mirror) for mirror in mirrors], SHA256)


def test_a_good_server_is_asked_once_and_a_good_file_not_at_all(server, folder, monkeypatch, capfd):
    for _ in range(2):
        path = get(server, folder, "a", "b")
        assert path == folder / FILE
        assert path.read_bytes() == DATA
        monkeypatch.setattr("filelock.FileLock", None)  # would fail if it were reached, as where nobody may write
    assert server.requests == [("a", FILE)]
    assert sorted(entry.name for entry in folder.iterdir()) == [FILE, f"{FILE}.lock"]
    assert capfd.readouterr() == ("", ""), "no progress bar in a log file"


TROUBLE = [("status", 503), ("status", 404), ("hang_up",), ("page",), ("corrupt",), ("truncated", 1000)]


@pytest.mark.parametrize("trouble", [*TROUBLE, ("silently_truncated", 1000)])
def test_trouble_that_passes_is_waited_out_and_that_stays_is_another_mirrors_work(server, folder, trouble):
    server.plan["a"] = [trouble] * RETRIES
    assert get(server, folder, "a").read_bytes() == DATA
    (folder / FILE).write_bytes(DATA[:1000])  # damaged in the cache: replaced
    server.plan["a"] = [trouble] * 9
    assert get(server, folder, "a", "b").read_bytes() == DATA
    assert [where for where, _ in server.requests] == ["a"] * 2 * (RETRIES + 1) + ["b"]
    assert sorted(entry.name for entry in folder.iterdir()) == [FILE, f"{FILE}.lock"]


def test_a_stalled_transfer_is_begun_again(server, folder, monkeypatch):
    monkeypatch.setattr(sources, "TIMEOUT", (30, 1.0))
    server.plan["a"] = [("stall", 131_072, 60.0)]
    assert get(server, folder, "a").read_bytes() == DATA


def test_a_wrong_checksum_is_refused_with_file_expected_and_found(server, folder):
    server.plan["a"] = [("corrupt",)] * 9
    bad = hashlib.sha256(DATA[:150_000] + b"?" + DATA[150_001:]).hexdigest()
    with pytest.raises(ValueError, match=f"{FILE}: all mirrors failed\\n.*{FILE}.*{SHA256} but got {bad}"):
        get(server, folder, "a")
    assert [entry.name for entry in folder.iterdir()] == [f"{FILE}.lock"]


def test_all_refuse_and_the_error_says_so_of_each(server, folder):
    server.plan = {"a": [("status", 404)] * 9, "b": [("status", 503)] * 9}
    with pytest.raises(ConnectionError, match=f"/a/{FILE}: 404 .*\\n.*/b/{FILE}: 503"):
        get(server, folder, "a", "b")


def test_processes_that_ask_at_once_download_once(server, folder):
    server.plan["a"] = [("slow", 0.2)]
    found = []
    threads = [threading.Thread(target=lambda: found.append(get(server, folder, "a").read_bytes())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [DATA] * 4
    assert len(server.requests) == 1


def test_the_progress_bar_shows_the_files_name_and_every_byte(server, folder, monkeypatch):
    import tqdm.auto

    bars, text = [], io.StringIO()

    class Recorded(tqdm.auto.tqdm):
        def __init__(self, **options):
            super().__init__(**options | {"disable": False, "file": text})
            bars.append(self)

    monkeypatch.setattr(tqdm.auto, "tqdm", Recorded)
    server.plan["a"] = [("truncated", 100_000)]
    get(server, folder, "a")
    assert [(bar.total, bar.n) for bar in bars] == [(300_000, 300_000)]
    assert FILE in text.getvalue()


def test_no_network_names_the_ways_on(monkeypatch):
    with socket.socket() as free:  # a port on which no process listens
        free.bind(("127.0.0.1", 0))
        nowhere = f"http://127.0.0.1:{free.getsockname()[1]}/"
        monkeypatch.setitem(KNOWN, "mnist", KNOWN["mnist"]._replace(mirrors=(nowhere,)))
        with pytest.raises(ConnectionError, match="all mirrors failed") as caught:
            load("mnist")
    for word in ("load('mnist')", FILE, nowhere, "refused", "set DISTLEARN_DATA=", "load('digits')"):
        assert word in str(caught.value)


@pytest.fixture
def published(tmp_path, write_set, monkeypatch):
    """A data set published on the local server under the name of MNIST."""
    arrays = write_set(tmp_path / "published")
    files = {file: (tmp_path / "published" / file).read_bytes() for file in FILES}
    with BadServer(files) as server:
        sums = {file: hashlib.sha256(data).hexdigest() for file, data in files.items()}
        known = KNOWN["mnist"]._replace(mirrors=(server.mirror("a"), server.mirror("b")), sha256=sums)
        monkeypatch.setitem(KNOWN, "mnist", known)
        yield server, arrays


def test_load_downloads_once_and_then_reads_the_cache(published, tmp_path):
    server, arrays = published
    server.plan = {"a": [("truncated", 100), ("status", 503)], "b": [("corrupt",)]}
    data = load("mnist")
    np.testing.assert_array_equal(data.x_test.reshape(arrays["t10k"][0].shape), arrays["t10k"][0] / np.float32(255))
    assert data.source.startswith(str(tmp_path / "cache"))
    asked = len(server.requests)
    assert load("mnist", seed=1).source == data.source
    assert len(server.requests) == asked
    assert {row.name: row.origin for row in available()}["mnist"] == "cache"


def test_distlearn_data_goes_before_the_network(published, tmp_path, write_set, monkeypatch):
    server, _ = published
    write_set(tmp_path / "own" / "mnist", n=(12, 4))
    monkeypatch.setenv("DISTLEARN_DATA", str(tmp_path / "own"))
    assert len(load("mnist").x_test) == 4  # a subset: its checksums are not the official ones
    assert server.requests == []


def test_the_published_checksums_are_whole():
    for known in KNOWN.values():
        assert sorted(known.sha256) == sorted(FILES)
        assert all(re.fullmatch("[0-9a-f]{64}", value) for value in known.sha256.values())
        assert all(mirror.startswith("http") and mirror.endswith("/") for mirror in known.mirrors)
        assert len(known.mirrors) >= 2
        assert len(known.classes) == len(set(known.classes)) == 10
