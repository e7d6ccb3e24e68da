"""The setup cell: one line about the machine, warnings about crowding, the figures' style; and nothing else."""

import subprocess
import sys

import numpy as np
import pytest
from distcourse import Lab, lab, show
from threadpoolctl import threadpool_info, threadpool_limits


def test_setup_prints_one_line_and_seeds_nothing(capsys):
    np.random.seed(3)  # noqa: NPY002
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    Lab("07")
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("lab 07 · distlearn ")
    assert np.array_equal(before, np.random.get_state()[1])  # noqa: NPY002


def test_a_number_and_a_kind_that_are_none_are_named():
    for number in ("7", 7):
        with pytest.raises(ValueError, match=f"number is {number!r}, expected two digits"):
            Lab(number)
    with pytest.raises(ValueError, match="prediction 'n': kind is <class 'int'>"):
        Lab("99").predict("n", "How many?", kind=int)


def test_a_lab_takes_one_thread_of_blas():
    with threadpool_limits(2, user_api="blas"):
        lab.Lab("07")
        assert {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"} == {1}


def test_crowding_is_told():
    assert lab._crowding(0, 2, "8") == []
    assert lab._crowding(2, 2, None) == []
    assert lab._crowding(2, 2, "1") == []
    (turns,) = lab._crowding(4, 2, "1")
    assert "no measured speed-up can exceed 2" in turns
    (threads,) = lab._crowding(2, 2, "2")
    assert "4 threads on 2 cores" in threads
    assert len(lab._crowding(4, 1, "4")) == 2


def test_cores_are_those_that_a_container_may_use(monkeypatch, capsys):
    monkeypatch.setattr("distcourse.lab.count_cores", lambda: 3)
    Lab("07", engines=4)
    said = capsys.readouterr().out
    assert "3 cores" in said
    assert "4 engines take turns on 3 cores" in said


def test_figures_carry_their_text(capsys):
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt
    from distcourse.show import Picture

    lab = Lab("07")
    fig, ax = plt.subplots()
    ax.plot([1, 2])
    picture = Picture(fig, 'Loss "falls" & stays.')
    assert 'alt="Loss &quot;falls&quot; &amp; stays."' in picture._repr_html_()
    assert picture._repr_png_()[:8] == b"\x89PNG\r\n\x1a\n"
    assert 500 < picture.width < 900, "shown at its size in inches, not in pixels of the file"
    capsys.readouterr()
    lab.show(ax, alt="Loss falls.")
    assert capsys.readouterr().out.strip() == "[figure: Loss falls.]"
    assert not plt.get_fignums(), "or a notebook would show it twice"
    with pytest.raises(ValueError, match="alt is empty"):
        lab.show(fig, alt=" ")


def test_a_lab_needs_no_notebook_and_imports_no_heavy_package():
    """Nor do the modules whose functions run on engines: each of them would load it."""
    modules = ", ".join(f"distcourse.lab{number:02}" for number in (6, 7, 8, 9, 10, 11, 12, 15))
    code = (
        f"import sys, {modules};"
        "bad = {'matplotlib', 'IPython', 'nbformat', 'nbgrader', 'ipyparallel', 'mpi4py'} & set(sys.modules);"
        "print(sorted(bad))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"


def test_a_film_is_one_image_with_a_slider(capsys):
    import matplotlib.pyplot as plt

    frames = [plt.figure(), plt.figure()]
    Lab("00").film([(frames[0], "first | half"), (frames[1], 'the "second"')])
    assert "[figure: first | half]" in capsys.readouterr().out
    assert not plt.get_fignums(), "or the notebook shows them again"
    made = show.Film([show.Picture(plt.figure(), "one"), show.Picture(plt.figure(), 'the "other"')])
    page = made._repr_html_()
    assert page.count("<img") == 1
    assert 'max="1"' in page
    assert "the &quot;other&quot;" in page
    plt.close("all")


def test_a_bar_has_a_label_and_is_silent_while_graded(monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    report = Lab("07").bar("training")
    for done in (1, 2):
        report(done, 2, method="BSP")
    assert "training: 100%" in capsys.readouterr().err
    monkeypatch.setenv("NBGRADER_EXECUTION", "autograde")
    Lab("07").bar("training")(1, 2)
    assert not capsys.readouterr().err


def test_a_card_folds_many_lines_that_are_right():
    def shown(right):
        lines = [show.Line("bad", "x<y", "wanted 1, got <2>"), *(show.Line("good", f"check {i}") for i in range(right))]
        return show.Card("t", [*lines, show.Line("note", "the same")], "bad")._repr_html_()

    assert "<details>" not in shown(15)
    above, _, folded = shown(16).partition("<details><summary>16 that are right</summary>")
    assert "x&lt;y" in above
    assert "wanted 1, got &lt;2&gt;" in above
    assert "the same" in above
    assert "check" not in above
    assert all(f"check {i}<" in folded for i in range(16))
