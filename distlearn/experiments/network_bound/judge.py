"""Checks of a student's codecs, compressed all-reduce and DiLoCo round against plain NumPy."""

from __future__ import annotations

import numpy as np

from ...sim import SimWorld


def encode_8bit(x):
    """Scale to -127 ... 127, round to the nearest."""
    scale = np.abs(x).max(keepdims=True).astype(np.float32)
    return scale, np.rint(x * (127 / np.where(scale > 0, scale, 1))).astype(np.int8)


def decode_8bit(scale, levels, n):
    """Scale back."""
    return levels * (scale / np.float32(127))


def encode_1bit(x):
    """Signs, and the mean of each side."""
    above = x >= 0
    means = [x[side].mean() if side.any() else 0 for side in (above, ~above)]
    return np.array(means, np.float32), np.packbits(above)


def decode_1bit(means, bits, n):
    """The mean of each value's side."""
    return np.where(np.unpackbits(bits)[:n] == 1, means[0], means[1])


def encode_top(x, k):
    """The k largest by size, and where they are."""
    places = np.argsort(-np.abs(x), kind="stable")[:k].astype(np.uint32)
    return places, x[places]


def decode_top(places, values, n):
    """Zero everywhere else."""
    x = np.zeros(n, np.float32)
    x[places] = values
    return x


CODECS = {
    "8 bit": (encode_8bit, decode_8bit),
    "1 bit": (encode_1bit, decode_1bit),
    "top k": (encode_top, decode_top),
}


def _wrong(kind: str, x, k) -> dict:
    """What arrives by known mistakes."""
    size = np.abs(x).max()
    if kind == "8 bit":
        scaled = x * (127 / (size or 1))
        return {
            "round to the nearest level (np.rint); astype alone cuts off": np.trunc(scaled) * size / 127,
            "the scale is the largest of abs(x), not of x": np.clip(np.rint(x / x.max() * 127), -127, 127)
            * (x.max() / 127)
            if x.max() > 0
            else np.nan,
        }
    if kind == "1 bit":
        signs = np.where(x >= 0, 1.0, -1.0)
        return {
            "each side has a mean of its own": signs * np.abs(x).mean(),
            "signs alone do not say how large": signs,
            "the means belong to the other side": decode_1bit(encode_1bit(x)[0][::-1], encode_1bit(x)[1], len(x)),
        }
    largest, rest = np.argsort(-x)[:k], np.argsort(np.abs(x))[:k]
    return {
        "the largest in magnitude: abs(x)": decode_top(largest, x[largest], len(x)),
        "these are the smallest": decode_top(rest, x[rest], len(x)),
    }


def _away_from_halves(x):
    """Move values that lie between two levels onto one: how they are rounded depends on the order of operations."""
    level = np.abs(x).max() / np.float32(127)
    if not level:
        return x
    scaled = x / level
    between = np.abs(np.abs(scaled - np.trunc(scaled)) - 0.5) < 1e-3
    return np.where(between, np.trunc(scaled) * level, x).astype(x.dtype)


def judge_codec(check, kind: str, encode, decode, x, *k, what: str = "") -> None:
    """Compare a codec with the one of the lab's text, on one array, in one line.

    Parameters
    ----------
    check : Check
    kind : {"8 bit", "1 bit", "top k"}
    encode : callable
        `encode(x, *k)` returns two arrays.
    decode : callable
        `decode(first, second, n)` returns what arrives.
    x : (n,) array of float32
    *k : int
        For "top k": how many values are sent.
    what : str
        Of what kind the array is.
    """
    of = ", ".join(filter(None, [kind, what, f"n = {len(x)}", *(f"k = {count}" for count in k)]))
    with check.group(of):
        _judge_codec(check, kind, encode, decode, x, *k, of=of)


