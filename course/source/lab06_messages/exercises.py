"""Exercises of lab 06: cases of their checks, and the mistakes that the checks name; `network` is checked by hand."""

from distcourse.author.exercise import Exercise, rows

EXERCISES = {}
SENT = ("rounds", "busiest", "bytes one after another")


def collective(rng, **more):
    """Draw ranks, a shape and a dtype."""
    size = int(rng.integers(1, 12))
    shape = rng.integers(1, 6, int(rng.integers(1, 4))).tolist()
    dtype = str(rng.choice(["float32", "float64", "int32", "int64"]))
    return more | {"size": size, "shape": shape, "dtype": dtype, "seed": int(rng.integers(1000))}


OUT = "        return comm.recv(out, root)"
TO_ALL = "    out[...] = x[root]\n    for rank in set(range(comm.size)) - {root}:\n        comm.send(x[rank], rank)"

EXERCISES["moves"] = Exercise(
    answers=("scatter", "gather", "star_all_reduce"),
    inplace=True,
    at_most=SENT,
    cases=[
        {"of": "scatter", "size": 4, "shape": [3]},
        {"of": "scatter", "size": 3, "shape": [2, 2], "dtype": "int64", "root": 2},
        {"of": "scatter", "size": 1, "shape": [3], "dtype": "float32", "seed": 5},
        {"of": "gather", "size": 4, "shape": [2, 3], "seed": 2},
        {"of": "gather", "size": 5, "shape": [2, 2], "dtype": "float32", "root": 1},
        {"of": "gather", "size": 1, "shape": [3]},
        {"of": "star_all_reduce", "size": 4, "shape": [3, 2]},
        {"of": "star_all_reduce", "size": 3, "shape": [2, 3], "dtype": "int32", "seed": 3},
        {"of": "star_all_reduce", "size": 1, "shape": [2]},
    ],
    draw=lambda rng: (
        (case := collective(rng, of=str(rng.choice(["scatter", "gather", "star_all_reduce"]))))
        | ({} if case["of"] == "star_all_reduce" else {"root": rng.integers(case["size"])})
    ),
    draws=9,
    mistakes={
        "star: on rank 0, too, write into x: x[...] = ...": (
            "scatter(comm, total, x)  ->  scatter(comm, total, x if comm.rank else x.copy())"
        ),
        "scatter: rank r gets row r, whatever the root": [
            "comm.send(x[rank], rank)  ->  comm.send(x[0], rank)",
            "comm.send(x[rank], rank)  ->  comm.send(x[root], rank)",
            "comm.send(x[rank], rank)  ->  comm.send(x[::-1][rank], rank)",
            "comm.send(x[rank], rank)  ->  comm.send(x[(rank - root) % comm.size], rank)",
        ],
        "scatter: send each rank its own row alone": (
            f"{OUT}  ->          whole = comm.recv(np.empty((comm.size, *out.shape), out.dtype), root)\n"
            "        out[...] = whole[comm.rank]\n        return",
            "comm.send(x[rank], rank)  ->  comm.send(x, rank)",
        ),
        "scatter: the root's own row is x[root]": "out[...] = x[root]  ->  out[...] = x[0]",
        "scatter: the root's x is changed": "    out[...] = x[root]\n  ->      out[...] = x[root]; x[root] = 0\n",
        "scatter: a row for each rank, and the array is the first argument: comm.send(array, rank)": [
            f"{TO_ALL}  ->  {TO_ALL.replace('x[rank]', 'x')}",
            "comm.send(x[rank], rank)  ->  comm.send(rank, x[rank])",
            "comm.recv(out, root)  ->  comm.recv(root, out)",
        ],
        "scatter: the root's own row is missing: write it into out": [
            "    out[...] = x[root]\n  ->  ",
            "out[...] = x[root]  ->  out = x[root]",
        ],
        "the root copies its own row, without a message": (
            "in set(range(comm.size)) - {root}:\n        comm.send(  ->  in range(comm.size):\n        comm.send("
        ),
        "root is an argument, not always 0": [
            "return comm.recv(out, root)  ->  return comm.recv(out, 0)",
            "comm.send(x, root)  ->  comm.send(x, 0)",
            f"    if comm.rank != root:\n{OUT}  ->      root = 0\n    if comm.rank != root:\n{OUT}",
            "    if comm.rank != root:\n        comm.send(x, root)  ->      root = 0\n    if comm.rank != root:\n"
            "        comm.send(x, root)",
        ],
        "gather: one array, (size, ...), not a list": "    return rows\n  ->      return list(rows)\n",
        "gather: the root's own row is not filled in": "    rows[root] = x\n  ->      rows[root] = 0\n",
        "gather: the rows in the order of ranks": [
            "    return rows\n  ->      return rows[::-1].copy()\n",
            "    return rows\n  ->      return np.concatenate([rows[root:][:1], rows[:root], rows[root + 1:]])\n",
        ],
        "gather: all of these rows are what came last": (
            "        comm.recv(rows[rank], rank)\n  ->          comm.recv(rows[-1], rank)\n"
            "    rows[[r for r in range(comm.size) if r != root]] = rows[-1] if comm.size > 1 else 0\n"
        ),
        "gather: only the root returns rows, the others None": [
            "        return None\n  ->          return x\n",
            "        return None\n  ->          return np.array([])\n",
            "        return None\n  ->          return False\n",
        ],
        "gather: send rows to the root alone": (
            "    if comm.rank != root:\n        comm.send(x, root)  ->      return comm.all_gather(x)\n"
            "    if comm.rank != root:\n        comm.send(x, root)"
        ),
        "gather: rows have the dtype of x": (
            "np.empty((comm.size, *x.shape), x.dtype)  ->  np.empty((comm.size, *x.shape))"
        ),
        "gather: rows have the shape of x": (
            "(comm.size, *x.shape)  ->  (comm.size, x.size)",
            "comm.recv(rows[rank], rank)  ->  comm.recv(rows[rank].reshape(x.shape), rank)",
            "rows[root] = x  ->  rows[root] = x.ravel()",
        ),
        "gather: did you forget `return`?": "    return rows\n  ->      rows\n",
        "star: x is unchanged: scatter the sum into x itself": [
            "scatter(comm, total, x)  ->  scatter(comm, total, x.copy())",
            "np.stack([rows.sum(axis=0, dtype=x.dtype)] * comm.size)  ->  rows",
        ],
        "star: all ranks need the sum, not rank 0 alone": (
            "scatter(comm, total, x)  ->  x[...] = x if total is None else total[0]"
        ),
        "star: a mean, not a sum": "rows.sum(axis=0, dtype=x.dtype)  ->  rows.mean(axis=0).astype(x.dtype)",
        "star: the sum has the dtype of x": "rows.sum(axis=0, dtype=x.dtype)  ->  rows.sum(axis=0)",
        "star: gather x in its own shape": "rows = gather(comm, x)  ->  rows = gather(comm, x.ravel())",
        "star: the rows are not added up": [
            "rows.sum(axis=0, dtype=x.dtype)  ->  rows[0]",
            "rows.sum(axis=0, dtype=x.dtype)  ->  rows.max(axis=0)",
        ],
        "star: add over axis 0: the sum has the shape of x": (
            "rows.sum(axis=0, dtype=x.dtype)  ->  np.full_like(x, rows.sum())"
        ),
        "star: rank 0's own row belongs to the sum": "rows.sum(axis=0,  ->  rows[1:].sum(axis=0,",
        "star: the sum replaces x, and holds it already": (
            "scatter(comm, total, x)  ->  out = x.copy(); scatter(comm, total, out); x += out"
        ),
        "star: send to rank 0 only, which adds and answers": [
            "    rows = gather(comm, x)\n  ->      comm.all_reduce(x); return\n",
            "    rows = gather(comm, x)\n  ->      mine = x.copy()\n"
            "    for r in set(range(comm.size)) - {comm.rank}:\n"
            "        x += comm.send_recv(mine, r, np.empty_like(x), r)\n    return\n",
            "    rows = gather(comm, x)\n  ->      every = [gather(comm, x, root) for root in range(comm.size)]\n"
            "    x[...] = every[comm.rank].sum(axis=0)\n    return\n",
        ],
    },
    may_pass={
        "* rows.size": "more rows than are sent",
        "dtype=rows.dtype": "the same",
        "scatter, ": "it returns nothing",
    },
)

