"""Wrong answers to lab 00."""

EXTRA = "(1 if rank < n % size else 0)"
BOTH = "comm.send_recv(mine, dest=other, out=theirs, source=other)"

MUTANTS = {
    "mean_over_ranks": [
        ("sum", ("return total / comm.size", "return total")),
        ("always four", ("return total / comm.size", "return total / 4")),
        ("in place", ("total = x.copy()", "total = x")),
        ("no return", ("return total / comm.size", "total / comm.size")),
        ("own numbers", ("comm.all_reduce(total)", "total = total * comm.size")),
        ("own share", ("comm.all_reduce(total)", "pass")),
        ("three numbers", ("return total / comm.size", "return (total / comm.size).reshape(-1)[:3]")),
        ("mean of the elements", ("return total / comm.size", "return total.mean() / comm.size")),
        ("divides by the length", ("return total / comm.size", "return total / len(x)")),
        ("misspelt", ("comm.all_reduce(total)", "comm.all_reduc(total)")),
        ("rank 0 only", ("comm.all_reduce(total)", "if comm.rank == 0: comm.all_reduce(total)")),
        ("in float32", ("total = x.copy()", "total = x.astype('float32')")),
        ("rounded", ("return total / comm.size", "return total // comm.size")),
    ],
    "share": [
        ("rounded down", (f"n // size + {EXTRA}", "n // size")),
        ("rounded up", (f"n // size + {EXTRA}", "-(-n // size)")),
        ("rest to the last", (EXTRA, "(n % size if rank == size - 1 else 0)")),
        ("rest to the first", (EXTRA, "(n % size if rank == 0 else 0)")),
        ("rest to all", (EXTRA, "n % size")),
        ("fraction", ("n // size", "n / size")),
        ("one rank too many", ("rank < n % size", "rank <= n % size")),
        ("counts from 1", ("rank < n % size", "0 < rank <= n % size")),
        ("last ranks get more", ("rank < n % size", "rank >= size - n % size")),
        ("no whole number", ("n // size + (1 if", "n // size + (1.0 if")),
        ("true for one more", (EXTRA, "(rank < n % size) - 1")),
        ("no return", ("return n", "n")),
        ("four ranks", ("n // size + ", "n // 4 + ")),
    ],
    "swap": [
        ("the sum minus mine", (BOTH, "theirs[...] = mine; comm.all_reduce(theirs); theirs -= mine")),
        ("both send first", (BOTH, "comm.send(mine, dest=other)\n    comm.recv(theirs, source=other)")),
        ("both receive first", (BOTH, "comm.recv(theirs, source=other)\n    comm.send(mine, dest=other)")),
        ("returns its own", ("return theirs", "return mine")),
        ("no return", ("return theirs", "pass")),
        ("receives into its own", ("out=theirs", "out=mine")),
        ("sends to itself", ("dest=other, out=theirs, source=other", "dest=comm.rank, out=theirs, source=comm.rank")),
        ("receives from itself", ("source=other", "source=comm.rank")),
        ("rank 2", ("1 - comm.rank", "1 + comm.rank")),
        ("1000 numbers", ("np.empty_like(mine)", "np.empty(1000)")),
        ("floats", ("np.empty_like(mine)", "np.empty(mine.shape)")),
        ("sums", (BOTH, "theirs[...] = mine\n    comm.all_reduce(theirs)")),
        ("nothing sent", (BOTH, "theirs[...] = mine")),
        (
            "only rank 0 sends",
            (
                BOTH,
                "if comm.rank == 0:\n        comm.send(mine, dest=1)\n    else:\n        comm.recv(theirs, source=0)",
            ),
        ),
    ],
}
