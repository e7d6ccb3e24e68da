"""Checks by results: a table says what is right in each case, and what each known mistake gives there.

    solution, cases, mistakes --`distlearn labs generate`--> results.npz, beside the notebook   (see `author.exercise`)
    lab.check("weighted_mean", weighted_mean): lab07.run_weighted_mean(answer, **case) --> compared with the table

The table holds results alone: the right ones, and for a mistake a few projections of its wrong ones. So no solution is
on a student's machine, no formula stands beside the code that it describes, and every mistake is tried when the table
is made.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import importlib
import json
import math
import re
import signal
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import NamedTuple

import numpy as np

from distlearn.comm.base import RankError

from .check import Check, call_watched
from .diagnose import RTOL, compare, kind_of
from .mistakes import row_mistake
from .predict import grading

FILE = "results.npz"
FOLDER = Path()  # where it lies: the notebook's own folder; while grading a judge has another
RAISED = "raises"  # the name of the result of an answer that raises an exception
ARGUMENTS, UNCHANGED = "arguments", "as they were"  # the name and the right text of what became of arguments
LIMIT = 20.0  # Seconds for a case, of computing: on a busy laptop a right answer takes several times as long as here
DIGITS = 9  # of a projection
SAME_FACTOR = 1e-4  # factors that differ by less, or elements' own, are one: arrays may be in float32
MISSING = ["missing", []]  # the signature of a result that is not there


class Mistake(NamedTuple):
    """What a known mistake gives: by case its wrong results, each as a `signature`; {} where it is right."""

    sentence: str
    wrong: list[dict]


class Table(NamedTuple):
    """Results of one exercise, by case."""

    cases: list[dict]
    right: list[dict]
    mistakes: list[Mistake]
    inplace: bool
    at_most: list[str]
    rtol: float | None
    without: list[str]
    probes: list[tuple]  # a case, the argument that is doubled as `doubled` takes it, the factors of results


def runner(number: str, name: str):
    """Return what gets results from an answer: the lab's `run_<name>`, or else a plain call."""
    with contextlib.suppress(ImportError, AttributeError):
        return getattr(importlib.import_module(f"distcourse.lab{number}"), f"run_{name}")
    return lambda answer, **case: {"result": answer(**case)}


def named(got, *names) -> dict:
    """Return several results by name; where there are not so many, each is a text that says what is there."""
    if (isinstance(got, (tuple, list)) or getattr(got, "ndim", 0)) and len(got) == len(names):
        return dict(zip(names, got, strict=True))
    of = f" of {len(got)}" if isinstance(got, (tuple, list, dict)) else ""
    told = f"a {type(got).__name__}{of}, not the {len(names)} results {', '.join(names)}"
    return dict.fromkeys(names, None if got is None else told)


# -- results -----------------------------------------------------------------------------------------------------------
def results_of(run, answers: tuple, cases: list[dict], inplace: bool) -> list[dict]:
    """Return the results of answers in each case by name; where one raises or does not end, the exception."""
    found = []
    for case in cases:
        try:
            with _limited(), np.errstate(all="ignore"):
                found.append(dict(_leaves(_watched(run, answers, copy.deepcopy(case), inplace))))
        except Exception as error:
            found.append({RAISED: error})
            if isinstance(_cause(error), TimeoutError):  # the others would not end either
                return found + [{RAISED: error}] * (len(cases) - len(found))
    return found


class _Names(list):
    shared_by_ranks = True  # simulated ranks report to one list


def _watched(run, answers, case, inplace) -> dict:
    if inplace:
        return run(*answers, **case)
    changed = _Names()

    def watched(answer, *args, **kwargs):
        result, those = call_watched(answer, args, kwargs)
        changed.extend(name for name, _ in those if name not in changed)
        return result

    results = run(*(a if isinstance(a, type) else functools.partial(watched, a) for a in answers), **case)
    return results | {ARGUMENTS: f"changed: {', '.join(changed)}" if changed else UNCHANGED}


