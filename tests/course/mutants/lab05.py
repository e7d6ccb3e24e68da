"""Wrong answers to lab 05, and what each must cost."""

COST, BATCH, TILES = {"check_product_cost"}, {"check_smallest_batch"}, {"check_tiled_bytes"}
LAYERS, SECONDS = {"check_two_layers"}, {"check_seconds"}

FLOPS = "2 * batch * d_in * d_out"
BYTES = "itemsize * (batch * d_in + d_in * d_out + batch * d_out)"
BOUND = "max(flops / peak, nbytes / bandwidth)"
GAIN = "2 * weights - 4 * needed * (d_in + d_out)"
FIRST = "max(1, int(np.ceil(4 * needed * weights / gain)))"
MOVED = "4 * (batch * d_in * across + d_in * d_out * down + batch * d_out)"
ROUNDED = "-(-batch // tile), -(-d_out // tile)"
WORK = "starting + copying + max(flops / card.peak, nbytes / card.bandwidth)"
NO_SEARCH = "def two_layers(n):\n    side = round(n ** (1 / 3))\n    return (1, n, 1), (side, side, n // side**2)"

MUTANTS = {
    "product_cost": [
        ("a multiply-add is one", (FLOPS, "batch * d_in * d_out"), COST),
        ("one operation too few in each sum", (FLOPS, "batch * d_out * (2 * d_in - 1)"), COST),
        ("no result", (BYTES, "itemsize * (batch * d_in + d_in * d_out)"), COST),
        ("no weights", (BYTES, "itemsize * (batch * d_in + batch * d_out)"), COST),
        ("weights for every sample", (BYTES, "itemsize * batch * (d_in + d_in * d_out + d_out)"), COST),
        ("numbers, not bytes", (BYTES, "batch * d_in + d_in * d_out + batch * d_out"), COST),
        ("always four bytes", (BYTES, "4 * (batch * d_in + d_in * d_out + batch * d_out)"), COST),
        ("swapped", ("return flops, nbytes", "return nbytes, flops"), COST),
        ("adds the times", (BOUND, "flops / peak + nbytes / bandwidth"), COST),
        ("the shorter time", (BOUND, "min(flops / peak, nbytes / bandwidth)"), COST),
        ("arithmetic alone", (BOUND, "flops / peak"), COST),
        ("memory alone", (BOUND, "nbytes / bandwidth"), COST),
        ("a speed", (BOUND, "min(peak, flops / nbytes * bandwidth)"), COST),
    ],
    "smallest_batch": [
        ("the whole peak", ("share * peak / bandwidth", "peak / bandwidth"), BATCH),
        ("X and Y move for free", (GAIN, "2 * weights"), BATCH),
        ("X moves alone", (GAIN, "2 * weights - 4 * needed * d_in"), BATCH),
        ("rounds down", (FIRST, "max(1, int(4 * needed * weights / gain))"), BATCH),
        ("one more", (FIRST, "int(4 * needed * weights / gain) + 2"), BATCH),
        ("never None", ("    if gain <= 0:\n        return None\n", "    gain = abs(gain)\n"), BATCH),
        ("0 in place of None", ("return None", "return 0"), BATCH),
        ("a multiply-add is one", (GAIN, "weights - 4 * needed * (d_in + d_out)"), BATCH),
        ("ridge upside down", ("share * peak / bandwidth", "share * bandwidth / peak"), BATCH),
        ("a float", (FIRST, "max(1.0, 4 * needed * weights / gain)"), BATCH),
        ("0 samples", (FIRST, "int(np.ceil(4 * needed * weights / gain)) - (needed < 0.2)"), BATCH),
    ],
    "tiled_bytes": [
        ("each number once", (MOVED, "4 * (batch * d_in + d_in * d_out + batch * d_out)"), TILES),
        ("passes swapped", (MOVED, "4 * (batch * d_in * down + d_in * d_out * across + batch * d_out)"), TILES),
        ("no result", (MOVED, "4 * (batch * d_in * across + d_in * d_out * down)"), TILES),
        (
            "the result in every piece",
            (MOVED, MOVED.replace("batch * d_out)", "batch * d_out * -(-d_in // tile))")),
            TILES,
        ),
        ("rounds down", (ROUNDED, "batch // tile, d_out // tile"), TILES),
        ("does not round", (ROUNDED, "batch / tile, d_out / tile"), TILES),
        ("whole tiles", (MOVED, "4 * tile * (down * d_in * across * 2 + down * across * tile)"), TILES),
        ("numbers, not bytes", (MOVED, MOVED[4:]), TILES),
        ("no tiles", (MOVED, "4 * (batch * d_in * d_out * 2 + batch * d_out)"), TILES),
        ("tiles of 16", (ROUNDED, "-(-batch // 16), -(-d_out // 16)"), TILES),
    ],
    "two_layers": [
        ("swapped", ("return bad, good", "return good, bad"), LAYERS),
        ("batch 1 alone", ("    return bad", "    bad = (1, sizes[-1], n // sizes[-1])\n    return bad"), LAYERS),
        ("two operations", ("    return bad", "    bad = (1, n // 2, 1)\n    return bad"), LAYERS),
        ("the largest surface", ("good = min(", "good = max("), LAYERS),
        ("roots", NO_SEARCH, LAYERS),
        ("not whole", ("    return bad", "    bad = (1, n / 2, 2.0)\n    return bad"), LAYERS),
        ("a flat good shape", ("    return bad", "    good = (1, sizes[-1], n // sizes[-1])\n    return bad"), LAYERS),
        ("two sizes", ("    return bad", "    bad = (1, n)\n    return bad"), LAYERS),
        ("powers of two only", ("n % d == 0]", "n % d == 0 and d & (d - 1) == 0]"), LAYERS),
    ],
    "seconds": [
        ("adds all", (WORK, "starting + copying + flops / card.peak + nbytes / card.bandwidth"), SECONDS),
        ("the shorter time", (WORK, WORK.replace("max", "min")), SECONDS),
        ("one call", ("calls * card.overhead", "card.overhead"), SECONDS),
        ("no calls", (WORK, WORK.replace("starting + ", "")), SECONDS),
        ("no copies", (WORK, WORK.replace("copying + ", "")), SECONDS),
        ("copies at the card's bandwidth", ("copied / card.link", "copied / card.bandwidth"), SECONDS),
        ("copies overlap", (WORK, "starting + max(copying, flops / card.peak, nbytes / card.bandwidth)"), SECONDS),
        ("all overlaps", (WORK, "max(starting, copying, flops / card.peak, nbytes / card.bandwidth)"), SECONDS),
        ("arithmetic alone", (WORK, "starting + copying + flops / card.peak"), SECONDS),
        ("a default of its own", ("calls=1, copied=0):", "calls=2, copied=0):"), SECONDS),
        ("copies there and back", ("copied / card.link", "2 * copied / card.link"), SECONDS),
    ],
}
