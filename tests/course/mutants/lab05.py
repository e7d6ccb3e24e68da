"""Wrong answers to lab 05."""

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
        ("a multiply-add is one", (FLOPS, "batch * d_in * d_out")),
        ("one operation too few in each sum", (FLOPS, "batch * d_out * (2 * d_in - 1)")),
        ("no result", (BYTES, "itemsize * (batch * d_in + d_in * d_out)")),
        ("no weights", (BYTES, "itemsize * (batch * d_in + batch * d_out)")),
        ("weights for every sample", (BYTES, "itemsize * batch * (d_in + d_in * d_out + d_out)")),
        ("numbers, not bytes", (BYTES, "batch * d_in + d_in * d_out + batch * d_out")),
        ("always four bytes", (BYTES, "4 * (batch * d_in + d_in * d_out + batch * d_out)")),
        ("swapped", ("return flops, nbytes", "return nbytes, flops")),
        ("adds the times", (BOUND, "flops / peak + nbytes / bandwidth")),
        ("the shorter time", (BOUND, "min(flops / peak, nbytes / bandwidth)")),
        ("arithmetic alone", (BOUND, "flops / peak")),
        ("memory alone", (BOUND, "nbytes / bandwidth")),
        ("a speed", (BOUND, "min(peak, flops / nbytes * bandwidth)")),
    ],
    "smallest_batch": [
        ("the whole peak", ("share * peak / bandwidth", "peak / bandwidth")),
        ("X and Y move for free", (GAIN, "2 * weights")),
        ("X moves alone", (GAIN, "2 * weights - 4 * needed * d_in")),
        ("rounds down", (FIRST, "max(1, int(4 * needed * weights / gain))")),
        ("one more", (FIRST, "int(4 * needed * weights / gain) + 2")),
        ("never None", ("    if gain <= 0:\n        return None\n", "    gain = abs(gain)\n")),
        ("0 in place of None", ("return None", "return 0")),
        ("a multiply-add is one", (GAIN, "weights - 4 * needed * (d_in + d_out)")),
        ("ridge upside down", ("share * peak / bandwidth", "share * bandwidth / peak")),
        ("a float", (FIRST, "max(1.0, 4 * needed * weights / gain)")),
        ("0 samples", (FIRST, "int(np.ceil(4 * needed * weights / gain)) - (needed < 0.2)")),
    ],
    "tiled_bytes": [
        ("each number once", (MOVED, "4 * (batch * d_in + d_in * d_out + batch * d_out)")),
        ("passes swapped", (MOVED, "4 * (batch * d_in * down + d_in * d_out * across + batch * d_out)")),
        ("no result", (MOVED, "4 * (batch * d_in * across + d_in * d_out * down)")),
        ("the result in every piece", (MOVED, MOVED.replace("batch * d_out)", "batch * d_out * -(-d_in // tile))"))),
        ("rounds down", (ROUNDED, "batch // tile, d_out // tile")),
        ("does not round", (ROUNDED, "batch / tile, d_out / tile")),
        ("whole tiles", (MOVED, "4 * tile * (down * d_in * across * 2 + down * across * tile)")),
        ("numbers, not bytes", (MOVED, MOVED[4:])),
        ("no tiles", (MOVED, "4 * (batch * d_in * d_out * 2 + batch * d_out)")),
        ("tiles of 16", (ROUNDED, "-(-batch // 16), -(-d_out // 16)")),
    ],
    "two_layers": [
        ("swapped", ("return bad, good", "return good, bad")),
        ("batch 1 alone", ("    return bad", "    bad = (1, sizes[-1], n // sizes[-1])\n    return bad")),
        ("two operations", ("    return bad", "    bad = (1, n // 2, 1)\n    return bad")),
        ("the largest surface", ("good = min(", "good = max(")),
        ("roots", NO_SEARCH),
        ("not whole", ("    return bad", "    bad = (1, n / 2, 2.0)\n    return bad")),
        ("a flat good shape", ("    return bad", "    good = (1, sizes[-1], n // sizes[-1])\n    return bad")),
        ("two sizes", ("    return bad", "    bad = (1, n)\n    return bad")),
        ("powers of two only", ("n % d == 0]", "n % d == 0 and d & (d - 1) == 0]")),
    ],
    "seconds": [
        ("adds all", (WORK, "starting + copying + flops / card.peak + nbytes / card.bandwidth")),
        ("the shorter time", (WORK, WORK.replace("max", "min"))),
        ("one call", ("calls * card.overhead", "card.overhead")),
        ("no calls", (WORK, WORK.replace("starting + ", ""))),
        ("no copies", (WORK, WORK.replace("copying + ", ""))),
        ("copies at the card's bandwidth", ("copied / card.link", "copied / card.bandwidth")),
        ("copies overlap", (WORK, "starting + max(copying, flops / card.peak, nbytes / card.bandwidth)")),
        ("all overlaps", (WORK, "max(starting, copying, flops / card.peak, nbytes / card.bandwidth)")),
        ("arithmetic alone", (WORK, "starting + copying + flops / card.peak")),
        ("a default of its own", ("calls=1, copied=0):", "calls=2, copied=0):")),
        ("copies there and back", ("copied / card.link", "2 * copied / card.link")),
    ],
}