def _judge_codec(check, kind, encode, decode, x, *k, of) -> None:
    right_encode, right_decode = CODECS[kind]
    if kind == "8 bit":
        x = _away_from_halves(x)
    n, want = len(x), right_encode(x, *k)
    code = check.call(encode, x, *k)
    pair = isinstance(code, (tuple, list)) and len(code) == 2 and all(isinstance(a, np.ndarray) for a in code)
    check.true(f"encode returns two arrays ({of})", pair, f"it returned {type(code).__name__}, wanted a pair of arrays")
    if pair:
        types = tuple(str(a.dtype) for a in code), tuple(a.shape for a in code)
        check.equal(
            f"dtypes and shapes ({of})", types, (tuple(str(a.dtype) for a in want), tuple(a.shape for a in want))
        )
        if types[1] == tuple(a.shape for a in want):
            arrived = right_decode(code[0], code[1].astype(want[1].dtype), n)
            check.close(
                f"what arrives ({of})", arrived, right_decode(*want, n), rtol=1e-5, suspects=_wrong(kind, x, *k or [0])
            )
            if kind != "top k":  # whose places may come in any order
                check.close(f"{'means' if kind == '1 bit' else 'scale'} ({of})", code[0], want[0], rtol=1e-5)
            if kind == "1 bit":
                check.equal(f"bits, 1 where x >= 0 ({of})", code[1].tolist(), want[1].tolist())
    got = check.call(decode, *want, n)
    check.close(f"decode ({of})", got, right_decode(*want, n), rtol=1e-5)


def right_all_reduce(comm, x, error, encode, decode):
    """Sum over ranks of what arrives; keep what does not."""
    given = x + error
    code = encode(given)
    error[...] = given - decode(*code, len(x))
    rows = [comm.all_gather(part) for part in code]
    return sum(decode(*(part[rank] for part in rows), len(x)) for rank in range(comm.size))


def _forgetful(comm, x, error, encode, decode):
    """The error is kept and not used."""
    kept = np.zeros_like(error)
    total = right_all_reduce(comm, x, kept, encode, decode)
    error[...] = kept
    return total


def _renaming(comm, x, error, encode, decode):
    """The new error is in another array, which the caller never sees."""
    return right_all_reduce(comm, x, error.copy(), encode, decode)


def _overwriting(comm, x, error, encode, decode):
    """The error of the gradient alone: what was left before is lost."""
    code = encode(x + error)
    error[...] = x - decode(*code, len(x))
    rows = [comm.all_gather(part) for part in code]
    return sum(decode(*(part[rank] for part in rows), len(x)) for rank in range(comm.size))


def _averaging(comm, x, error, encode, decode):
    return right_all_reduce(comm, x, error, encode, decode) / comm.size


MISTAKES = {
    "the error of the last call is not added": _forgetful,
    "error = ... makes a new array: write into this one, error[...] = ...": _renaming,
    "the new error is that of x + error, not that of x": _overwriting,
    "a sum over ranks, not a mean": _averaging,
}


