"""The downloader against a server on 127.0.0.1 that truncates, refuses, stalls and lies."""

import hashlib
import re
import socket
import threading

import numpy as np
import pytest

from distlearn.data import available, load
from distlearn.data import sources as download_module
from distlearn.data.sources import FILES, KNOWN, fetch

from .bad_server import BadServer

FILE = "train-images-idx3-ubyte.gz"
DATA = np.random.default_rng(0).bytes(300_000)
SHA256 = hashlib.sha256(DATA).hexdigest()


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(download_module, "PAUSE", 0)
    monkeypatch.setattr(download_module, "TIMEOUT", (30, 30))  # a busy machine is not a server that stalls


@pytest.fixture
def server():
    with BadServer({FILE: DATA}) as server:
        yield server


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "cache" / "mnist"


def get(server, folder, *mirrors):
    return fetch(FILE, folder, [server.mirror(mirror) for mirror in mirrors], SHA256)


def test_a_good_server_is_asked_once_and_a_good_file_not_at_all(server, folder):
    for _ in range(2):
        path = get(server, folder, "a", "b")
        assert path == folder / FILE
        assert path.read_bytes() == DATA
    assert server.requests == [("a", FILE, 0)]
    assert sorted(entry.name for entry in folder.iterdir()) == [FILE, f"{FILE}.lock"]


def test_a_broken_transfer_goes_on_where_it_broke_off(server, folder):
    server.plan["a"] = [("truncated", 100_000), ("truncated", 70_000), ("truncated", 1)]
    assert get(server, folder, "a").read_bytes() == DATA
    assert server.starts("a") == [0, 100_000, 170_000, 170_001]


def test_a_server_without_ranges_sends_all_again(server, folder):
    server.plan["a"] = [("truncated", 100_000), ("no_range",)]
    assert get(server, folder, "a").read_bytes() == DATA
    assert server.starts("a") == [0, 100_000]


def test_a_server_without_ranges_that_breaks_off_again_does_not_mix_the_pieces(server, folder):
    server.plan["a"] = [("truncated", 100_000), ("no_range", 50_000), ("no_range", 120_000), ("no_range",)]
    assert get(server, folder, "a").read_bytes() == DATA


def test_the_second_mirror_goes_on_where_the_first_gave_up(server, folder):
    server.plan["a"] = [("truncated", 100_000), *[("status", 503)] * 9]
    assert get(server, folder, "a", "b").read_bytes() == DATA
    assert server.starts("a") == [0, 100_000]
    assert server.starts("b") == [100_000]


@pytest.mark.parametrize("trouble", [("status", 503), ("status", 429), ("hang_up",), ("page",), ("corrupt",)])
def test_trouble_that_passes_is_waited_out(server, folder, trouble):
    server.plan["a"] = [trouble, trouble]
    assert get(server, folder, "a").read_bytes() == DATA
    assert server.starts("a") == [0, 0, 0]


def test_pauses_double(server, folder, monkeypatch):
    pauses = []
    monkeypatch.setattr(download_module, "PAUSE", 1.0)
    monkeypatch.setattr(download_module.time, "sleep", pauses.append)
    server.plan["a"] = [("status", 500), ("status", 502)]
    get(server, folder, "a")
    assert pauses == [1, 2]


def test_a_mirror_that_says_no_for_good_is_asked_once(server, folder):
    server.plan = {"a": [("status", 404)] * 9, "b": [("status", 503)] * 2}
    assert get(server, folder, "a", "b").read_bytes() == DATA
    assert (server.starts("a"), server.starts("b")) == ([0], [0, 0, 0])


def test_a_stalled_transfer_is_taken_up_again(server, folder, monkeypatch):
    monkeypatch.setattr(download_module, "TIMEOUT", (30, 1.0))
    server.plan["a"] = [("stall", 131_072, 60.0)]
    assert get(server, folder, "a").read_bytes() == DATA
    assert server.starts("a") == [0, 131_072]


@pytest.mark.parametrize("lie", [("silently_truncated", 100_000), ("mislabelled",), ("other_range",)])
def test_a_server_that_lies_about_what_it_sends(server, folder, lie):
    server.plan["a"] = [("truncated", 50_000), lie]
    assert get(server, folder, "a").read_bytes() == DATA


def test_a_wrong_checksum_is_refused_with_file_expected_and_found(server, folder):
    server.plan["a"] = [("corrupt",)] * 9
    bad = DATA[:150_000] + b"?" + DATA[150_001:]
    message = f"{FILE}: wrong SHA-256: expected {SHA256}, found {hashlib.sha256(bad).hexdigest()} (300000 bytes)"
    with pytest.raises(ValueError, match=re.escape(message)):
        get(server, folder, "a")
    assert [entry.name for entry in folder.iterdir()] == [f"{FILE}.lock"]  # neither file nor part is left


def test_corrupt_bytes_from_one_mirror_do_not_spoil_the_next(server, folder):
    server.plan["a"] = [("corrupt",)] * 9
    assert get(server, folder, "a", "b").read_bytes() == DATA
    assert server.starts("b") == [0]


