"""Wrong answers to lab 10."""

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
        ("GPipe", FIRST_ROW, "F0 F1 F2 F3 B0 B1 B2 B3"),
        ("too slow", FIRST_ROW, "F0 F1 B0 F2 B1 F3 B2 B3"),
        ("an action missing", LAST_ROW, "F0 B0 F1 B1 F2 B2 F3"),
        ("twice", LAST_ROW, "F0 B0 F1 B1 F2 B2 F3 B3 B3"),
        ("a deadlock", FIRST_ROW, "F0 F1 B1 F2 B0 F3 B2 B3"),
        ("backward first", LAST_ROW, "B0 F0 F1 B1 F2 B2 F3 B3"),
        ("two ranks", f"    {LAST_ROW}\n", ""),
        ("one at a time", f'def half_the_memory():\n    return "\\n".join(["{LAST_ROW}"] * 3)'),
        ("halves", LAST_ROW, "F0 I0 W0 F1 I1 W1 F2 I2 W2 F3 I3 W3"),
        ("no text", "def half_the_memory():\n    return 18"),
        ("nothing", "def half_the_memory():\n    pass"),
        ("a name", 'def half_the_memory():\n    return "1f1b"'),
    ],
    "generators": [
        ("backward first", 'for kind in "FB"', 'for kind in "BF"'),
        ("GPipe turns round", ' f"{kind}{i}', " f\"{kind}{i if kind == 'F' else n_microbatches - 1 - i}"),
        ("one too many ahead", "min(n_stages - 1 - stage", "min(n_stages - stage"),
        ("turned round", "n_stages - 1 - stage", "stage"),
        ("nothing ahead", "min(n_stages - 1 - stage, n_microbatches)", "0"),
        ("the last forwards are missing", " + ahead < n_microbatches:", " + ahead < n_microbatches - 1:"),
        ("more than there are", "if i + ahead < n_microbatches:", "if True:"),
        (
            "backward before the turn's forward",
            '        if i + ahead < n_microbatches:\n            yield f"F{i + ahead}"\n        yield f"B{i}"',
            '        yield f"B{i}"\n        if i + ahead < n_microbatches:\n            yield f"F{i + ahead}"',
        ),
        ("few micro-batches forgotten", "min(n_stages - 1 - stage, n_microbatches)", "n_stages - 1 - stage"),
        ("the library's", "from distlearn.parallel.pipeline.schedule import gpipe, one_f_one_b"),
        ("numbers from 1", 'yield f"B{i}"', 'yield f"B{i + 1}"'),
        ("pairs", 'yield f"B{i}"', 'yield ("B", i)'),
        ("three stages only", "min(n_stages - 1 - stage", "min(2 - stage"),
    ],
    "predicted": [
        ("no interleaving", "(n_ranks - 1) / n_virtual", "n_ranks - 1"),
        ("p, not p - 1", "(n_ranks - 1) / n_virtual", "n_ranks / n_virtual"),
        ("times v", "(n_ranks - 1) / n_virtual", "(n_ranks - 1) * n_virtual"),
        ("over the work", TIME, TIME.replace("fill / (n_microbatches + fill)", "fill / n_microbatches")),
        ("no backward", TIME, TIME.replace("(forward + backward)", "forward")),
        (
            "fills only",
            TIME,
            TIME.replace(
                "(n_microbatches + fill) * (forward + backward)",
                "n_microbatches * (forward + backward) + fill * forward",
            ),
        ),
        ("work only", TIME, TIME.replace("(n_microbatches + fill) *", "n_microbatches *", 1)),
        ("swapped", TIME, "return fill / (n_microbatches + fill), (n_microbatches + fill) * (forward + backward)"),
        ("percent", TIME, TIME.replace("fill / (n_mi", "100 * fill / (n_mi")),
        ("always p", "min(n_ranks - rank, n_microbatches)", "n_ranks"),
        ("never fewer", "min(n_ranks - rank, n_microbatches)", "n_ranks - rank"),
        ("one too few", "min(n_ranks - rank, n_microbatches)", "min(n_ranks - 1 - rank, n_microbatches)"),
        ("one number", "[min(n_ranks - rank, n_microbatches) for rank in range(n_ranks)]", "n_ranks"),
        ("costs of the text", "    fill =", "    forward, backward = 1, 2\n    fill ="),
    ],
    "interleaved": [
        ("first stage first", BACKWARD, BACKWARD.replace("n_virtual - 1 - k", "k")),
        ("neighbouring stages", FORWARD, 'forward.append(f"{rank * n_virtual + k}F{i}")'),
        ("one group", "range(first, first + n_ranks)", "range(first, n_microbatches)"),
        ("1F1B's number ahead", AHEAD, "n_ranks - 1 - rank"),
        ("not the other stages", AHEAD, "2 * (n_ranks - 1 - rank)"),
        ("once, not twice", AHEAD, AHEAD.replace("2 * ", "")),
        ("one more ahead", AHEAD, AHEAD + " + 1"),
        ("all ahead", AHEAD, "len(forward)"),
        ("no stage", FORWARD, 'forward.append(f"F{i}")'),
        ("forwards left out", "forward[ahead + k : ahead + k + 1]", "forward[ahead + k : ahead + k]"),
        ("the library's", "from distlearn.parallel.pipeline.schedule import interleaved"),
        ("two stages only", " forward, backward = [], []", " forward, backward, n_virtual = [], [], 2"),
    ],
    "run_stage": [
        ("no stash", "gradient(i, old)", "gradient(i, w)"),
        ("onto the old weights", "w = w - lr", "w = old - lr"),
        ("in place", "w = w - lr * gradient(i, old)", "w -= lr * gradient(i, old)"),
        ("an alias", KEPT, ALIAS),
        ("one digit", "int(action[1:])", "int(action[1])"),
        ("uphill", "w = w - lr", "w = w + lr"),
        ("no rate", "w - lr * gradient", "w - gradient"),
        ("versions used, not stale", "staleness.append(version - used)", "staleness.append(used)"),
        (
            "counts its own update",
            "staleness.append(version - used)\n            version += 1",
            "version += 1\n            staleness.append(version - used)",
        ),
        ("the newest is forgotten", " | {version}", ""),
        ("in flight", "len({used for used, _ in kept.values()} | {version})", "len(kept)"),
        ("a copy each", "len({used for used, _ in kept.values()} | {version})", "len(kept) + 1"),
        ("by the formula", "return w, staleness, most", "return w, staleness, 1 + max(staleness)"),
        ("in the order of the numbers", "old = kept.pop(i)", "old = kept.pop(min(kept))"),
    ],
    "slow_and_uneven": [
        ("1F1B", SLOW, "F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 B4 B5"),
        ("GPipe", SLOW, "F0 F1 F2 F3 F4 F5 B0 B1 B2 B3 B4 B5"),
        ("a deadlock", SLOW, "F0 F1 F2 F3 F4 B5 F5 B1 B2 B3 B4 B0"),
        ("missing", SLOW, SLOW.replace(" B5", "")),
        ("one at a time", STAGE_1, " ".join(f"1F{i} 1B{i}" for i in range(6))),
        ("all forward first", STAGE_1, " ".join(f"1{k}{i}" for k in "FB" for i in range(6))),
        ("the wrong stage", STAGE_1, STAGE_1.replace("1F", "2F").replace("1B", "2B")),
        ("two stages", STAGE_1, STAGE_1 + " " + " ".join(f"3F{i} 3B{i}" for i in range(6))),
        ("split", STAGE_1, STAGE_1.replace("1B5", "1I5 1W5")),
        ("puzzle 3 not written", " uneven_stages():\n", " uneven_stages():\n    raise NotImplementedError\n"),
    ],
    "halved": [
        ("W first", "F0 F1 F2 F3 I0 W0 F4", "F0 F1 F2 F3 W0 I0 F4"),
        ("whole", " I0 F1 I1 F2 I2 W2 W1 W0 F3 I3 F4 I4 F5 I5 W4 W5 W3", " B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5"),
        ("W never", "F5 I5 W4 W5 W3", "F5 I5 W4 W5"),
        (
            "at once",
            "F0 I0 F1 I1 F2 I2 W2 W1 W0 F3 I3 F4 I4 F5 I5 W4 W5 W3",
            " ".join(f"F{i} I{i} W{i}" for i in range(6)),
        ),
        ("too much memory", " F1 I1 F2 I2 W2 W1 W0 F3 I3 F4 I4 F5 ", " F1 I1 F2 I2 F3 I3 W0 W1 W2 F4 I4 F5 "),
        ("in one", "0I2 0W2 0I3 0W3", "0B2 0B3"),
        ("puzzle 5 not written", " less_of_both():\n", " less_of_both():\n    raise NotImplementedError\n"),
        ("whole beside halves", "0F2 0I0 0W0 0I1", "0F2 0B0 0I0 0W0 0I1"),
        ("a stage left out", "2F0 3F0 2F1", "2F0 2F1"),
    ],
}