def judge_all_reduce(
    check, all_reduce, *, ranks=3, n=40, steps=3, kind="top k", seed=1, dtype="float32", left=False
) -> None:
    """Compare a compressed all-reduce with error feedback with the right one, over some calls on simulated ranks.

    Parameters
    ----------
    check : Check
    all_reduce : callable
        `all_reduce(comm, x, error, encode, decode)` returns the sum, and changes `error` in place.
    ranks, n, steps, seed : int
    kind : {"8 bit", "1 bit", "top k"}
    dtype : dtype
    left : bool
        Begin with an error other than zero.
    """
    encode, decode = CODECS[kind]
    if kind == "top k":
        k = max(1, n // 10)
        encode = lambda x: encode_top(x, k)  # noqa: E731

    def program(comm, function):
        rng = np.random.default_rng([seed, comm.rank])
        error = rng.normal(size=n).astype(dtype) * left
        found, same = [], True
        for _ in range(steps):
            x = rng.normal(size=n).astype(dtype)
            before = x.copy()
            total = function(comm, x, error, encode, decode)
            same &= bool(np.array_equal(x, before))
            found.append((None if total is None else np.array(total), error.copy()))
        return found, same

    def run(function):
        world = SimWorld(ranks)
        return world.run(program, function), world.trace.bytes_sent

    of = f"{kind}, {ranks} rank" + "s" * (ranks != 1)
    want, sent = run(right_all_reduce)
    wrong = {text: run(function)[0] for text, function in MISTAKES.items()}
    got = check.call(run, all_reduce)
    if got is None:
        return
    found, bytes_sent = got
    calls = [(step, rank) for step in range(steps) for rank in sorted({0, ranks - 1})]
    with check.group(f"sum and error in {steps} calls ({of})"):
        for step, rank in calls:
            where = f"({of}, rank {rank}, call {step + 1})"
            suspects = {text: result[rank][0][step][0] for text, result in wrong.items()}
            check.close(f"sum {where}", found[rank][0][step][0], want[rank][0][step][0], rtol=1e-5, suspects=suspects)
            suspects = {text: result[rank][0][step][1] for text, result in wrong.items()}
            check.close(f"error {where}", found[rank][0][step][1], want[rank][0][step][1], atol=1e-6, suspects=suspects)
    check.true(f"x is unchanged ({of})", all(same for _, same in found), "x changed: x = x + error makes a new array")
    check.equal(f"bytes sent by all ranks ({of})", int(bytes_sent), int(sent))


def right_round(comm, start, end, velocity, lr=0.7, mu=0.9):
    """Step along the mean difference, with Nesterov's momentum."""
    delta = start - comm.all_reduce(end.copy()) / comm.size
    velocity[...] = mu * velocity + delta
    return start - lr * (delta + mu * velocity)


def _with(step):
    """A round with another last line."""

    def round_(comm, start, end, velocity, lr=0.7, mu=0.9):
        delta = start - comm.all_reduce(end.copy()) / comm.size
        velocity[...] = mu * velocity + delta
        return step(start, delta, velocity, lr, mu)

    return round_


def _turned(comm, start, end, velocity, lr=0.7, mu=0.9):
    """Delta from the start to the mean, in velocity and step."""
    delta = comm.all_reduce(end.copy()) / comm.size - start
    velocity[...] = mu * velocity + delta
    return start - lr * (delta + mu * velocity)


ROUND_MISTAKES = {
    "delta points from the mean back to the start: start - mean": _turned,
    "this is momentum: Nesterov moves by delta + mu v": _with(lambda w, d, v, lr, mu: w - lr * v),
    "delta points from the mean back to the start, and is subtracted": _with(
        lambda w, d, v, lr, mu: w + lr * (d + mu * v)
    ),
    "go on from start, not from the mean": _with(lambda w, d, v, lr, mu: w - d - lr * (d + mu * v)),
    "this is local SGD: the mean itself": _with(lambda w, d, v, lr, mu: w - d),
}


def judge_round(check, function, *, ranks=3, n=5, steps=3, seed=1, **options) -> None:
    """Compare a DiLoCo round with the right one, over some rounds on simulated ranks.

    Parameters
    ----------
    check : Check
    function : callable
        `function(comm, start, end, velocity, lr=, mu=)` returns the parameters to go on with; `velocity` changes in
        place, the others do not.
    ranks, n, steps, seed : int
    **options
        lr, mu.
    """

    def program(comm, call):
        rng = np.random.default_rng(seed)
        start, velocity, found, same = rng.normal(size=n), rng.normal(size=n), [], True
        for _ in range(steps):
            end = start + rng.normal(size=(comm.size, n))[comm.rank]
            before = start.copy(), end.copy()
            after = call(comm, start, end, velocity, **options)
            same &= bool(np.array_equal(start, before[0]) and np.array_equal(end, before[1]))
            found.append((None if after is None else np.array(after), velocity.copy()))
            start = before[0] - 0.3  # the same whatever was returned
        return found, same

    of = f"{ranks} rank" + "s" * (ranks != 1)
    _, first = np.random.default_rng(seed).normal(size=(2, n))
    want = SimWorld(ranks).run(program, right_round)
    wrong = {text: SimWorld(ranks).run(program, call) for text, call in ROUND_MISTAKES.items()}
    found = check.call(lambda: SimWorld(ranks).run(program, function))
    if found is None:
        return
    with check.group(f"parameters and velocity in {steps} rounds ({of})"):
        for step in range(steps):
            where = f"({of}, round {step + 1})"
            suspects = {text: result[0][0][step][0] for text, result in wrong.items()}
            check.close(f"parameters {where}", found[0][0][step][0], want[0][0][step][0], suspects=suspects)
            suspects = {"velocity = ... makes a new array: change this one in place": first}
            suspects |= {text: result[0][0][step][1] for text, result in wrong.items()}
            check.close(f"velocity {where}", found[0][0][step][1], want[0][0][step][1], suspects=suspects)
    last = [result[0][-1][0] for result in found]
    check.true(f"all ranks have the same w ({of})", all(np.array_equal(a, last[0]) for a in last), "ranks differ")
    check.true(f"start and end are unchanged ({of})", all(same for _, same in found), "all_reduce sums in place: copy")
