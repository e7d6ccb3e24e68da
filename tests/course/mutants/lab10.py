"""Wrong answers to lab 10, and what each must cost."""

HAND, GENERATORS, PREDICTED, INTERLEAVED = (
    {f"check_{name}"} for name in ("half_the_memory", "generators", "predicted", "interleaved")
)
STAGE, UNEVEN, HALVED = {"check_run_stage"}, {"check_slow_and_uneven"}, {"check_halved"}

FIRST_ROW = "F0 F1 F2 B0 F3 B1 B2 B3"
LAST_ROW = "F0 B0 F1 B1 F2 B2 F3 B3"
FORWARD = 'forward.append(f"{rank + k * n_ranks}F{i}")'
BACKWARD = 'backward.append(f"{rank + (n_virtual - 1 - k) * n_ranks}B{i}")'
AHEAD = "2 * (n_ranks - 1 - rank) + (n_virtual - 1) * n_ranks"
TIME = "return (n_microbatches + fill) * (forward + backward), fill / (n_microbatches + fill)"
SLOW = "F0 F1 F2 F3 F4 B0 F5 B1 B2 B3 B4 B5"
STAGE_1 = "1F0 1F1 1F2 1B0 1B1 1F3 1B2 1F4 1B3 1F5 1B4 1B5"

KEPT = """            kept[i] = version, w
        else:
            used, old = kept.pop(i)
            w = w - lr * gradient(i, old)
"""
ALIAS = """            w = w if version else w.copy()
            kept[i] = version, w
        else:
            used, old = kept.pop(i)
            w -= lr * gradient(i, old)
"""

