"""The exercises of lab 00: cases of their checks, and the mistakes that the checks name."""

from distcourse.author.exercise import Exercise, rows

EXERCISES = {}
MEAN = "return total / comm.size"

EXERCISES["mean_over_ranks"] = Exercise(
    cases=rows("ranks shape seed", (4, [3]), (3, [5], 1), (2, [1, 4], 2), (1, [6], 3), (3, [5], 4)),
    draw=lambda rng: {
        "ranks": rng.integers(1, 7),
        "shape": rng.integers(1, 8, int(rng.integers(1, 3))).tolist(),
        "seed": rng.integers(1000),
    },
    mistakes={
        "this is the sum over all ranks: add up once, and divide by comm.size": [
            f"{MEAN}  ->  return total",
            "comm.all_reduce(total)  ->  comm.all_reduce(total)\n    comm.all_reduce(total)",
        ],
        "any number of ranks: divide by comm.size, not by 4": f"{MEAN}  ->  return total / 4",
        "x stays as it is: give all_reduce a copy": [
            "total = x.copy()  ->  total = x",
            "total = x.copy()  ->  x /= 1.5\n    total = x.copy()",
        ],
        "this is the rank's own x: nothing was communicated": "comm.all_reduce(total)  ->  total = total * comm.size",
        "its own x, divided by size: it received nothing": "comm.all_reduce(total)  ->  pass",
        "all numbers of x, not only three": f"{MEAN}  ->  return (total / comm.size).reshape(-1)[:3]",
        "one number for each element of x: this is the mean over the elements, too": (
            f"{MEAN}  ->  return total.mean() / comm.size"
        ),
        "divide by the number of ranks, not of elements": f"{MEAN}  ->  return total / len(x)",
        "all ranks call all_reduce: who calls it waits for all others": (
            "comm.all_reduce(total)  ->  if comm.rank == 0: comm.all_reduce(total)"
        ),
        "digits are lost: leave the dtype of x as it is": "total = x.copy()  ->  total = x.astype('float32')",
        "// rounds down: divide with /": f"{MEAN}  ->  return total // comm.size",
        "x was cut to whole numbers": "total = x.copy()  ->  total = x.astype(int)",
        "every rank counts, the last one, too: divide by size": (
            f"{MEAN}  ->  return total / np.float64(comm.size - 1)"
        ),
        "an array, not a list": f"{MEAN}  ->  return (total / comm.size).tolist()",
        "divide by the number of ranks, as it is: one rank is enough": f"{MEAN}  ->  return total / max(2, comm.size)",
        "a mean over ranks: neither the largest nor the middle one": [
            "comm.all_reduce(total)  ->  comm.all_reduce(total, 'max')",
            f"{MEAN}  ->  return np.median(comm.all_gather(x), axis=0)",
        ],
        "the mean alone, as it is: nothing rounded, nothing beside it": [
            f"{MEAN}  ->  return (total / comm.size).round(3)",
            f"{MEAN}  ->  return total / comm.size, comm.size",
        ],
        "every rank returns the mean, not only rank 0": (
            f"{MEAN}  ->  return total / comm.size if comm.rank == 0 else x"
        ),
        "did you forget `return`?": f"{MEAN}  ->  total / comm.size",
    },
)

EXTRA = "(1 if rank < n % size else 0)"
ALL = f"n // size + {EXTRA}"

EXERCISES["share"] = Exercise(
    cases=[{"n": n, "size": size} for n, size in ((10, 4), (8, 4), (2, 5), (26, 3), (0, 2), (7, 1))],
    draw=lambda rng: {"n": rng.integers(rng.choice([5, 100, 2000])), "size": rng.integers(1, 10)},
    draws=8,
    mistakes={
        "rounded up until nothing is left: shares differ by at most one": (
            "n // size + (1 if rank < n % size else 0)  ->  max(0, min(-(-n // size), n - rank * -(-n // size)))"
        ),
        "rounded down, so that samples are left over": f"{ALL}  ->  n // size",
        "rounded up, so that there are more than n samples": f"{ALL}  ->  -(-n // size)",
        "the whole remainder goes to the last rank": f"{EXTRA}  ->  (n % size if rank == size - 1 else 0)",
        "the whole remainder goes to rank 0": f"{EXTRA}  ->  (n % size if rank == 0 else 0)",
        "every rank gets the whole remainder": f"{EXTRA}  ->  n % size",
        "a whole number, 3, not 3.0: // divides whole numbers": [
            "n // size + (1 if  ->  n // size + (1.0 if",
            f"{ALL}  ->  float({ALL})",
        ],
        "this is no whole number: // divides whole numbers": ["n // size +  ->  n / size +", f"{ALL}  ->  n / size"],
        "one rank too many gets one more: ranks are numbered from 0": "rank < n % size  ->  rank <= n % size",
        "rank 0 is left out: ranks are numbered from 0": "rank < n % size  ->  0 < rank <= n % size",
        "the last ranks get one more: it should be the first": "rank < n % size  ->  rank >= size - n % size",
        "one too few on each: True counts as 1, False as 0": f"{EXTRA}  ->  (rank < n % size) - 1",
        "divide by size, not by 4": "n // size +  ->  n // 4 +",
        "the last ranks may get none": f"return {ALL}  ->  return max(1, {ALL})",
        "rounded to the nearest, so that shares do not add up to n": [
            f"{ALL}  ->  round(n / size)",
            f"{ALL}  ->  int(n / size + 0.5)",
        ],
        "one number: how many samples this rank gets": [
            f"{ALL}  ->  [len(range(r, n, size)) for r in range(size)]",
            f"return {ALL}  ->  return np.array([{ALL}])",
            f"return {ALL}  ->  return str({ALL})",
            f"return {ALL}  ->  return n // size, n % size",
            f"return {ALL}  ->  return range(rank, n, size)",
            f"return {ALL}  ->  return list(range(rank, n, size))",
        ],
        "only the first n % size ranks get one more": [
            f"{EXTRA}  ->  1",
            "rank < n % size  ->  rank > n % size",
            "rank < n % size  ->  rank >= n % size",
        ],
        "one rank too few gets one more: ranks are numbered from 0": "rank < n % size  ->  rank + 1 < n % size",
        "one more on each of the first ranks, not the remainder": f"{EXTRA}  ->  (n % size if rank < n % size else 0)",
        "put the condition in brackets: n // size + (1 if ... else 0)": f"{EXTRA}  ->  {EXTRA[1:-1]}",
        "a comparison is no count: put it in brackets": f"{ALL}  ->  n // size + rank < n % size",
        "one more, but not on the first ranks": f"{ALL}  ->  (rank + 1) * n // size - rank * n // size",
        "this is where they start": f"{ALL}  ->  rank * (n // size) + min(rank, n % size)",
        "did you forget `return`?": "    return n  ->      n",
    },
)

