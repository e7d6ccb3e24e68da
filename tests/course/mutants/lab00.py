"""Wrong answers to lab 00, and what each must cost."""

MEAN, SHARE, SWAP = {"check_mean_over_ranks"}, {"check_share"}, {"check_swap"}
EXTRA = "(1 if rank < n % size else 0)"
BOTH = "comm.send_recv(mine, dest=other, out=theirs, source=other)"

MUTANTS = {
    "mean_over_ranks": [
        ("sum", ("return total / comm.size", "return total"), MEAN),
        ("always four", ("return total / comm.size", "return total / 4"), MEAN),
        ("in place", ("total = x.copy()", "total = x"), MEAN),
        ("no return", ("return total / comm.size", "total / comm.size"), MEAN),
        ("own numbers", ("comm.all_reduce(total)", "total = total * comm.size"), MEAN),
        ("own share", ("comm.all_reduce(total)", "pass"), MEAN),
        ("three numbers", ("return total / comm.size", "return (total / comm.size).reshape(-1)[:3]"), MEAN),
        ("mean of the elements", ("return total / comm.size", "return total.mean() / comm.size"), MEAN),
        ("divides by the length", ("return total / comm.size", "return total / len(x)"), MEAN),
        ("misspelt", ("comm.all_reduce(total)", "comm.all_reduc(total)"), MEAN),
        ("rank 0 only", ("comm.all_reduce(total)", "if comm.rank == 0: comm.all_reduce(total)"), MEAN),
        ("in float32", ("total = x.copy()", "total = x.astype('float32')"), MEAN),
        ("rounded", ("return total / comm.size", "return total // comm.size"), MEAN),
    ],
    "share": [
        ("rounded down", (f"n // size + {EXTRA}", "n // size"), SHARE),
        ("rounded up", (f"n // size + {EXTRA}", "-(-n // size)"), SHARE),
        ("rest to the last", (EXTRA, "(n % size if rank == size - 1 else 0)"), SHARE),
        ("rest to the first", (EXTRA, "(n % size if rank == 0 else 0)"), SHARE),
        ("rest to all", (EXTRA, "n % size"), SHARE),
        ("fraction", ("n // size", "n / size"), SHARE),
        ("one rank too many", ("rank < n % size", "rank <= n % size"), SHARE),
        ("counts from 1", ("rank < n % size", "0 < rank <= n % size"), SHARE),
        ("last ranks get more", ("rank < n % size", "rank >= size - n % size"), SHARE),
        ("no whole number", ("n // size + (1 if", "n // size + (1.0 if"), SHARE),
        ("true for one more", (EXTRA, "(rank < n % size) - 1"), SHARE),
        ("no return", ("return n", "n"), SHARE),
        ("four ranks", ("n // size + ", "n // 4 + "), SHARE),
    ],
    "swap": [
        ("the sum minus mine", (BOTH, "theirs[...] = mine; comm.all_reduce(theirs); theirs -= mine"), SWAP),
        ("both send first", (BOTH, "comm.send(mine, dest=other)\n    comm.recv(theirs, source=other)"), SWAP),
        ("both receive first", (BOTH, "comm.recv(theirs, source=other)\n    comm.send(mine, dest=other)"), SWAP),
        ("returns its own", ("return theirs", "return mine"), SWAP),
        ("no return", ("return theirs", "pass"), SWAP),
        ("receives into its own", ("out=theirs", "out=mine"), SWAP),
        (
            "sends to itself",
            ("dest=other, out=theirs, source=other", "dest=comm.rank, out=theirs, source=comm.rank"),
            SWAP,
        ),
        ("receives from itself", ("source=other", "source=comm.rank"), SWAP),
        ("rank 2", ("1 - comm.rank", "1 + comm.rank"), SWAP),
        ("1000 numbers", ("np.empty_like(mine)", "np.empty(1000)"), SWAP),
        ("floats", ("np.empty_like(mine)", "np.empty(mine.shape)"), SWAP),
        ("sums", (BOTH, "theirs[...] = mine\n    comm.all_reduce(theirs)"), SWAP),
        ("nothing sent", (BOTH, "theirs[...] = mine"), SWAP),
        (
            "only rank 0 sends",
            (
                BOTH,
                "if comm.rank == 0:\n        comm.send(mine, dest=1)\n    else:\n        comm.recv(theirs, source=0)",
            ),
            SWAP,
        ),
    ],
}
