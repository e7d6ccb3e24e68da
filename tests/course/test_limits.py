"""Limits of a submission: room for output, memory."""

import subprocess
import sys

from distcourse.author.sandbox import MemoryWatch, Room, stretch


def test_output_is_cut_when_the_room_is_full():
    room, shown = Room(10), []
    for text in ("1234567", "890123456", "more"):
        msg = {"name": "stderr", "text": text}
        shown += [msg["text"]] if room.admit(msg) else []
    assert shown[0] == "1234567"
    assert shown[1].startswith("890\n[... cut: a cell may show 10 characters")
    assert len(shown) == 2
    picture = {"data": {"image/png": "x" * 50}}
    assert not room.admit(picture)
    assert Room(10).admit(picture)
    assert picture["data"]["text/plain"].startswith("[output of 50 characters left out]")


def test_an_error_is_always_shown():
    room = Room(3)
    room.admit({"text": "1234"})
    error = {"ename": "E", "evalue": "12345", "traceback": ["12345"]}
    assert room.admit(error)
    assert error == {"ename": "E", "evalue": "123", "traceback": ["123"]}


def test_memory_of_a_process_and_its_children_is_watched():
    code = "import subprocess, sys\nx = b'x' * {}\n{}sys.stdin.read()"
    child = f"subprocess.run([sys.executable, '-c', {code.format(300_000_000, '')!r}])\n"
    for text, limit, killed in (
        (code.format(300_000_000, ""), 200, True),
        (code.format(60_000_000, child), 200, True),
        (code.format(60_000_000, ""), 200, False),
    ):
        with subprocess.Popen([sys.executable, "-c", text], stdin=subprocess.PIPE) as process:
            watch = MemoryWatch(process.pid, limit * 2**20, every=0.01)
            if killed:
                assert process.wait(60) != 0
                assert "0.2 GiB are allowed" in watch.told
            watch.stop()
            assert killed == bool(watch.told)


def test_cells_get_longer_where_more_programs_want_to_run_than_there_are_cores(monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    for load, expected in ((0.3, 1), (2.0, 1), (5.0, 2.5), (90.0, 4)):
        monkeypatch.setattr("os.getloadavg", lambda load=load: (load, 0, 0))
        assert stretch(4) == expected
    assert stretch(1) == 1
