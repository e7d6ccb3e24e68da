"""The order of basic blocks, on graphs small enough to read."""

from distlearn.cuda.emulator.assembly import order_blocks, read_flow, weak_order


def test_blocks_in_a_row_share_a_hook():
    lines = ["call x", "a:", "jne b", "b:", "ret"]
    flow = [("block", 0), ("flops", 1), ("block", 1), ("flops", 2), *read_flow(lines[1]), ("block", 2), ("leave",)]
    blocks = order_blocks(flow)
    assert [(hook, block.flops) for hook, block in blocks.items()] == [(0, 3)]


def test_an_error_is_no_way_on():
    flow = [("block", 0), ("jump", "bad", False), ("block", 1), ("leave",), ("label", "bad"), ("block", 2), ("error",)]
    assert set(order_blocks(flow)) == {0, 2}


def test_nested_loops():
    # 1 enters the outer loop 2, which holds the inner loop 3-4; 5 goes round; 6 follows
    graph = {1: [2], 5: [2, 6], 4: [3, 5], 3: [4, 5], 2: [3], 6: []}
    assert weak_order({n: graph[n] for n in (1, 5, 4, 3, 2, 6)}) == [1, 2, 3, 4, 5, 6]