DOWN = """    for d in [2**k for k in reversed(range((p - 1).bit_length()))]:
        if v % (2 * d) == 0 and v + d < p:
            comm.send(x, (r + d) % p)
        elif v % (2 * d) == d:
            comm.recv(x, (r - d) % p)
"""
FROM_ROOT = """    if comm.rank == root:
        for rank in set(range(comm.size)) - {root}:
            comm.send(x, rank)
    else:
        comm.recv(x, root)
"""
ADD_UP = '    """Replace x, on every rank, with the sum over all ranks: up the tree, and down again."""'
CHAIN = """    if v:
        comm.recv(x, (r - 1) % p)
    if v + 1 < p:
        comm.send(x, (r + 1) % p)
"""
UP_A_STAR = f"""
def broadcast(comm, x, root=0):
    p, r = comm.size, comm.rank
    v = (r - root) % p
{DOWN}
def tree_all_reduce(comm, x):
    if comm.rank:
        comm.send(x, 0)
    else:
        for rank in range(1, comm.size):
            x += comm.recv(np.empty_like(x), rank)
    broadcast(comm, x)
"""

EXERCISES["tree"] = Exercise(
    answers=("broadcast", "tree_all_reduce"),
    inplace=True,
    at_most=SENT,
    cases=[
        *(
            {"of": "broadcast", "size": size, "shape": [4], "root": root}
            for size, root in ((8, 0), (6, 0), (4, 3), (5, 2), (11, 7), (1, 0))
        ),
        {"of": "broadcast", "size": 3, "shape": [2, 3], "dtype": "int32", "root": 1, "seed": 2},
        {"of": "tree_all_reduce", "size": 8, "shape": [6]},
        {"of": "tree_all_reduce", "size": 6, "shape": [2, 3], "dtype": "int64", "seed": 4},
        {"of": "tree_all_reduce", "size": 5, "shape": [4], "dtype": "float32"},
        {"of": "tree_all_reduce", "size": 11, "shape": [3]},
        {"of": "tree_all_reduce", "size": 1, "shape": [2]},
    ],
    draw=lambda rng: (
        (case := collective(rng, of=str(rng.choice(["broadcast", "tree_all_reduce"]))))
        | ({} if case["of"] == "tree_all_reduce" else {"root": rng.integers(case["size"])})
    ),
    draws=8,
    mistakes={
        "v counts from the root, partners are ranks: (r + d) % p": (
            "(r + d) % p  ->  (v + d) % p",
            "(r - d) % p  ->  (v - d) % p",
        ),
        "a rank without a partner sends nothing on the way up": ("elif r % (2 * d) == d:  ->  elif r % d == 0:"),
        "a rank that has sent its sum receives no more": (
            "if r % (2 * d) == 0 and r + d < p  ->  if r % (2 * d) != d and r + d < p"
        ),
        "add up along the tree, not all on rank 0": UP_A_STAR,
        "how many distances there are depends on the number of ranks": [
            "[2**k for k in reversed(range((p - 1).bit_length()))]  ->  (4, 2, 1)",
            "    v = (r - root) % p\n  ->      p = 8\n    v = (r - root) % p\n",
        ],
        "too many rounds: all ranks that have the array send it on at once": [
            f"{DOWN}  ->  {FROM_ROOT}",
            f"{DOWN}  ->  {CHAIN}",
        ],
        "a rank that sends needs nothing back": (
            "comm.send(x, (r + d) % p)  ->  comm.send_recv(x, (r + d) % p, x.copy(), (r + d) % p)",
            "comm.recv(x, (r - d) % p)  ->  comm.send_recv(x.copy(), (r - d) % p, x, (r - d) % p)",
        ),
        "count from the root: v = (r - root) % p": [
            "(r - root) % p  ->  r",
            "(r - root) % p  ->  (r + root) % p",
            "(r - root) % p  ->  r - root",
            "(r - root) % p  ->  r ^ root",
        ],
        "broadcast: x is unchanged: receive into x itself": [
            "comm.recv(x, (r - d) % p)  ->  x = comm.recv(np.empty_like(x), (r - d) % p)",
            "    v = (r - root) % p\n  ->      v, x = (r - root) % p, x.copy()\n",
        ],
        "use send and receive alone, not the library's broadcast": (
            "    v = (r - root) % p\n  ->      return comm.broadcast(x, root)\n"
        ),
        "with distance d the multiples of 2 d send": "if v % (2 * d) == 0 and  ->  if v % d == 0 and",
        "p need not be a power of two: v counts up from the root, and partners beyond p - 1 are left out": [
            " and v + d < p  ->  ",
            "(r - root) % p  ->  (root - r) % p",
        ],
        "on the way down the largest distance comes first": "for k in reversed(range(  ->  for k in (range(",
        "partners beyond the last rank begin again with 0": (
            "comm.send(x, (r + d) % p)  ->  comm.send(x, min(r + d, p - 1))"
        ),
        "one round too few on the way down": (
            " reversed(range((p - 1).bit_length()))  ->   reversed(range(p.bit_length() - 1))"
        ),
        "distances are powers of two, not p halved again and again": (
            "[2**k for k in reversed(range((p - 1).bit_length()))]  ->  [p >> k for k in range(1, p.bit_length())]"
        ),
        "the sum must come down again, by your broadcast": "    broadcast(comm, x)  ->      pass",
        "what arrives is added to x, and rank 0 broadcasts the sum": [
            "broadcast(comm, x)  ->  broadcast(comm, x, p - 1)",
            "x += received  ->  x[...] = received",
            "x += received  ->  np.maximum(x, received, out=x)",
            "x += received  ->  x += x",
            "            comm.recv(received, r + d)\n            x += received  ->              comm.recv(x, r + d)",
            "comm.recv(received, r + d)\n            x += received  ->  comm.recv(x, r + d)\n            x += x",
        ],
        "a sum, not a mean": "    broadcast(comm, x)  ->      x[...] = x / p\n    broadcast(comm, x)",
        "what was received before is added again": (
            "            received = np.empty_like(x)\n  ->  ",
            "    p, r = comm.size, comm.rank\n    for d  ->      p, r = comm.size, comm.rank\n"
            "    received = np.zeros_like(x)\n    for d",
            "            comm.recv(received, r + d)\n  ->              received += comm.recv(x.copy(), r + d)\n",
        ),
        "up the tree and down again: each rank but 0 sends its sum once": [
            f"{ADD_UP}  ->      comm.all_reduce(x); return",
            f"{ADD_UP}  ->      rows = [x.copy() for _ in range(comm.size)]\n"
            "    for root, row in enumerate(rows): broadcast(comm, row, root)\n    x[...] = sum(rows); return",
            f"{ADD_UP}  ->      for d in [2**k for k in range((comm.size - 1).bit_length())]:\n"
            "        if comm.rank ^ d < comm.size:\n            other = comm.rank ^ d\n"
            "            x += comm.send_recv(x.copy(), other, np.empty_like(x), other)\n    return",
        ],
        "x is unchanged: `x = x + ...` makes a new array": "x += received  ->  x = x + received",
        "on the way up: receive from ranks that are there": (
            "if r % (2 * d) == 0 and r + d < p:  ->  if r % (2 * d) == 0:"
        ),
        "on the way up the smallest distance comes first": (
            " k in range((p - 1).bit_length())  ->   k in reversed(range((p - 1).bit_length()))"
        ),
        "one round too few on the way up": (
            "for k in range((p - 1).bit_length())  ->  for k in range((p - 1).bit_length() - 1)"
        ),
        "receive into an array of the same dtype: np.empty_like(x)": (
            "received = np.empty_like(x)  ->  received = np.empty(x.shape)"
        ),
    },
    may_pass={
        "(p + 1).bit_length()": "a round in which nobody sends",
        "(p - 0).bit_length()": "a round in which nobody sends",
    },
)