def test_all_refuse_and_the_error_says_so_of_each(server, folder):
    server.plan = {"a": [("status", 404)] * 9, "b": [("status", 503)] * 9}
    with pytest.raises(ConnectionError, match="all mirrors failed") as caught:
        get(server, folder, "a", "b")
    assert re.search(r"/a/train-images-idx3-ubyte.gz: 404 .*\n.*/b/train-images-idx3-ubyte.gz: 503", str(caught.value))
    assert server.starts("b") == [0] * download_module.ROUNDS


def test_a_partial_file_is_kept_for_the_next_call_and_never_taken_for_the_file(server, folder):
    server.plan["a"] = [("truncated", 100_000), *[("status", 503)] * 9]
    with pytest.raises(ConnectionError):
        get(server, folder, "a")
    assert not (folder / FILE).exists()
    assert (folder / f"{FILE}.part").read_bytes() == DATA[:100_000]
    server.plan.clear()
    assert get(server, folder, "a").read_bytes() == DATA
    assert server.starts("a")[-1] == 100_000


def test_an_interrupted_download_is_resumed(server, folder, monkeypatch):
    import tqdm.auto

    class Interrupted(tqdm.auto.tqdm):
        def update(self, n=1):
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(tqdm.auto, "tqdm", Interrupted)
        with pytest.raises(KeyboardInterrupt):
            get(server, folder, "a")
    assert not (folder / FILE).exists()
    assert get(server, folder, "a").read_bytes() == DATA
    assert server.starts("a") == [0, 65_536]


@pytest.mark.parametrize(
    "left", [DATA[:-1] + b"?", b"?" * 1000, DATA + b"?", DATA], ids=["bad", "junk", "long", "whole"]
)
def test_whatever_part_was_left_the_file_is_right(server, folder, left):
    folder.mkdir(parents=True)
    (folder / f"{FILE}.part").write_bytes(left)
    assert get(server, folder, "a").read_bytes() == DATA


def test_a_damaged_file_in_the_cache_is_replaced(server, folder):
    folder.mkdir(parents=True)
    (folder / FILE).write_bytes(DATA[:1000])
    assert get(server, folder, "a").read_bytes() == DATA


def test_a_good_file_in_a_cache_that_cannot_be_written_is_enough(server, folder, monkeypatch):
    get(server, folder, "a")
    monkeypatch.setattr("filelock.FileLock", None)  # would fail if it were reached
    get(server, folder, "a")


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


def test_the_progress_bar_counts_every_byte_once(server, folder, monkeypatch):
    import tqdm.auto

    bars = []

    class Recorded(tqdm.auto.tqdm):
        def __init__(self, **options):
            self.options, self.counted = options, []
            bars.append(self)
            super().__init__(**options)

        def update(self, n=1):
            self.counted.append(n)

    monkeypatch.setattr(tqdm.auto, "tqdm", Recorded)
    server.plan["a"] = [("truncated", 100_000)]
    get(server, folder, "a")
    assert [bar.options["initial"] for bar in bars] == [0, 100_000]
    assert [sum(bar.counted) for bar in bars] == [100_000, 200_000]
    assert {bar.options["total"] for bar in bars} == {300_000}
    assert {bar.options["desc"] for bar in bars} == {FILE}


def test_nothing_is_printed_into_a_log_file(server, folder, capfd):
    get(server, folder, "a")
    assert capfd.readouterr() == ("", "")


def test_no_network_names_the_ways_on(monkeypatch):
    with socket.socket() as free:  # a port on which no process listens
        free.bind(("127.0.0.1", 0))
        nowhere = f"http://127.0.0.1:{free.getsockname()[1]}/"
        monkeypatch.setitem(KNOWN, "mnist", KNOWN["mnist"]._replace(mirrors=(nowhere,)))
        with pytest.raises(ConnectionError, match="no network") as caught:
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
    data = load("mnist", flat=False)
    np.testing.assert_array_equal(data.x_test[..., 0], arrays["t10k"][0] / np.float32(255))
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


def test_load_refuses_a_wrong_checksum(published):
    server, _ = published
    server.plan = {"a": [("corrupt",)] * 9, "b": [("corrupt",)] * 9}
    with pytest.raises(ValueError, match=r"wrong SHA-256: expected \w+, found \w+ ") as caught:
        load("mnist")
    assert FILE in str(caught.value)
    assert "DISTLEARN_DATA" in str(caught.value)


def test_the_published_checksums_are_whole():
    for known in KNOWN.values():
        assert sorted(known.sha256) == sorted(FILES)
        assert all(re.fullmatch("[0-9a-f]{64}", value) for value in known.sha256.values())
        assert all(mirror.startswith("http") and mirror.endswith("/") for mirror in known.mirrors)
        assert len(known.mirrors) >= 2
        assert len(known.classes) == len(set(known.classes)) == 10