MUTANTS = {
    "half_the_memory": [
        ("GPipe", (FIRST_ROW, "F0 F1 F2 F3 B0 B1 B2 B3"), HAND),
        ("too slow", (FIRST_ROW, "F0 F1 B0 F2 B1 F3 B2 B3"), HAND),
        ("an action missing", (LAST_ROW, "F0 B0 F1 B1 F2 B2 F3"), HAND),
        ("twice", (LAST_ROW, "F0 B0 F1 B1 F2 B2 F3 B3 B3"), HAND),
        ("a deadlock", (FIRST_ROW, "F0 F1 B1 F2 B0 F3 B2 B3"), HAND),
        ("backward first", (LAST_ROW, "B0 F0 F1 B1 F2 B2 F3 B3"), HAND),
        ("two ranks", (f"    {LAST_ROW}\n", ""), HAND),
        ("one at a time", f'def half_the_memory():\n    return "\\n".join(["{LAST_ROW}"] * 3)', HAND),
        ("halves", (LAST_ROW, "F0 I0 W0 F1 I1 W1 F2 I2 W2 F3 I3 W3"), HAND),
        ("no text", "def half_the_memory():\n    return 18", HAND),
        ("nothing", "def half_the_memory():\n    pass", HAND),
        ("a name", 'def half_the_memory():\n    return "1f1b"', HAND),
    ],
    "generators": [
        ("backward first", ('for kind in "FB"', 'for kind in "BF"'), GENERATORS),
        ("GPipe turns round", (' f"{kind}{i}', " f\"{kind}{i if kind == 'F' else n_microbatches - 1 - i}"), GENERATORS),
        ("one too many ahead", ("min(n_stages - 1 - stage", "min(n_stages - stage"), GENERATORS),
        ("turned round", ("n_stages - 1 - stage", "stage"), GENERATORS),
        ("nothing ahead", ("min(n_stages - 1 - stage, n_microbatches)", "0"), GENERATORS),
        ("the last forwards are missing", (" + ahead < n_microbatches:", " + ahead < n_microbatches - 1:"), GENERATORS),
        ("more than there are", ("if i + ahead < n_microbatches:", "if True:"), GENERATORS),
        (
            "backward before the turn's forward",
            (
                '        if i + ahead < n_microbatches:\n            yield f"F{i + ahead}"\n        yield f"B{i}"',
                '        yield f"B{i}"\n        if i + ahead < n_microbatches:\n            yield f"F{i + ahead}"',
            ),
            GENERATORS,
        ),
        (
            "few micro-batches forgotten",
            ("min(n_stages - 1 - stage, n_microbatches)", "n_stages - 1 - stage"),
            GENERATORS,
        ),
        ("the library's", "from distlearn.parallel.pipeline.schedule import gpipe, one_f_one_b", GENERATORS),
        ("numbers from 1", ('yield f"B{i}"', 'yield f"B{i + 1}"'), GENERATORS),
        ("pairs", ('yield f"B{i}"', 'yield ("B", i)'), GENERATORS),
        ("three stages only", ("min(n_stages - 1 - stage", "min(2 - stage"), GENERATORS),
    ],
    "predicted": [
        ("no interleaving", ("(n_ranks - 1) / n_virtual", "n_ranks - 1"), PREDICTED),
        ("p, not p - 1", ("(n_ranks - 1) / n_virtual", "n_ranks / n_virtual"), PREDICTED),
        ("times v", ("(n_ranks - 1) / n_virtual", "(n_ranks - 1) * n_virtual"), PREDICTED),
        ("over the work", (TIME, TIME.replace("fill / (n_microbatches + fill)", "fill / n_microbatches")), PREDICTED),
        ("no backward", (TIME, TIME.replace("(forward + backward)", "forward")), PREDICTED),
        (
            "fills only",
            (
                TIME,
                TIME.replace(
                    "(n_microbatches + fill) * (forward + backward)",
                    "n_microbatches * (forward + backward) + fill * forward",
                ),
            ),
            PREDICTED,
        ),
        ("work only", (TIME, TIME.replace("(n_microbatches + fill) *", "n_microbatches *", 1)), PREDICTED),
        (
            "swapped",
            (TIME, "return fill / (n_microbatches + fill), (n_microbatches + fill) * (forward + backward)"),
            PREDICTED,
        ),
        ("percent", (TIME, TIME.replace("fill / (n_mi", "100 * fill / (n_mi")), PREDICTED),
        ("always p", ("min(n_ranks - rank, n_microbatches)", "n_ranks"), PREDICTED),
        ("never fewer", ("min(n_ranks - rank, n_microbatches)", "n_ranks - rank"), PREDICTED),
        ("one too few", ("min(n_ranks - rank, n_microbatches)", "min(n_ranks - 1 - rank, n_microbatches)"), PREDICTED),
        ("one number", ("[min(n_ranks - rank, n_microbatches) for rank in range(n_ranks)]", "n_ranks"), PREDICTED),
        ("costs of the text", ("    fill =", "    forward, backward = 1, 2\n    fill ="), PREDICTED),
    ],
    "interleaved": [
        ("first stage first", (BACKWARD, BACKWARD.replace("n_virtual - 1 - k", "k")), INTERLEAVED),
        ("neighbouring stages", (FORWARD, 'forward.append(f"{rank * n_virtual + k}F{i}")'), INTERLEAVED),
        ("one group", ("range(first, first + n_ranks)", "range(first, n_microbatches)"), INTERLEAVED),
        ("1F1B's number ahead", (AHEAD, "n_ranks - 1 - rank"), INTERLEAVED),
        ("not the other stages", (AHEAD, "2 * (n_ranks - 1 - rank)"), INTERLEAVED),
        ("once, not twice", (AHEAD, AHEAD.replace("2 * ", "")), INTERLEAVED),
        ("one more ahead", (AHEAD, AHEAD + " + 1"), INTERLEAVED),
        ("all ahead", (AHEAD, "len(forward)"), INTERLEAVED),
        ("no stage", (FORWARD, 'forward.append(f"F{i}")'), INTERLEAVED),
        ("forwards left out", ("forward[ahead + k : ahead + k + 1]", "forward[ahead + k : ahead + k]"), INTERLEAVED),
        ("the library's", "from distlearn.parallel.pipeline.schedule import interleaved", INTERLEAVED),
        ("two stages only", (" forward, backward = [], []", " forward, backward, n_virtual = [], [], 2"), INTERLEAVED),
    ],
    "run_stage": [
        ("no stash", ("gradient(i, old)", "gradient(i, w)"), STAGE),
        ("onto the old weights", ("w = w - lr", "w = old - lr"), STAGE),
        ("in place", ("w = w - lr * gradient(i, old)", "w -= lr * gradient(i, old)"), STAGE),
        ("an alias", (KEPT, ALIAS), STAGE),
        ("one digit", ("int(action[1:])", "int(action[1])"), STAGE),
        ("uphill", ("w = w - lr", "w = w + lr"), STAGE),
        ("no rate", ("w - lr * gradient", "w - gradient"), STAGE),
        ("versions used, not stale", ("staleness.append(version - used)", "staleness.append(used)"), STAGE),
        (
            "counts its own update",
            (
                "staleness.append(version - used)\n            version += 1",
                "version += 1\n            staleness.append(version - used)",
            ),
            STAGE,
        ),
        ("the newest is forgotten", (" | {version}", ""), STAGE),
        ("in flight", ("len({used for used, _ in kept.values()} | {version})", "len(kept)"), STAGE),
        ("a copy each", ("len({used for used, _ in kept.values()} | {version})", "len(kept) + 1"), STAGE),
        ("by the formula", ("return w, staleness, most", "return w, staleness, 1 + max(staleness)"), STAGE),
        ("in the order of the numbers", ("old = kept.pop(i)", "old = kept.pop(min(kept))"), STAGE),
    ],
    "slow_and_uneven": [
        ("1F1B", (SLOW, "F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 B4 B5"), UNEVEN),
        ("GPipe", (SLOW, "F0 F1 F2 F3 F4 F5 B0 B1 B2 B3 B4 B5"), UNEVEN),
        ("a deadlock", (SLOW, "F0 F1 F2 F3 F4 B5 F5 B1 B2 B3 B4 B0"), UNEVEN),
        ("missing", (SLOW, SLOW.replace(" B5", "")), UNEVEN),
        ("one at a time", (STAGE_1, " ".join(f"1F{i} 1B{i}" for i in range(6))), UNEVEN),
        ("all forward first", (STAGE_1, " ".join(f"1{k}{i}" for k in "FB" for i in range(6))), UNEVEN),
        ("the wrong stage", (STAGE_1, STAGE_1.replace("1F", "2F").replace("1B", "2B")), UNEVEN),
        ("two stages", (STAGE_1, STAGE_1 + " " + " ".join(f"3F{i} 3B{i}" for i in range(6))), UNEVEN),
        ("split", (STAGE_1, STAGE_1.replace("1B5", "1I5 1W5")), UNEVEN),
        ("puzzle 3 not written", (" uneven_stages():\n", " uneven_stages():\n    raise NotImplementedError\n"), UNEVEN),
    ],
    "halved": [
        ("W first", ("F0 F1 F2 F3 I0 W0 F4", "F0 F1 F2 F3 W0 I0 F4"), HALVED),
        ("whole", (" I0 F1 I1 F2 I2 W2 W1 W0 F3 I3 F4 I4 F5 I5 W4 W5 W3", " B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5"), HALVED),
        ("W never", ("F5 I5 W4 W5 W3", "F5 I5 W4 W5"), HALVED),
        (
            "at once",
            ("F0 I0 F1 I1 F2 I2 W2 W1 W0 F3 I3 F4 I4 F5 I5 W4 W5 W3", " ".join(f"F{i} I{i} W{i}" for i in range(6))),
            HALVED,
        ),
        ("too much memory", (" F1 I1 F2 I2 W2 W1 W0 F3 I3 F4 I4 F5 ", " F1 I1 F2 I2 F3 I3 W0 W1 W2 F4 I4 F5 "), HALVED),
        ("in one", ("0I2 0W2 0I3 0W3", "0B2 0B3"), HALVED),
        ("puzzle 5 not written", (" less_of_both():\n", " less_of_both():\n    raise NotImplementedError\n"), HALVED),
        ("whole beside halves", ("0F2 0I0 0W0 0I1", "0F2 0B0 0I0 0W0 0I1"), HALVED),
        ("a stage left out", ("2F0 3F0 2F1", "2F0 2F1"), HALVED),
    ],
}