@contextlib.contextmanager
def _limited():
    """Raise `TimeoutError` where a case computes for longer, or waits; while grading another process sees to that."""
    if grading() or not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return

    computed, began = time.thread_time(), time.monotonic()

    def stop(*_):
        waits = time.monotonic() - began > 3 * LIMIT
        ended = waits or time.thread_time() - computed > LIMIT
        if ended and not _debugged():  # who looks around inside an answer may take as long as that takes
            raise TimeoutError(f"no result after {LIMIT:g} s: does every loop end?")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, LIMIT, 1.0)  # again each second, where an answer goes on after any exception
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _debugged() -> bool:
    """Return whether Python's debugger has stopped here, or JupyterLab's is switched on."""
    jupyter = sys.modules.get("pydevd")
    stopped = (frame.f_globals.get("__name__") == "bdb" for frame, _ in traceback.walk_stack(sys._getframe()))
    return any(stopped) or (jupyter is not None and jupyter.get_global_debugger() is not None)


def _leaves(results: dict, within: str = ""):
    for key, value in results.items():
        name = f"{within}[{key!r}]" if within else key
        if isinstance(value, dict):
            yield name, f"a dict with {', '.join(sorted(map(repr, value))) or 'nothing'}"
            yield from _leaves(value, name)
        elif isinstance(value, (list, tuple)) and not _is_numeric(value):
            yield name, _text(value)
            yield from _leaves(dict(enumerate(value)), name)
        else:
            yield name, value


def _is_numeric(value) -> bool:
    """Return whether a value is compared as an array: an array, a number, a list of numbers."""
    if isinstance(value, (list, tuple)):
        return bool(value) and all(map(_is_number, value))
    return _is_number(value) or (hasattr(value, "dtype") and np.ndim(value) > 0 and value.dtype.kind in "biufc")


def _is_number(value) -> bool:
    plain = isinstance(value, (int, float, complex)) and not isinstance(value, bool)
    return (plain or hasattr(value, "dtype")) and np.ndim(value) == 0 and np.asarray(value).dtype.kind in "iufc"


def wrong_in(got: dict, want: dict, at_most=(), rtol=None) -> list[str]:
    """Return the names of the results that are wrong."""
    names = [*want, *(name for name in got if name not in want)]
    return [n for n in names if n not in got or n not in want or not _equal(got[n], want[n], n in at_most, rtol)]


def _equal(got, want, at_most: bool, rtol) -> bool:
    if not _is_numeric(want):
        return not _is_numeric(got) and _first_line(got) == _first_line(want)
    if at_most:
        return _is_numeric(got) and bool(np.all(np.asarray(got) <= _limit(want)))
    if any(isinstance(a, (list, tuple)) for a in (got, want)) and type(got) is not type(want):
        return False
    return not _rounds(got, want) and compare("", got, want, rtol=rtol, dtype=_dtype(want)).ok


def _rounds(got, want) -> bool:
    """Return whether a float stands where a whole number is wanted."""
    return np.asarray(want).dtype.kind in "iu" and _is_numeric(got) and np.asarray(got).dtype.kind not in "iu"


def _limit(want):
    return np.asarray(want) * (1 + 1e-9) + 1e-12


def _dtype(want):
    """The dtype that an array must have; a single number may have any."""
    return want.dtype if getattr(want, "ndim", 0) and want.dtype.kind == "f" else None


def _text(value) -> str:
    if isinstance(value, Exception):
        return type(_cause(value)).__name__
    if isinstance(value, (bool, np.bool_)):
        return str(bool(value))
    if value is None or isinstance(value, (str, bytes, int)):  # an int that no array holds
        return value if isinstance(value, str) else repr(value)
    return f"a {type(value).__name__}" + (f" of {len(value)}" if isinstance(value, (list, tuple)) else "")


def _first_line(value) -> str:
    """What is compared of a text: what follows, such as the lines of a kernel, is there to be read."""
    return _text(value).partition("\n")[0]


