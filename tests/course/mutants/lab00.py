"""Wrong answers to lab 00, and what each must cost."""

MEAN, SHARE = {"check_mean_over_ranks"}, {"check_share"}

MUTANTS = {
    "mean_over_ranks": [
        ("sum", ("return total / comm.size", "return total"), MEAN),
        ("always four", ("return total / comm.size", "return total / 4"), MEAN),
        ("in place", ("total = x.copy()", "total = x"), MEAN),
        ("no return", ("return total / comm.size", "total / comm.size"), MEAN),
        ("own numbers", ("comm.all_reduce(total)", "total = total * comm.size"), MEAN),
        ("three numbers", ("return total / comm.size", "return (total / comm.size).reshape(-1)[:3]"), MEAN),
    ],
    "share": [
        ("rounded down", ("n // size + (1 if rank < n % size else 0)", "n // size"), SHARE),
        ("rest to the last", ("(1 if rank < n % size else 0)", "(n % size if rank == size - 1 else 0)"), SHARE),
        ("fraction", ("n // size", "n / size"), SHARE),
        ("one rank too many", ("rank < n % size", "rank <= n % size"), SHARE),
        ("no whole number", ("n // size + (1 if", "n // size + (1.0 if"), SHARE),
        ("only what is shown", "def share(n, rank, size):\n    return {8: [2] * 4, 10: [3, 3, 2, 2]}[n][rank]", SHARE),
    ],
}