ADDING = "        comm.send_recv(parts[(r - step) % p], right, received, left)\n"
MINE, NEXT = "parts[(r - step) % p], left", "parts[(r - step - 1) % p], left"
ANEW = "np.empty_like(parts[(r - step) % p]), left"
PASSING = "comm.send_recv(parts[(r + 1 - step) % p], right, parts[(r - step) % p], left)"
FIRST = "    for step in range(p - 1):\n        mine"
SECOND = "    for step in range(p - 1):\n        comm"
CUT = "np.array_split(x.reshape(-1), p)"
WHOLE = """def ring_all_reduce(comm, x):
    p, r = comm.size, comm.rank
    total, moving = x.copy(), x.copy()
    for step in range(p - 1):
        received = np.empty_like(x)
        comm.send_recv(moving, (r + 1) % p, received, (r - 1) % p)
        total += received
        moving = received
    x[...] = total
"""
A_STAR = """def ring_all_reduce(comm, x):
    if comm.rank:
        comm.send(x, 0)
        comm.recv(x, 0)
    else:
        for rank in range(1, comm.size):
            x += comm.recv(np.empty_like(x), rank)
        for rank in range(1, comm.size):
            comm.send(x, rank)
"""

EXERCISES["ring"] = Exercise(
    answers=("ring_all_reduce",),
    inplace=True,
    at_most=SENT,
    cases=rows("size shape dtype seed", (4, [10]), (3, [1, 9], "int64", 3), (7, [2], "float32"), (1, [3])),
    draw=collective,
    mistakes={
        "what arrives in step s is part r - s - 1: add it to that one": (
            "mine = parts[(r - step - 1) % p]  ->  mine = parts[(r - step) % p]"
        ),
        "all wait for the rank at their right: use send_recv": (
            f"{ADDING}  ->          comm.send(parts[(r - step) % p], right); comm.recv(received, left)\n"
        ),
        "sends and receives take turns: send_recv does both at the same time": (
            f"{ADDING}  ->          if r % 2: comm.recv(received, left)\n"
            "        comm.send(parts[(r - step) % p], right)\n"
            "        if r % 2 == 0: comm.recv(received, left)\n"
        ),
        "use send and receive alone, not the library's all-reduce": (
            "    p, r = comm.size  ->      return comm.all_reduce(x)\n    p, r = comm.size"
        ),
        "every message is a whole array: send parts of it": [WHOLE, A_STAR],
        "half of the steps: p - 1 steps of passing on are missing": (f"        {PASSING}  ->          pass"),
        "p - 1 steps of adding: this is one too few": (
            " step in range(p - 1):\n        mine  ->   step in range(p - 2):\n        mine"
        ),
        "each phase has p - 1 steps: this is one too many": [
            f"    for step in range(p - 1):\n        {PASSING}  ->      for step in range(p):\n        {PASSING}",
            " step in range(p - 1):\n        mine  ->   step in range(p):\n        mine",
        ],
        "p - 1 steps of passing on: this is one too few": (
            f"    for step in range(p - 1):\n        {PASSING}  ->      for step in range(p - 2):\n        {PASSING}"
        ),
        "a sum, not a mean": f"{SECOND}  ->      parts[(r + 1) % p][...] = parts[(r + 1) % p] / p\n{SECOND}",
        "adding, step s: part r - s is sent, and r - s - 1 received": [
            "parts[(r - step - 1) % p]  ->  parts[(r - step + 1) % p]",
            "parts[(r - step) % p], right, received  ->  parts[(r + step) % p], right, received",
            f"{PASSING}  ->  {PASSING.replace('- step', '+ step')}",
        ],
        "passing on: all complete parts go around the ring at the same time": (
            f"{SECOND}  ->      for k in range(p): comm.broadcast(parts[k], (k - 1) % p)\n"
            "    for step in ():\n        comm"
        ),
        "with fewer elements than ranks some parts are empty: the steps are the same": [
            f"{FIRST}  ->      if x.size < p: return\n{FIRST}",
            f"{FIRST}  ->      if x.size < p: return comm.all_reduce(x)\n{FIRST}",
            "        comm.send_recv(parts[(r - step)  ->          if mine.size: comm.send_recv(parts[(r - step)",
            "        mine = parts  ->          if x.size < p: continue\n        mine = parts",
        ],
        "np.array_split makes parts as equal as possible, of all elements": [
            f"    parts = {CUT}  ->      n = x.size // p\n"
            f"    parts = [x.reshape(-1)[i * n: (i + 1) * n{rest}] for i in range(p)]"
            for rest in ("", " if i < p - 1 else None")
        ],
        "add what arrives in the first phase; the second begins with part r + 1": [
            "mine += received  ->  mine[...] = received",
            f"{PASSING}  ->  {PASSING.replace('r + 1 - step', 'r - step').replace(MINE, NEXT)}",
            f"{PASSING}  ->  {PASSING.replace('r - step', 'r - step - 2').replace('r + 1', 'r - 1')}",
        ],
        "x keeps its own numbers: `=` makes a new array, += writes into the part": [
            "mine += received  ->  mine = mine + received",
        ],
        "parts[k] = ... puts a new array into the list, and leaves x alone": [
            "mine += received  ->  parts[(r - step - 1) % p] = mine + received",
            f"{PASSING}  ->  parts[(r - step) % p] = {PASSING.replace(MINE, ANEW)}",
        ],
        "passing on: what arrives is complete, and replaces the part": (
            f"{PASSING}  ->  parts[(r - step) % p] += {PASSING.replace(MINE, ANEW)}"
        ),
        "these are parts of a copy: x is unchanged": "x.reshape(-1), p)  ->  x.reshape(-1).copy(), p)",
        "the ring goes to the right: r sends to r + 1": (
            "right, left = (r + 1) % p, (r - 1) %  ->  left, right = (r + 1) % p, (r - 1) %"
        ),
        "divide all numbers, x.reshape(-1), not rows": "np.array_split(x.reshape(-1), p)  ->  np.array_split(x, p)[:p]",
        "n need not be a multiple of p: parts differ in length, and so does what arrives": [
            f"{CUT}  ->  np.split(x.reshape(-1), p)",
            "np.empty_like(mine)  ->  np.empty_like(parts[(r - step) % p])",
        ],
        "in both phases a rank sends to r + 1 and receives from r - 1": (
            f"{PASSING}  ->  comm.send_recv(parts[(r + 1 - step) % p], left, parts[(r - step) % p], right)"
        ),
        "as many parts as ranks": [
            f"{CUT}  ->  np.array_split(x.reshape(-1), max(4, p))",
            f"{CUT}  ->  np.array_split(x.reshape(-1), p + 1)",
        ],
        "receive into an array of the same dtype: np.empty_like": "np.empty_like(mine)  ->  np.empty(mine.shape)",
    },
    may_pass={"np.empty_like(parts": "an array of the same shape", "reshape(-2)": "any negative number"},
)