def _cause(error: Exception) -> Exception:
    """The exception of the answer itself, where that of a rank holds it."""
    return (error.original or error) if isinstance(error, RankError) else error


def signature(value) -> list:
    """Return what is kept of a wrong result: its shape and at most six numbers, or a text."""
    if not _is_numeric(value):  # of an error also the names in its text: others of its type have other reasons
        names = re.findall(r"'[\w. ]+'", str(_cause(value))) if isinstance(value, Exception) else []
        return [" ".join([_first_line(value), *names]), []]
    x = np.asarray(value)
    flat = (x.astype(complex).view(float) if x.dtype.kind == "c" else x.astype(float)).ravel()
    finite = np.isfinite(flat)
    if not finite.all():  # which elements are not finite counts, too
        flat = np.concatenate([np.where(finite, flat, 0.0), ~finite * np.abs(flat[finite]).max(initial=1.0)])
    if flat.size > 6:
        flat = np.random.default_rng(flat.size).normal(size=(6, flat.size)) @ flat / math.sqrt(flat.size)
    kind = type(value).__name__ if isinstance(value, (list, tuple)) else "array"
    return [f"{kind} {x.shape}", [float(f"{v:.{DIGITS}g}") for v in flat]]


def _alike(kept: list, got, want) -> bool:
    """Return whether a wrong result is that of a mistake."""
    text, numbers = signature(got)
    if text != kept[0] or len(numbers) != len(kept[1]):
        return False
    # rounding is measured against the right result, too: where a mistake gives 0, its last bits depend on the processor
    size = max(map(abs, [*kept[1], *(signature(want)[1] if want is not None else ())]), default=0.0)
    kinds = [a.dtype for a in map(np.asarray, (got, want)) if a.dtype.kind == "f"]
    rtol = 4 * max([RTOL[k.itemsize] for k in kinds if k.itemsize in RTOL], default=1e-9) + 10.0 ** (2 - DIGITS)
    return bool(np.allclose(numbers, kept[1], rtol=rtol, atol=rtol * size))


# -- tables ------------------------------------------------------------------------------------------------------------
def save(tables: dict[str, Table], folder) -> None:
    """Write the tables of a lab: arrays as they are, the rest as JSON."""
    arrays, kept = {}, {}
    for name, table in tables.items():
        cases, right = (
            [{key: _keep(arrays, value, plain) for key, value in row.items()} for row in rows]
            for rows, plain in ((table.cases, True), (table.right, False))
        )
        kept[name] = table._replace(cases=cases, right=right)
    tables = np.frombuffer(json.dumps(kept).encode(), np.uint8)
    named = {str(i): array for i, array in enumerate(arrays.values())}
    np.savez_compressed(Path(folder, FILE), tables=tables, **named)


def _keep(arrays: dict, value, plain: bool):
    """Return which array a value is, and whether it is a list; of an argument what JSON holds, of a result its text."""
    if plain and not isinstance(value, np.ndarray):
        return value
    if not _is_numeric(value):
        return _text(value)
    array = np.asarray(value, order="C")
    key = array.tobytes(), array.shape, array.dtype
    arrays.setdefault(key, array)  # ranks that have the same share one
    return {"array": list(arrays).index(key), "as": type(value).__name__}


def load(folder, *names: str) -> dict[str, Table]:
    """Read the tables of a lab, by exercise: of all exercises, or of those with these names."""
    found, path = {}, Path(folder, FILE)
    try:
        with np.load(path, allow_pickle=False) as file:
            kept = json.loads(file["tables"].tobytes())
            for name in [name for name in kept if not names or name in names]:
                cases, right, mistakes, *rest = kept[name]
                rows = ([{k: _kept(file, v) for k, v in row.items()} for row in part] for part in (cases, right))
                found[name] = Table(*rows, [Mistake(*one) for one in mistakes], *rest)
    except (TypeError, ValueError, KeyError) as error:
        raise ValueError(
            f"{path} belongs to another version of distlearn ({error}): take this version's lab"
        ) from error
    return found


