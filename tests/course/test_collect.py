"""Whose notebook it is, from the names that learning platforms give to files."""

import io
import tarfile
import zipfile

import pytest
from distcourse.author import collect
from distcourse.author.collect import recognise

NAMES = {
    "/x/anna_lab00.ipynb": ("anna", "lab00"),
    "/x/Anna_Lab00.ipynb": ("Anna", "lab00"),
    "/x/schmidtanna_12345_67890_lab00.ipynb": ("schmidtanna-12345", "lab00"),
    "/x/schmidtanna_LATE_12345_67890_lab00-2.ipynb": ("schmidtanna-12345", "lab00"),
    "/x/Anna Schmidt_123456_assignsubmission_file/lab00.ipynb": ("anna-schmidt-123456", "lab00"),
    "/x/Anna Schmidt_123456_assignsubmission_file_/lab00 (1).ipynb": ("anna-schmidt-123456", "lab00"),
    "/x/Anna Schmidt_9_assignsubmission_file_my_lab00_final.ipynb": ("anna-schmidt-9", "lab00"),
    "/x/Anna_9_assignsubmission_file/mine/lab00.ipynb": ("anna-9", "lab00"),
    "/x/Zoë van Dijk_7_assignsubmission_file/lab00.ipynb": ("zoë-van-dijk-7", "lab00"),
    "/x/Lab 00_as123_attempt_2027-01-15-23-59-00_lab00.ipynb": ("as123", "lab00"),
    r"C:\x\anna_lab00.ipynb": ("anna", "lab00"),
    "/x/anna smith_lab00.ipynb": ("anna-smith", "lab00"),
    "/x/anna smith lab00 (1).ipynb": ("anna-smith", "lab00"),
    "/x/anna_my_lab00_final.ipynb": ("anna", "lab00"),
    "/x/lab00 bob_lab00.ipynb": ("bob", "lab00"),
    "/x/lab00_zoe.ipynb": ("zoe", "lab00"),
    "/x/lab00 zoe klein.ipynb": ("zoe-klein", "lab00"),
}


@pytest.mark.parametrize("path", NAMES)
def test_names_are_recognised(path):
    found = recognise(path)
    assert (found["student_id"], found["file_id"]) == NAMES[path]
    assert found.get("timestamp") == ("2027-01-15 23:59:00" if "attempt" in path else None)


@pytest.mark.parametrize(
    "path",
    [
        "/x/notes.ipynb",
        "/x/Anna_9_assignsubmission_file/.ipynb_checkpoints/lab00-checkpoint.ipynb",
        "/x/lab00.ipynb",
        "/x/lab00 (1).ipynb",
        "/x/lab00-Copy1.ipynb",
        "/x/anna_lab00.txt",
        "/x/../_lab00.ipynb",
    ],
)
def test_other_files_are_not(path):
    assert recognise(path) is None


def test_a_student_cannot_choose_a_folder():
    found = recognise("/x/.. ..%2f_12_assignsubmission_file/lab00.ipynb")
    assert "/" not in found["student_id"]
    assert not found["student_id"].startswith(".")


def test_lateness_and_a_formula_in_a_name():
    assert recognise("/x/schmidtanna_LATE_12345_67890_lab00-2.ipynb")["late"]
    assert "late" not in recognise("/x/schmidtanna_12345_67890_lab00-2.ipynb")
    assert recognise("/x/@SUM(1)_lab00.ipynb")["student_id"] == "SUM1"


def _zip(files) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as file:
        for name, text in files:
            file.writestr(name, text)
    return data.getvalue()


def _tar(files) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as file:
        for name, text in files:
            info = tarfile.TarInfo(name)
            info.size = len(text)
            file.addfile(info, io.BytesIO(text))
        link = tarfile.TarInfo("link_lab00.ipynb")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        file.addfile(link)
    return data.getvalue()


@pytest.mark.filterwarnings("ignore:Duplicate name:UserWarning")
@pytest.mark.parametrize(("ending", "pack"), [("zip", _zip), ("tar.gz", _tar), ("TGZ", _tar)])
def test_an_archive_is_unpacked_as_far_as_it_holds_notebooks_of_a_notebooks_size(
    tmp_path, monkeypatch, caplog, ending, pack
):
    monkeypatch.setattr(collect, "NOTEBOOK", 10**6)
    files = [(name, b"{}") for name in ("anna_lab00.ipynb", "../../ben_lab00.ipynb", "b/carl_lab00.ipynb")]
    files += [("b/.ipynb_checkpoints/carl_lab00.ipynb", b""), ("b/carl_lab00.ipynb", b"{ }")]
    files += [("bomb_lab00.ipynb", bytes(2_000_000)), ("notes.txt", b"")]
    files += [(f"nested.{ending}", pack([(f"{i}_lab00.ipynb", bytes(400_000)) for i in range(4)]))]
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / f"all.{ending}").write_bytes(pack([*files, (f"broken.{ending}", b"x")]))
    collect.Extract().extract(str(tmp_path / "in"), str(tmp_path / "out"))
    plugin, collected = collect.Collect(), set()
    for path in sorted(tmp_path.rglob("*.ipynb")):
        if plugin.collect(str(path)):
            collected.add(str(path.relative_to(tmp_path / "out" / "all")))
    names = {"anna_lab00.ipynb", "ben_lab00.ipynb", "b/carl_lab00.ipynb", "b/again/carl_lab00.ipynb"}
    assert collected == names | {"nested/0_lab00.ipynb", "nested/1_lab00.ipynb"}
    for text in (f"has 2 MB: bomb_lab00.ipynb in all.{ending}", "cannot be unpacked", "carl has handed in twice: "):
        assert text in caplog.text
    assert "again/carl_lab00.ipynb" in caplog.text


def test_a_tar_is_read_as_far_as_all_of_it_may_have(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(collect, "COLLECTED", 10**6)
    (tmp_path / "all.tar.gz").write_bytes(_tar([("film.mp4", bytes(2_000_000)), ("anna_lab00.ipynb", b"{}")]))
    collect.Extract().extract(str(tmp_path), str(tmp_path / "out"))
    assert not list((tmp_path / "out").rglob("*"))
    assert "Skipped the rest, after 1 MB: all.tar.gz" in caplog.text