HALVE = """        halves = mine[:len(mine) // 2], mine[len(mine) // 2:]
        keep, give = halves[::-1] if r & d else halves
"""
AFTER = "    if r + q < p:\n        comm.send(flat, r + q)"
BACK = "    for partner, keep, give in reversed(done):\n        comm.send_recv(keep, partner, give, partner)\n"

EXERCISES["halving"] = Exercise(
    answers=("halving_all_reduce",),
    inplace=True,
    at_most=SENT,
    cases=[
        {"size": 4, "shape": [8]},
        {"size": 8, "shape": [3, 5], "dtype": "int64", "seed": 2},
        {"size": 4, "shape": [2], "dtype": "float32"},
        {"size": 6, "shape": [4, 3], "dtype": "int32"},
        {"size": 3, "shape": [5], "seed": 3},
        {"size": 9, "shape": [1]},
        {"size": 16, "shape": [21]},
        {"size": 1, "shape": [3]},
    ],
    draw=collective,
    mistakes={
        "q is the largest power of two up to p: ranks r >= q send before, and get the result after": [
            "    if r >= q:\n  ->      if False:\n",
            "q = 1 << (p.bit_length() - 1)  ->  q = 1 << (p - 1).bit_length()",
        ],
        "if p is a power of two, q is p": (
            "q = 1 << (p.bit_length() - 1)  ->  q = 1 << max((p - 1).bit_length() - 1, 0)"
        ),
        "distances are powers of two: q / 2 first": ["[], q // 2  ->  [], p // 2", "[], q // 2  ->  [], q"],
        "the upper one of two partners has `r & d`": [
            "if r & d else  ->  if r % d else",
            "if r & d else  ->  if r >= d else",
            "if r & d else  ->  if r & 1 else",
        ],
        "both partners at distance d find each other by r ^ d": (
            "(give, r ^ d, np.empty_like(keep), r ^ d)  ->  (give, (r + d) % q, np.empty_like(keep), (r - d) % q)"
        ),
        "send give, and add what arrives to keep": "send_recv(give, r  ->  send_recv(keep, r",
        "halve what is left: mine = keep": "mine, d = keep, d // 2  ->  d = d // 2",
        "keep += ... writes into x, keep = ... makes a new array": "keep += comm  ->  keep = keep + comm",
        "back: send what is complete, keep, and receive give": (
            "comm.send_recv(keep, partner, give, partner)  ->  comm.send_recv(give, partner, keep, partner)"
        ),
        "back: nothing is added, what arrives is complete": (
            "comm.send_recv(keep, partner, give, partner)"
            "  ->  give += comm.send_recv(keep, partner, np.empty_like(give), partner)"
        ),
        "the way back has the same partners: note r ^ d before d changes": (
            "        done.append((r ^ d, keep, give))\n        mine, d = keep, d // 2"
            "  ->          mine, d = keep, d // 2\n        done.append((r ^ d, keep, give))"
        ),
        "recv writes into the array it is given; flat = ... is a new one": (
            "return comm.recv(flat, r - q)  ->  flat = comm.recv(np.empty_like(flat), r - q); return"
        ),
        "ranks r >= q get the result at the very end": (f"{BACK}{AFTER}  ->  {AFTER}\n{BACK}"),
        "with fewer elements than ranks some halves are empty: the rounds are the same": [
            "    mine, done  ->      if x.size < q: return\n    mine, done",
            "    mine, done  ->      if x.size < q: return ring_all_reduce(comm, x)\n    mine, done",
            "    mine, done  ->      if x.size < q: return comm.all_reduce(x)\n    mine, done",
        ],
        "whole arrays in each round: this is recursive doubling": (
            f"{HALVE}  ->          keep, give = flat, flat.copy()\n",
            "        done.append((r ^ d, keep, give))\n  ->  ",
        ),
        "a sum, not a mean": "    for partner  ->      mine[...] = mine / p\n    for partner",
        "partners cut at the same place, and what arrives is as long as what is kept": [
            "        halves = mine[:len(mine) // 2], mine[len(mine) // 2:]"
            "  ->          m = (len(mine) + bool(r & d)) // 2\n        halves = mine[:m], mine[m:]",
            "np.empty_like(keep)  ->  np.empty_like(give)",
        ],
        "all wait for their partners: use send_recv": (
            "keep += comm.send_recv(give, r ^ d, np.empty_like(keep), r ^ d)"
            "  ->  comm.send(give, r ^ d); keep += comm.recv(np.empty_like(keep), r ^ d)"
        ),
        "sends and receives take turns: send_recv does both at the same time": (
            "        keep += comm.send_recv(give, r ^ d, np.empty_like(keep), r ^ d)"
            "  ->          if r & d: comm.send(give, r ^ d)\n"
            "        received = comm.recv(np.empty_like(keep), r ^ d)\n"
            "        if not r & d: comm.send(give, r ^ d)\n"
            "        keep += received"
        ),
        "half of the exchanges: what was halved must be doubled again": f"{BACK}  ->  ",
        "the doubling goes back: the last halves first": "reversed(done)  ->  done",
        "of two partners one keeps the first half and one the second": "halves[::-1] if r & d else halves  ->  halves",
        "what arrives is added: keep += ...": "keep += comm.send_recv(  ->  keep[...] = comm.send_recv(",
        "rank r >= q sends to r - q before, and gets the result from there after": [
            " r + q < p:\n        comm.send(flat, r + q)  ->   False:\n        pass",
            (
                "comm.send(flat, r - q)  ->  comm.send(flat, r - 1)",
                "comm.recv(flat, r - q)  ->  comm.recv(flat, r - 1)",
            ),
        ],
        "what ranks r >= q send is not added": [
            "flat += comm.recv(np.empty_like(flat)  ->  comm.recv(np.empty_like(flat)",
            "flat += comm.recv(np.empty_like(flat)  ->  flat[...] = comm.recv(np.empty_like(flat)",
        ],
        "halve all numbers, x.reshape(-1), not rows": "x.reshape(-1)\n  ->  x\n",
        "this works on a copy: x is unchanged": [
            "x.reshape(-1)\n  ->  x.reshape(-1).copy()\n",
            'x.reshape(-1)\n  ->  x.ravel(order="F")\n',
        ],
        "only four ranks exchange: the first distance is q / 2": (
            "mine, done, d = flat, [], q // 2  ->  mine, done, d = flat, [], min(q // 2, 2)"
        ),
        "receive into an array of the same dtype: np.empty_like": [
            "np.empty_like(keep)  ->  np.empty(keep.shape)",
            "np.empty_like(flat)  ->  np.empty(flat.shape)",
        ],
        "use send and receive alone, not the library's all-reduce": (
            "    p, r, flat  ->      return comm.all_reduce(x)\n    p, r, flat"
        ),
        "this is the ring: halve, and double": (
            "    p, r, flat  ->      return ring_all_reduce(comm, x)\n    p, r, flat"
        ),
    },
    may_pass={
        "send(x, r": "x and flat are one array",
        "recv(x, r": "x and flat are one array",
        "reshape(-2)": "any negative number",
        "results kept": "it returns nothing",
        "arrays as lists": "it returns nothing",
        "float64 for": "it returns nothing",
        "sixth call": "it returns nothing",
    },
)