def find(name: str) -> Table:
    """Return the table of an exercise of the lab in this folder."""
    if not Path(FOLDER, FILE).is_file():
        raise FileNotFoundError(f"no {FILE} in {FOLDER.resolve()}: it belongs to the lab, beside its notebook")
    tables = load(FOLDER, name)
    if name not in tables:
        raise ValueError(f"{FILE} has no exercise {name!r}, expected one of {', '.join(load(FOLDER))}")
    return tables[name]


def _kept(file, value):
    if not (isinstance(value, dict) and value.keys() == {"array", "as"}):
        return value
    array = file[str(value["array"])]
    return {"list": list, "tuple": tuple}[value["as"]](array.tolist()) if value["as"] in ("list", "tuple") else array


# -- the check ---------------------------------------------------------------------------------------------------------
def check(number: str, name: str, answers: tuple, hidden: bool = False) -> None:
    """Check the answers to an exercise in all its cases, and show the result.

    Parameters
    ----------
    number, name : str
        Of the lab, and of the exercise: its function.
    hidden : bool
        Try cases that the staff's `exercises.py` draws in place of the visible ones.

    Raises
    ------
    CheckFailed
        If a result is wrong.
    """
    if hidden:
        from .author.exercise import drawn

        table = drawn(name)
    else:
        table = find(name)
    run = runner(number, name)
    with Check(name + ", other cases" * hidden) as found:
        found.cases = 0, len(table.cases)
        for answer in answers:
            found.vet(answer, getattr(answer, "__name__", name), table.without)
        tried = results_of(run, answers, table.cases, table.inplace)
        raised = [results.get(RAISED) for results in tried]
        if all(isinstance(_cause(error), NotImplementedError) for error in raised):
            raise raised[0]

        def again(case, *argument):
            try:  # grading has answers in another process
                changed = () if grading() else doubled(answers, *argument) if argument else answers
            except (AttributeError, TypeError):  # no class where one is wanted, or one that lacks the method
                changed = ()
            return results_of(run, changed, [case], table.inplace)[0] if changed else {}

        _report(found, table, tried, again)


def _report(found: Check, table: Table, tried: list[dict], again) -> None:
    """Add a line for each case; results that are wrong alike share one.

    `again` tries a case once more, or with an argument doubled.
    """
    wrong = [wrong_in(got, want, table.at_most, table.rtol) for got, want in zip(tried, table.right, strict=True)]
    if found.ok:
        found.cases = wrong.count([]), len(wrong)
    whole, by_name = explain(table, tried, wrong)
    for case, got, want, names in zip(table.cases, tried, table.right, wrong, strict=True):
        if not names:
            found.line(True, words(case))
        elif RAISED in got and RAISED not in want:
            found.stopped(words(case), got[RAISED], whole)
        else:
            lines = {}
            for name in [n for n in names if n in got] or names:  # others are missing because these are wrong
                seen, mistake = _seen(name, got, want, table)
                known = whole or by_name.get(name)
                same = known or re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", "", mistake)
                lines.setdefault(same, (f"{name}: {seen}", known or mistake))
            for seen, advice in list(lines.values())[:2]:
                found.line(False, words(case), seen, advice)
    if any(wrong) and not (whole or by_name):
        notes = changing(table, tried, wrong, again) + relations(table, tried, wrong)
        if len(notes) < 2:  # they run the answer once more for every probe
            notes += responses(table, tried, again)
        for text in notes[:2]:
            found.note(text)


