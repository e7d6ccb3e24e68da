"""Wrong answers to lab 06's exercise that is checked by hand."""

SUM = "[sum(comm.recv_obj(rank) for rank in range(1, comm.size)) for _ in range(2)]"
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

MUTANTS = {
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
}