STAR = "alpha + (p - 1) * n / beta + (p - 1) * whole"

EXERCISES["seconds"] = Exercise(
    cases=[
        {"name": name, "n": n, "p": p, "alpha": alpha, "beta": beta}
        for name in ("star", "tree", "ring", "halving")
        for n, p, alpha, beta in (
            (1e6, 4, 1e-3, 1.3e8),
            (80, 8, 3e-7, 7e7),
            (5e6, 6, 4e-3, 1.3e8),
            (301, 5, 1e-6, 3e8),
            (1e6, 3, 7e-4, 1.3e8),
            (1e6, 1, 1e-3, 1.3e8),
            (2e4, 23, 1e-5, 1e9),
        )
    ],
    draw=lambda rng: {
        "name": rng.choice(["star", "tree", "ring", "halving"]),
        "n": float(10 ** rng.uniform(1, 8)),
        "p": int(rng.choice([1, 2, 7, 12, 16, 100])),
        "alpha": float(10 ** rng.uniform(-6, -3)),
        "beta": float(10 ** rng.uniform(7, 10)),
    },
    draws=20,
    rtol=1e-6,
    mistakes={
        "n bytes take n / beta: divide": (
            "whole = alpha + n / beta  ->  whole = alpha + n * beta",
            "(p - 1) * n / beta +  ->  (p - 1) * n * beta +",
            "n / p / beta)  ->  n / p * beta)",
            "/ q * n / beta  ->  / q * n * beta",
        ),
        "star: messages to rank 0 share one latency": (f"{STAR}  ->  2 * (p - 1) * whole"),
        "star: messages to rank 0 have a latency, too": f"{STAR}  ->  (p - 1) * n / beta + (p - 1) * whole",
        "star: rank 0 answers, too": f"{STAR}  ->  alpha + (p - 1) * n / beta",
        "star: the others send first, then rank 0 answers": f"{STAR}  ->  (p - 1) * whole",
        "star: rank 0 receives one message after another": f"{STAR}  ->  2 * whole + (p - 2) * whole",
        "star: each answer waits until the previous one has arrived": [
            f"{STAR}  ->  2 * alpha + 2 * (p - 1) * n / beta",
            f"{STAR}  ->  alpha + (p - 1) * n / beta + whole",
        ],
        "star: p - 1 messages each way: rank 0 keeps its own": [
            f"{STAR}  ->  alpha + p * n / beta + p * whole",
            f"{STAR}  ->  2 * p * whole",
        ],
        "star: whole arrays": f"{STAR}  ->  alpha + (p - 1) * n / p / beta + (p - 1) * whole",
        "tree: only one way: up the tree and down again": (
            "2 * (p - 1).bit_length() * whole  ->  (p - 1).bit_length() * whole"
        ),
        "tree: log2 p is rounded up": "2 * (p - 1).bit_length() * whole  ->  2 * np.log2(p) * whole",
        "tree: log2 p is rounded up, not down": (
            "2 * (p - 1).bit_length() * whole  ->  2 * (p.bit_length() - 1) * whole"
        ),
        "tree: a power of two has log2 p rounds, each way": [
            "2 * (p - 1).bit_length() * whole  ->  2 * p.bit_length() * whole",
            "2 * (p - 1).bit_length() * whole  ->  (2 * (p - 1).bit_length() - 1) * whole",
        ],
        "tree: in each round one message of n bytes": [
            "2 * (p - 1).bit_length() * whole  ->  2 * (p - 1).bit_length() * (alpha + n / 2 / beta)",
            "2 * (p - 1).bit_length() * whole  ->  2 * alpha + 2 * (p - 1).bit_length() * n / beta",
        ],
        "tree: many messages go at the same time": "2 * (p - 1).bit_length() * whole  ->  2 * (p - 1) * whole",
        "ring: messages have n / p bytes": [
            f"(alpha + n / p / beta)  ->  {other}"
            for other in (
                "whole",
                *(f"(alpha + {part} / beta)" for part in ("n / (p - 1)", "n * p", "n // p", "np.ceil(n / p)")),
            )
        ],
        "ring: every step has a latency": [
            f"2 * (p - 1) * (alpha + n / p / beta)  ->  {few} * alpha + 2 * (p - 1) * n / p / beta" for few in (1, 2)
        ],
        "halving: every round has a latency": "2 * (q.bit_length() - 1) * alpha  ->  2 * alpha",
        "ring: p - 1 steps in a phase, not p": [
            "2 * (p - 1) * (alpha + n / p / beta)  ->  2 * p * (alpha + n / p / beta)",
            "2 * (p - 1) * (alpha + n / p / beta)  ->  (2 * p - 1) * (alpha + n / p / beta)",
        ],
        "ring: two phases, of p - 1 steps each": (
            "2 * (p - 1) * (alpha + n / p / beta)  ->  (p - 1) * (alpha + n / p / beta)"
        ),
        "halving: the bytes are halved in every round": [
            "() - 1) * alpha + 2 * (q - 1) / q * n / beta  ->  () - 1) * whole",
            " alpha + 2 * (q - 1) / q * n  ->   alpha + (q.bit_length() - 1) * n",
        ],
        "halving: two phases, halving and doubling": [
            "2 * (q.bit_length() - 1) * alpha + 2 *   ->  (q.bit_length() - 1) * alpha + ",
            " alpha + 2 * (q - 1) / q  ->   alpha + (q - 1) / q",
        ],
        "halving: this is the ring": '    if name == "ring":  ->      if name != "star":',
        "halving: q is the largest power of two up to p": [
            "q = 1 << (p.bit_length() - 1)  ->  q = 1 << (p - 1).bit_length()",
            "q = 1 << (p.bit_length() - 1)  ->  q = 1 << ((p - 1).bit_length() - 1)",
            "q = 1 << (p.bit_length() - 1)  ->  q = 1 << p.bit_length()",
        ],
        "halving: q ranks halve, not p": [
            "2 * (q - 1) / q * n  ->  2 * (p - 1) / p * n",
            "2 * (q.bit_length() - 1) * alpha  ->  2 * np.log2(p) * alpha",
            "2 * (q.bit_length() - 1) * alpha  ->  2 * (p - 1).bit_length() * alpha",
        ],
        "halving: log2 q rounds, not q.bit_length()": "(q.bit_length() - 1) * alpha  ->  q.bit_length() * alpha",
        "halving: n / 2 and n / 4 and so on to n / q": [
            "2 * (q - 1) / q * n  ->  2 * (q.bit_length() - 1) / q * n",
            "2 * (q - 1) / q * n  ->  2 * n",
        ],
        "halving: ranks r >= q send before, and get the result after": " if q < p else 0  ->   * 0",
        "halving: whole arrays before and after: two of them": [
            "2 * whole if q < p  ->  whole if q < p",
            "2 * whole if q < p  ->  2 * alpha if q < p",
            "2 * whole if q < p  ->  2 * n / beta if q < p",
            "2 * whole if q < p else 0  ->  2 * (p - q) * whole",
        ],
        "halving: if p = q, nothing is sent before and after": "2 * whole if q < p else 0  ->  2 * whole",
        "on one rank nothing is sent": ["    if p == 1:\n        return 0.0\n  ->  ", "return 0.0  ->  return alpha"],
        "n is in bytes already": "    whole = alpha  ->      n = 8 * n\n    whole = alpha",
        "alpha is the latency [s], beta the bandwidth [bytes/s]": (
            "    whole = alpha  ->      alpha, beta = beta, alpha\n    whole = alpha"
        ),
        "beta is bytes per second: divide by it": "whole = alpha + n / beta  ->  whole = alpha + n * beta",
        "did you forget `return`?": "    return 2 * (q.bit_length()  ->      2 * (q.bit_length()",
    },
    may_pass={"2 * (p.bit_length() - 1) * alpha": "p has as many digits as q"},
)