def _seen(name: str, got: dict, want: dict, table: Table) -> tuple[str, str]:
    """Describe a wrong result, and the mistake that the numbers alone show."""
    if name not in got or name not in want:
        return ("is missing" if name in want else "should not be there"), ""
    mine, right = got[name], want[name]
    if name == ARGUMENTS:
        return _text(mine), "make new arrays and lists, write into none that was passed"
    if name in table.at_most and _is_numeric(mine):
        return f"{float(np.max(mine)):.4g}, and {float(np.max(right)):.4g} is possible", ""
    if _is_numeric(right):
        if isinstance(mine, str):
            return f"wanted numbers, got {mine[:200]}", ""
        if mine is None and any(_text(row.get(name, 0)) == "None" for row in table.right):  # as is right elsewhere
            return f"wanted {right}, got None", ""
        if isinstance(right, (list, tuple)) and type(mine) is not type(right) and mine is not None:
            listed = "tolist() makes a list of an array" if isinstance(mine, np.ndarray) else ""
            return f"wanted a {type(right).__name__}, got {kind_of(mine)}", listed
        found = compare(name, mine, right, rtol=table.rtol, dtype=_dtype(right))
        if found.ok and isinstance(mine, (list, tuple)) and type(mine) is not type(right):
            return f"wanted an array, got {kind_of(mine)}", ""
        return (found.seen, f"{name} is a float, wanted a whole number") if found.ok else found[1:]
    mine = _text(mine)
    return f"wanted {right}, got {mine[:600]}", row_mistake(mine, right)


def explain(table: Table, tried: list[dict], wrong: list[list[str]]) -> tuple[str, dict[str, str]]:
    """Return the sentence that explains all wrong results, "" if none does; and those that explain all of one name."""
    failed = [i for i, names in enumerate(wrong) if names]

    def fits(mistake, i, names) -> bool:
        kept, got, want = mistake.wrong[i], tried[i], table.right[i]
        alike = (_alike(kept[n], got[n], want.get(n)) if n in got else kept[n] == MISSING for n in names if n in kept)
        return kept.keys() >= set(names) and all(alike)

    # a mistake that is wrong in more cases than this answer is another one
    whole = [
        m
        for m in table.mistakes
        if all(set(m.wrong[i]) == set(names) and fits(m, i, names) for i, names in enumerate(wrong))
    ]
    sentences = dict.fromkeys(m.sentence for m in whole) if failed else {}
    if sentences:
        return "; or ".join(sentences) if len(sentences) < 3 else "", {}
    by_name = {}
    for name in dict.fromkeys(n for i in failed for n in wrong[i] if n in tried[i] and n != RAISED):
        mine = [i for i in failed if name in wrong[i]]
        known = {
            m.sentence
            for m in table.mistakes
            if mine == [i for i, w in enumerate(m.wrong) if name in w] and all(fits(m, i, [name]) for i in mine)
        }
        if 0 < len(known) < 3:
            by_name[name] = "; or ".join(sorted(known))
    return "", by_name


def factor(before, after) -> float | None:
    """Return by what numbers were multiplied: NaN if by no one factor, None where that cannot be said."""
    pair = [np.asarray(x) for x in (before, after) if _is_numeric(x)]
    if len(pair) < 2 or pair[0].shape != pair[1].shape or any(x.dtype.kind not in "iuf" for x in pair):
        return None
    a, b = (x.astype(float).ravel() for x in pair)
    if not (np.isfinite(a).all() and np.isfinite(b).all() and a.any()):
        return None
    k = float(a @ b / (a @ a))
    return k if np.allclose(b, k * a, SAME_FACTOR, SAME_FACTOR * np.abs(b).max()) else math.nan


def doubled(answers: tuple, which: int, method: str, place: int, name: str) -> tuple:
    """Return the answers, of which one, or its method, has an argument doubled in every call."""
    answer = answers[which]
    original = getattr(answer, method) if method else answer

    @functools.wraps(original)
    def changed(*args, **kwargs):
        args = [_twice(a) if i == place else a for i, a in enumerate(args)]
        return original(*args, **{key: _twice(a) if key == name else a for key, a in kwargs.items()})

    made = type(answer.__name__, (answer,), {method: changed}) if method else changed
    return (*answers[:which], made, *answers[which + 1 :])


def _twice(value):
    if type(value) in (list, tuple):
        return type(value)(map(_twice, value))
    if isinstance(value, dict):
        return {key: _twice(v) for key, v in value.items()}
    return 2 * value if _is_numeric(value) else value


