"""Wrong answers to lab 06."""

ADDING = "        comm.send_recv(parts[(r - step) % p], right, received, left)\n"
PASSING = "comm.send_recv(parts[(r + 1 - step) % p], right, parts[(r - step) % p], left)"
PASSING_ANEW = PASSING.replace("parts[(r - step) % p], left", "np.empty_like(parts[(r - step) % p]), left")
BACK = "    for partner, keep, give in reversed(done):\n        comm.send_recv(keep, partner, give, partner)\n"
TO_ALL = """    if comm.rank == root:
        for rank in set(range(comm.size)) - {root}:
            comm.send(x, rank)
    else:
        comm.recv(x, root)
"""
DOWN = """    for d in [2**k for k in reversed(range((p - 1).bit_length()))]:
        if v % (2 * d) == 0 and v + d < p:
            comm.send(x, (r + d) % p)
        elif v % (2 * d) == d:
            comm.recv(x, (r - d) % p)
"""
SUM = "[sum(comm.recv_obj(rank) for rank in range(1, comm.size)) for _ in range(2)]"
ROOT_LAST = "    out[...] = x[root]\n    for rank in set(range(comm.size)) - {root}:\n        comm.send(x[rank], rank)"
WHOLE_RING = """def ring_all_reduce(comm, x):
    p, r = comm.size, comm.rank
    total, moving = x.copy(), x.copy()
    for step in range(p - 1):
        received = np.empty_like(x)
        comm.send_recv(moving, (r + 1) % p, received, (r - 1) % p)
        total += received
        moving = received
    x[...] = total
"""

UP_A_STAR = """
def broadcast(comm, x, root=0):
    p, r = comm.size, comm.rank
    v = (r - root) % p
    for d in [2**k for k in reversed(range((p - 1).bit_length()))]:
        if v % (2 * d) == 0 and v + d < p:
            comm.send(x, (r + d) % p)
        elif v % (2 * d) == d:
            comm.recv(x, (r - d) % p)

def tree_all_reduce(comm, x):
    if comm.rank:
        comm.send(x, 0)
    else:
        for rank in range(1, comm.size):
            x += comm.recv(np.empty_like(x), rank)
    broadcast(comm, x)
"""
MENDED_OTHERWISE = """
def decisions():
    return {"collect": ["2->0"], "epochs": ["1->0", "1->0"], "relay": ["buffer 2", "2->0"], "ledger": None}

def mended(comm, losses):
    if comm.rank:
        for epoch, loss in enumerate(losses):
            comm.send_obj((epoch, loss), 0)
        return None
    sums = [0, 0]
    for _ in range(2 * (comm.size - 1)):
        epoch, loss = comm.recv_obj()
        sums[epoch] += loss
    return sums
"""
LEAST_SQUARES = """    A = np.stack([1 / times, nbytes / times], axis=1)
    (alpha, per_byte), *_ = np.linalg.lstsq(A, np.ones(len(times)), rcond=None)
"""