SUM = "[sum(comm.recv_obj(rank) for rank in range(1, comm.size)) for _ in range(2)]"

EXERCISES["network"] = Exercise(
    answers=("decisions", "mended", "collect", "epochs", "relay", "ledger"),
    cases=rows("of size seed", ("decisions",), ("mended", 3), ("mended", 2, 2), ("mended", 4, 3)),
    draw=lambda rng: (
        {"of": "decisions", "losses": rng.permutation(99)[:2].tolist()}
        if rng.random() < 0.5
        else {"of": "mended", "size": rng.integers(2, 5), "seed": rng.integers(10**6)}
    ),
    draws=8,
    mistakes={
        "ledger takes what comes, from any rank, and sorts it": '"ledger": None  ->  "ledger": []',
        "rank 2 waits in its first send: what if that is buffered?": [
            '"relay": ["buffer 2", "2->0"]  ->  "relay": None',
            '"relay": ["buffer 2", "2->0"]  ->  "relay": ["2->0"]',
            '"relay": ["buffer 2", "2->0"]  ->  "relay": ["buffer 2"]',
        ],
        "in collect rank 0 counts on rank 1 to be first": [
            '"collect": ["2->0"]  ->  "collect": None',
            '"collect": ["2->0"]  ->  "collect": ["1->0"]',
        ],
        "what if both messages of rank 1 come first?": [
            '"epochs": ["1->0", "1->0"]  ->  "epochs": None',
            '"epochs": ["1->0", "1->0"]  ->  "epochs": ["1->0", "2->0"]',
        ],
        "an entry for each of the four programs": '{"collect": ["2->0"],   ->  {',
        "a receive from anyone mixes the epochs: name the sender": (
            "sum(comm.recv_obj(rank) for  ->  sum(comm.recv_obj() for"
        ),
        "only rank 1 is counted: range(1, comm.size)": "range(1, comm.size)  ->  (1,)",
        "of any number of ranks": "range(1, comm.size)  ->  (1, 2)",
        "two sums, one for each epoch, in a list": [
            f"{SUM}  ->  {SUM.replace(' for _ in range(2)]', ']')}",
            f"{SUM}  ->  tuple({SUM})",
            f"{SUM}  ->  np.array({SUM})",
            f"{SUM}  ->  sum({SUM})",
        ],
        "5 decisions at most: leave out those that the network makes without being told": (
            '["1->0", "1->0"]  ->  ["1->0", "1->0", "2->0", "2->0"]'
        ),
        "each rank sends two messages, its first loss and then its second": (
            "        for loss in losses:\n            comm.send_obj(loss, 0)  ->          comm.send_obj(losses, 0)",
            f"    return {SUM}  ->      got = [comm.recv_obj(rank) for rank in range(1, comm.size)]\n"
            "    return [sum(losses) for losses in zip(*got)]",
        ),
        "the second message is the second loss": (
            "        for loss in losses:\n            comm.send_obj(loss, 0)  ->          comm.send_obj(losses[0], 0)"
        ),
        "send the losses alone: their order tells the epoch": (
            "        for loss in losses:\n            comm.send_obj(loss, 0)"
            "  ->          for pair in enumerate(losses):\n            comm.send_obj(pair, 0)",
            f"{SUM}  ->  [sum(comm.recv_obj(rank)[1] for rank in range(1, comm.size)) for _ in range(2)]",
        ),
        "the ranks other than 0 return None": [
            "       return None\n    return  ->         return losses\n    return",
            "       return None\n    return  ->         return [0, 0]\n    return",
        ],
        "did you forget `return`?": "    return [sum(  ->      [sum(",
        "these are sums of ranks, not of epochs": [
            f"{SUM}  ->  [sum(comm.recv_obj(rank) for _ in range(2)) for rank in range(1, comm.size)]{cut}"
            for cut in ("", "[:2]")
        ],
        "rank 0's own losses do not count": f"{SUM}  ->  [a + b for a, b in zip({SUM}, losses)]",
        "the first epoch comes first": f"{SUM}  ->  {SUM}[::-1]",
    },
    may_pass={
        "decisions, results kept": "it has no arguments",
        "collect, ": "given, not an answer",
        "epochs, ": "given, not an answer",
        "relay, ": "given, not an answer",
        "ledger, ": "given, not an answer",
    },
)
