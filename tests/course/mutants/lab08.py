"""Wrong answers to lab 08, and what each must cost."""

COST, PARTS, BORDER = {"check_layer_cost"}, {"check_step_parts"}, {"check_needed_bandwidth"}
CODECS, REDUCE, ROUND = {"check_codecs"}, {"check_compressed_all_reduce"}, {"check_diloco_round"}

MOVING = "2 * (ranks - 1) / ranks * nbytes / bandwidth"
LATE = "2 * (ranks - 1) * alpha * buckets"
LEVELS = "np.rint(x * (127 / scale)) if scale[0] > 0 else x"
MEANS = "[x[side].mean() if side.any() else 0.0 for side in (above, ~above)]"
PLACES = "np.argpartition(np.abs(x), -k)[-k:]"
SUM = "sum(decode(*(part[r] for part in rows), len(x)) for r in range(comm.size))"
ERROR = "error[...] = given - decode(*code, len(x))"

MUTANTS = {
    "layer_cost": [
        ("no biases", ("products * c_out + c_out,", "products * c_out,"), COST),
        ("one operation for two", ("2 * products", "products"), COST),
        ("bias is an operation", ("c_out * pixels", "c_out * pixels + c_out * pixels"), COST),
        ("kernel not squared", ("kernel * kernel", "kernel"), COST),
        ("no groups", (" // groups", ""), COST),
        ("groups twice", ("// groups", "// groups // groups"), COST),
        ("no pixels", ("* c_out * pixels", "* c_out"), COST),
        ("biases of the input", ("products * c_out + c_out,", "products * c_out + c_in,"), COST),
        ("swapped", ("return products * c_out + c_out, 2 *", "return 2 * products * c_out * pixels, 0 *"), COST),
    ],
    "step_parts": [
        ("whole arrays", (MOVING, "2 * (ranks - 1) * nbytes / bandwidth"), PARTS),
        ("2 p messages", (MOVING, "2 * nbytes / bandwidth"), PARTS),
        ("one way", (MOVING, "(ranks - 1) / ranks * nbytes / bandwidth"), PARTS),
        ("bits", (MOVING, "8 * " + MOVING), PARTS),
        ("times bandwidth", (MOVING, "2 * (ranks - 1) / ranks * nbytes * bandwidth"), PARTS),
        ("moves in buckets", (MOVING, MOVING + " * buckets"), PARTS),
        ("one latency", (LATE, "alpha * buckets"), PARTS),
        ("no buckets", (LATE, "2 * (ranks - 1) * alpha"), PARTS),
        ("latency shared", (LATE, "2 * (ranks - 1) / ranks * alpha * buckets"), PARTS),
        ("all compute all", ("return seconds / ranks", "return seconds"), PARTS),
        ("order", ("return seconds / ranks, moving,", "return moving, seconds / ranks,"), PARTS),
        ("whole ranks only", ("    moving =", "    ranks = int(ranks)\n    moving ="), PARTS),
    ],
    "needed_bandwidth": [
        (
            "latency ignored",
            ("left = seconds / ranks - 2 * (ranks - 1) * alpha * buckets", "left = seconds / ranks"),
            BORDER,
        ),
        ("latency added", ("seconds / ranks - 2", "seconds / ranks + 2"), BORDER),
        ("one rank computes all", ("left = seconds / ranks -", "left = seconds -"), BORDER),
        ("no buckets", ("alpha * buckets", "alpha"), BORDER),
        ("negative bandwidth", (" if left > 0 else np.inf", " if left else np.inf"), BORDER),
        ("divides by zero", ("left > 0", "left >= 0"), BORDER),
        ("zero if impossible", ("else np.inf", "else 0.0"), BORDER),
        ("reciprocal", ("nbytes / left if", "/ nbytes * left if"), BORDER),
        ("one rank needs much", ("if left > 0", "if left > 0 and ranks > 1"), BORDER),
    ],
    "codecs": [
        ("cut off", (LEVELS, "np.trunc(x * (127 / scale)) if scale[0] > 0 else x"), CODECS),
        ("128 levels", (LEVELS, "np.rint(x * (126 / scale)) if scale[0] > 0 else x"), CODECS),
        ("largest, not by size", ("np.abs(x).max(keepdims=True)", "x.max(keepdims=True)"), CODECS),
        ("scale is a number", ("np.abs(x).max(keepdims=True)", "np.abs(x).max(keepdims=True).astype(float)"), CODECS),
        ("levels as floats", ("levels.astype(np.int8)", "levels"), CODECS),
        ("decodes with 128", ("np.float32(127)", "np.float32(128)"), CODECS),
        ("one mean", (MEANS, "[np.abs(x).mean(), -np.abs(x).mean()]"), CODECS),
        ("signs alone", (MEANS, "[1.0, -1.0]"), CODECS),
        ("an empty side", (MEANS, "[x[above].mean(), x[~above].mean()]"), CODECS),
        ("sides swapped", ("(above, ~above)", "(~above, above)"), CODECS),
        ("zero is below", ("above = x >= 0", "above = x > 0"), CODECS),
        ("bits not packed", ("np.packbits(above)", "above.astype(np.uint8)"), CODECS),
        ("all bits", ("np.unpackbits(bits)[:n]", "np.unpackbits(bits)"), CODECS),
        ("bits the other way", ("== 1, means[0], means[1]", "== 0, means[0], means[1]"), CODECS),
        ("largest values", (PLACES, "np.argsort(x)[-k:]"), CODECS),
        ("smallest", (PLACES, "np.argsort(np.abs(x))[:k]"), CODECS),
        ("one too few", (PLACES, "np.argsort(np.abs(x))[-k + 1:]"), CODECS),
        ("sizes, no signs", ("return places, x[places]", "return places, np.abs(x[places])"), CODECS),
        ("places as int64", (".astype(np.uint32)", ""), CODECS),
        ("ones elsewhere", ("np.zeros(n, np.float32)", "np.ones(n, np.float32)"), CODECS),
    ],
    "compressed_all_reduce": [
        ("never adds the error", ("given = x + error", "given = x"), REDUCE),
        ("subtracts it", ("given = x + error", "given = x - error"), REDUCE),
        ("error of x", (ERROR, "error[...] = x - decode(*code, len(x))"), REDUCE),
        ("error upside down", (ERROR, "error[...] = decode(*code, len(x)) - given"), REDUCE),
        ("error lost", (ERROR, "error = given - decode(*code, len(x))"), REDUCE),
        ("error piles up", (ERROR, "error += given - decode(*code, len(x))"), REDUCE),
        ("x changed", ("given = x + error", "x += error\n    given = x"), REDUCE),
        ("mean", (SUM, SUM + " / comm.size"), REDUCE),
        ("own in full", (SUM, SUM + " + error"), REDUCE),
        ("others only", ("for r in range(comm.size))", "for r in range(comm.size) if r != comm.rank)"), REDUCE),
        ("own only", (SUM, "decode(*code, len(x)) * comm.size"), REDUCE),
        ("sends all", (SUM, "comm.all_reduce(decode(*code, len(x)))"), REDUCE),
        ("sends gradients, too", ("    rows =", "    comm.all_gather(x)\n    rows ="), REDUCE),
        ("encodes x", ("code = encode(given)", "code = encode(x)"), REDUCE),
    ],
    "diloco_round": [
        ("momentum", ("(delta + mu * velocity)", "velocity"), ROUND),
        ("local SGD", ("return start - lr * (delta + mu * velocity)", "return start - delta"), ROUND),
        ("uphill", ("return start - lr", "return start + lr"), ROUND),
        ("from the mean", ("return start - lr", "return start - delta - lr"), ROUND),
        ("sum of ranks", (" / comm.size", ""), ROUND),
        ("own way", ("comm.all_reduce(end.copy()) / comm.size", "end"), ROUND),
        ("end changed", ("end.copy()", "end"), ROUND),
        ("start changed", ("return start - lr * (delta", "start -= lr * (delta"), ROUND),
        (
            "velocity lost",
            ("velocity *= mu\n    velocity +=", "velocity = mu * velocity; velocity = velocity +"),
            ROUND,
        ),
        ("never slows down", ("velocity *= mu", "pass"), ROUND),
        ("a mean of ways", ("velocity += delta", "velocity += (1 - mu) * delta"), ROUND),
        ("its own numbers", ("delta = start", "lr, mu = 0.7, 0.9\n    delta = start"), ROUND),
        ("rate on the way only", ("lr * (delta + mu * velocity)", "(lr * delta + mu * velocity)"), ROUND),
    ],
}