MUTANTS = {
    "moves": [
        ("gather: a list", "    return rows\n", "    return list(rows)\n"),
        ("row 0 for all", "comm.send(x[rank], rank)", "comm.send(x[0], rank)"),
        ("the root's row is missing", "    out[...] = x[root]\n", ""),
        (
            "the root sends to itself",
            "in set(range(comm.size)) - {root}:\n        comm.send(",
            "in range(comm.size):\n        comm.send(",
        ),
        (
            "the root is rank 0",
            "    if comm.rank != root:\n        return comm.recv(out, root)",
            "    root = 0\n    if comm.rank != root:\n        return comm.recv(out, root)",
        ),
        ("all rows to all", ROOT_LAST, ROOT_LAST.replace("x[rank]", "x")),
        ("gather: own row missing", "    rows[root] = x\n", ""),
        ("gather: backwards", "    return rows\n", "    return rows[::-1].copy()\n"),
        ("gather: rows for all", "        return None\n", "        return x\n"),
        ("gather: float64", "np.empty((comm.size, *x.shape), x.dtype)", "np.empty((comm.size, *x.shape))"),
        ("gather: flat rows", "(comm.size, *x.shape)", "(comm.size, x.size)"),
        ("gather: no return", "    return rows\n", "    rows\n"),
        ("star: not in place", "scatter(comm, total, x)", "scatter(comm, total, x.copy())"),
        ("star: mean", "rows.sum(axis=0, dtype=x.dtype)", "rows.mean(axis=0).astype(x.dtype)"),
        ("star: no sum", "rows.sum(axis=0, dtype=x.dtype)", "rows[0]"),
        ("star: the library's", "    rows = gather(comm, x)\n", "    rows = comm.all_reduce(x); return\n"),
    ],
    "tree": [
        ("all on rank 0", UP_A_STAR),
        ("distances of eight", "[2**k for k in reversed(range((p - 1).bit_length()))]", "(4, 2, 1)"),
        ("one after another", DOWN, TO_ALL),
        ("the root is rank 0", "(r - root) % p", "r"),
        ("powers of two only", " and v + d < p", ""),
        ("near ones first", "for k in reversed(range(", "for k in (range("),
        ("ranks do not wrap", "comm.send(x, (r + d) % p)", "comm.send(x, min(r + d, p - 1))"),
        ("one round too few", " reversed(range((p - 1).bit_length()))", " reversed(range(p.bit_length() - 1))"),
        ("never down", "    broadcast(comm, x)", "    pass"),
        ("replaces", "x += received", "x[...] = received"),
        ("not in place", "x += received", "x = x + received"),
        ("up: powers of two only", "if r % (2 * d) == 0 and r + d < p:", "if r % (2 * d) == 0:"),
        ("far ones first", " k in range((p - 1).bit_length())", " k in reversed(range((p - 1).bit_length()))"),
        ("half the way up", "for k in range((p - 1).bit_length())", "for k in range((p - 1).bit_length() - 1)"),
        ("float64", "received = np.empty_like(x)", "received = np.empty(x.shape)"),
        ("eight ranks", "    v = (r - root) % p\n", "    p = 8\n    v = (r - root) % p\n"),
    ],
    "ring": [
        ("sends first", ADDING, "        comm.send(parts[(r - step) % p], right); comm.recv(received, left)\n"),
        ("whole arrays", WHOLE_RING),
        ("adds only", "        " + PASSING, "        pass"),
        ("one step too few", " step in range(p - 1):\n        mine", " step in range(p - 2):\n        mine"),
        (
            "one step too many",
            "    for step in range(p - 1):\n        " + PASSING,
            "    for step in range(p):\n        " + PASSING,
        ),
        ("replaces", "mine += received", "mine[...] = received"),
        ("not in place", "mine += received", "mine = mine + received"),
        ("adds in both phases", PASSING, f"parts[(r - step) % p] += {PASSING_ANEW}"),
        ("new arrays in the list", "mine += received", "parts[(r - step - 1) % p] = mine + received"),
        ("parts of a copy", "x.reshape(-1), p)", "x.reshape(-1).copy(), p)"),
        (
            "passes on what is not complete",
            PASSING,
            PASSING.replace("r + 1 - step", "r - step").replace(
                "parts[(r - step) % p], left", "parts[(r - step - 1) % p], left"
            ),
        ),
        ("the wrong way round", "right, left = (r + 1) % p, (r - 1) %", "left, right = (r + 1) % p, (r - 1) %"),
        ("rows, not elements", "np.array_split(x.reshape(-1), p)", "np.array_split(x, p)[:p]"),
        ("equal parts only", "np.array_split(x.reshape(-1), p)", "np.split(x.reshape(-1), p)"),
        ("four parts", "np.array_split(x.reshape(-1), p)", "np.array_split(x.reshape(-1), max(4, p))"),
        ("float64", "np.empty_like(mine)", "np.empty(mine.shape)"),
    ],
    "halving": [
        ("powers of two only", "    if r >= q:\n", "    if False:\n"),
        ("never doubles", BACK, ""),
        ("doubles in the same order", "reversed(done)", "done"),
        ("always the first half", "halves[::-1] if r & d else halves", "halves"),
        ("replaces", "keep += comm.send_recv(", "keep[...] = comm.send_recv("),
        ("whole arrays", "halves = mine[:len(mine) // 2], mine[len(mine) // 2:]", "halves = mine, mine"),
        ("the rest gets nothing", " r + q < p:\n        comm.send(flat, r + q)", " False:\n        pass"),
        ("the rest is not added", "flat += comm.recv(np.empty_like(flat)", "comm.recv(np.empty_like(flat)"),
        ("a copy", "x.reshape(-1)\n", "x.reshape(-1).copy()\n"),
        ("four ranks", "mine, done, d = flat, [], q // 2", "mine, done, d = flat, [], min(q // 2, 2)"),
        ("float64", "np.empty_like(keep)", "np.empty(keep.shape)"),
        ("the next power of two", "q = 1 << (p.bit_length() - 1)", "q = 1 << (p - 1).bit_length()"),
        ("the ring", "    p, r, flat", "    return ring_all_reduce(comm, x)\n    p, r, flat"),
    ],
    "network": [
        ("too many decisions", '"collect": ["2->0"]', '"collect": ["2->0", "1->0"]'),
        ("mended: sends both at once", MENDED_OTHERWISE),
        ("breaks the ledger", '"ledger": None', '"ledger": ["2->0"]'),
        ("gives up", '"relay": ["buffer 2", "2->0"]', '"relay": None'),
        ("nothing buffered", '"relay": ["buffer 2", "2->0"]', '"relay": ["2->0"]'),
        ("the usual order", '"collect": ["2->0"]', '"collect": ["1->0"]'),
        ("no choice made", '"epochs": ["1->0", "1->0"]', '"epochs": []'),
        ("alternating", '"epochs": ["1->0", "1->0"]', '"epochs": ["1->0", "2->0"]'),
        ("one answer missing", '{"collect": ["2->0"], ', "{"),
        ("mended: from anyone", SUM, SUM.replace("recv_obj(rank)", "recv_obj()")),
        ("mended: three ranks", SUM, SUM.replace("range(1, comm.size)", "(1, 2)")),
        ("mended: one sum", SUM, SUM.replace(" for _ in range(2)]", "]")),
        (
            "mended: a rank's losses at once",
            "        for loss in losses:\n            comm.send_obj(loss, 0)",
            "        comm.send_obj(losses[0], 0)",
        ),
        ("mended: sums on every rank", "       return None\n    return", "       return losses\n    return"),
        ("mended: no return", "    return " + SUM, "    " + SUM),
        (
            "mended: by rank, not by epoch",
            SUM,
            "[sum(comm.recv_obj(rank) for _ in range(2)) for rank in range(1, comm.size)][:2]",
        ),
    ],
    "seconds": [
        ("absolute errors", LEAST_SQUARES, "    per_byte, alpha = np.polyfit(nbytes, times, 1)\n"),
        ("slope for beta", "return alpha, 1 / per_byte", "return alpha, per_byte"),
        ("swapped", "return alpha, 1 / per_byte", "return 1 / per_byte, alpha"),
        ("star: 2 (p - 1) latencies", "alpha + (p - 1) * n / beta + (p - 1) * whole", "2 * (p - 1) * whole"),
        ("star: one way", " alpha + (p - 1) * n / beta + (p - 1) * whole", " alpha + (p - 1) * n / beta"),
        ("tree: one way", "2 * (p - 1).bit_length() * whole", "(p - 1).bit_length() * whole"),
        ("tree: not whole", "2 * (p - 1).bit_length() * whole", "2 * np.log2(p) * whole"),
        ("tree: rounded down", "2 * (p - 1).bit_length() * whole", "2 * (p.bit_length() - 1) * whole"),
        ("ring: whole messages", "(alpha + n / p / beta)", "whole"),
        ("ring: p steps", "2 * (p - 1) * (alpha + n / p / beta)", "2 * p * (alpha + n / p / beta)"),
        ("ring: one phase", "2 * (p - 1) * (alpha + n / p / beta)", "(p - 1) * (alpha + n / p / beta)"),
        ("halving: whole messages", "() - 1) * alpha + 2 * (q - 1) / q * n / beta", "() - 1) * whole"),
        ("halving: one phase", "2 * (q.bit_length() - 1) * alpha + 2 * ", "(q.bit_length() - 1) * alpha + "),
        ("halving: no rest", " if q < p else 0", " * 0"),
        ("halving: always a rest", "2 * whole if q < p else 0", "2 * whole"),
        ("one rank sends", "    if p == 1:\n        return 0.0\n", ""),
        ("times beta", "whole = alpha + n / beta", "whole = alpha + n * beta"),
        ("no return", "    return 2 * (q.bit_length()", "    2 * (q.bit_length()"),
    ],
}