BOTH = "comm.send_recv(mine, dest=other, out=theirs, source=other)"
ZEROS = "np.empty_like(mine)  ->  np.zeros_like(mine)"  # what was not received is the same each time

EXERCISES["swap"] = Exercise(
    cases=[
        {"shape": [1000]},
        {"shape": [2, 3], "dtype": "int64", "seed": 1},
        {"shape": [3, 1, 2], "dtype": "float32", "seed": 2},
        {"shape": [5], "times": 1e20, "seed": 3},
        {"shape": [2, 3], "dtype": "int32", "seed": 4},
    ],
    draw=lambda rng: {
        "shape": rng.integers(1, 9, int(rng.integers(1, 4))).tolist(),
        "dtype": (dtype := str(rng.choice(["float32", "float64", "int32", "int64"]))),
        "times": 1 if dtype[0] == "i" else float(10 ** rng.integers(0, 30)),
        "seed": rng.integers(1000),
    },
    mistakes={
        "a sum minus mine loses small numbers beside large ones": (
            f"{BOTH}  ->  theirs[...] = mine; comm.all_reduce(theirs); theirs -= mine"
        ),
        "a send and its recv wait for each other: one rank sends first, one receives first; or both use send_recv": [
            f"{BOTH}  ->  comm.send(mine, dest=other)\n    comm.recv(theirs, source=other)",
            f"{BOTH}  ->  comm.recv(theirs, source=other)\n    comm.send(mine, dest=other)",
            f"{BOTH}  ->  comm.send(mine, dest=other); theirs[...] = 0",
        ],
        "this is the rank's own array: return what was received": [
            "return theirs  ->  return mine",
            f"{BOTH}  ->  theirs[...] = mine",
        ],
        "mine stays as it is: return what was received": "return theirs  ->  mine[...] = theirs\n    return mine",
        "send to the other rank, 1 - comm.rank, receive from it, and into another array than mine": [
            "out=theirs  ->  out=mine",
            "dest=other, out=theirs, source=other  ->  dest=comm.rank, out=theirs, source=comm.rank",
            "source=other  ->  source=comm.rank",
            "1 - comm.rank  ->  1 + comm.rank",
        ],
        "receive into an array of the same shape and dtype: np.empty_like(mine)": [
            "np.empty_like(mine)  ->  np.empty(1000)",
            "np.empty_like(mine)  ->  np.empty(mine.shape)",
        ],
        "these are the sums of both arrays: swap, do not reduce": (
            f"{BOTH}  ->  theirs[...] = mine\n    comm.all_reduce(theirs)"
        ),
        "these are both arrays: return the other rank's": [
            "return theirs  ->  return mine, theirs",
            f"{BOTH}  ->  return comm.all_gather(mine)",
        ],
        "an array, not a list": "return theirs  ->  return theirs.tolist()",
        "this is the mean of both arrays: swap, do not reduce": (
            f"{BOTH}  ->  theirs[...] = mine\n    comm.all_reduce(theirs)\n    theirs = theirs / 2"
        ),
        "the shape of the array that was sent": "return theirs  ->  return theirs.ravel()",
        "the dtype of the array that was sent": [
            "return theirs  ->  return theirs * 1.0",
            "return theirs  ->  return theirs.astype(float)",
            "return theirs  ->  return theirs.astype(int if theirs.dtype.kind == 'i' else theirs.dtype)",
        ],
        "both ranks send, and both receive": (
            ZEROS,
            f"{BOTH}  ->  if comm.rank: comm.recv(theirs, source=0)\n    else: comm.send(mine, dest=1)",
        ),
        "did you forget `return`?": "return theirs  ->  pass",
    },
)