def changing(table: Table, tried: list[dict], wrong: list[list[str]], again) -> list[str]:
    """Say which results of the first wrong case differ when it is tried once more."""
    i = next(i for i, names in enumerate(wrong) if names)
    second = {} if RAISED in tried[i] else again(table.cases[i])
    why = "np.empty not filled, chance, or something kept from call to call?"
    return [f"{name} differs when called again: {why}" for name in wrong_in(second, tried[i]) if name in second]


def relations(table: Table, tried: list[dict], wrong: list[list[str]]) -> list[str]:
    """Say by what a result is multiplied, if that is one number or one argument in all cases in which it is wrong."""
    found = []
    for name in dict.fromkeys(name for names in wrong for name in names):
        rows = [row for row in zip(table.cases, table.right, tried, wrong, strict=True) if name in row[-1]]
        factors = [factor(right.get(name), got.get(name)) or math.nan for _, right, got, _ in rows]
        known = {f"{factors[0]:.4g}": factors[:1]}
        for key in rows[0][0]:
            values = [case.get(key) for case, *_ in rows]
            if all(_is_number(v) and v for v in values):
                known |= {key: values, f"1 / {key}": [1 / v for v in values]}
        texts = [
            text
            for text, due in known.items()
            if len(rows) > 1 and text != "1" and np.allclose(factors, due, SAME_FACTOR)
        ]
        found += [f"{name} is {text} times the right one wherever it is wrong" for text in texts[:1]]
    return found


def responses(table: Table, tried: list[dict], again) -> list[str]:
    """Say how a result changes with an argument where it should change otherwise: which part of an answer is wrong."""
    found, right = {}, {}
    for i, *argument, factors in table.probes:
        got = {} if RAISED in tried[i] else again(table.cases[i], *argument)
        if isinstance(_cause(got.get(RAISED)), TimeoutError):  # the others may not end either
            break
        for name, due in factors.items():
            mine = factor(tried[i].get(name), got.get(name))
            if mine is None or not due or (math.isnan(mine) and math.isnan(due)):  # 0: a count that ends at a threshold
                continue
            if math.isclose(mine, due, rel_tol=SAME_FACTOR):
                right.setdefault(name, []).append(argument[-1])
            else:
                off = np.nan_to_num(abs(mine - due) / max(abs(mine), abs(due)), nan=0.5)
                found.setdefault(name, []).append((not is_one(mine), -off, argument[-1], mine, due))
    texts = {}
    for name, rows in found.items():
        *_, argument, mine, due = min(rows)  # first an argument that changes nothing
        should = "not change it" if is_one(due) else f"multiply it by {due:.4g}"
        does = "does not change it" if is_one(mine) else f"multiplies it by {mine:.4g}"
        if math.isnan(due):
            should = "change it" if is_one(mine) else "change its elements by different factors"
        if math.isnan(mine):
            does = "changes it" if is_one(due) else "changes its elements by different factors"
        others = f"; right with {', '.join(right[name])}" if len(rows) == 1 and name in right else ""
        texts.setdefault(f": doubling {argument} should {should}, but {does}{others}", name)
    return [name + text for text, name in texts.items()][:2]


def is_one(k: float) -> bool:
    """Return whether a factor changes nothing, up to rounding."""
    return math.isclose(k, 1, rel_tol=SAME_FACTOR)


def words(case: dict) -> str:
    """Write a case as the arguments of a call; `of` says which of several answers it is for."""
    text = ", ".join(f"{key}={_brief(value)}" for key, value in case.items() if key != "of")
    return f"{case['of']}: {text}" if "of" in case else text or "the only case"


def _brief(value) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {value.shape}" if value.size > 6 else f"[{', '.join(map(_brief, value.tolist()))}]"
    if isinstance(value, list):
        return f"[{', '.join(map(_brief, value))}]"
    return f"{value:.4g}" if isinstance(value, float) else repr(value)
