"""The site table and the order of blocks, on assembly small enough to read."""

from distlearn.cuda.emulator.assembly import label_calls, order_blocks, read_flow, weak_order

LOOP = """
	.file 1 "kernel.cu"
	.loc 1 3 7
	call	__sanitizer_cov_trace_pc@PLT
	jmp	.L8
.L5:
	.loc 1 4 2
	call	__sanitizer_cov_trace_pc@PLT
	addl	$1, %ebx
.L8:
	.loc 1 5 9
	call	__sanitizer_cov_trace_pc@PLT
	cmpl	%ebx, %ebp
	jge	.L9
	call	__sanitizer_cov_trace_pc@PLT
	call	__tsan_read4@PLT
	mulss	%xmm1, %xmm0
	jb	.L5
	.file 2 "half.h"
	.loc 2 88 1
	call	__sanitizer_cov_trace_pc@PLT
	addss	%xmm1, %xmm0
	call	expf@PLT
	jmp	.L5
.L9:
	.loc 1 9 1
	call	__sanitizer_cov_trace_pc@PLT
	ret
"""


def test_places_and_operations():
    text, sites = label_calls(LOOP, "linux")
    found = [(s.line, s.column, s.callee.strip("_"), s.flops) for s in sites[1:] if s.callee]
    block = "sanitizer_cov_trace_pc"
    assert found == [
        (3, 7, block, 0),
        (4, 2, block, 0),
        (5, 9, block, 0),
        (5, 9, block, 1),
        (5, 9, "tsan_read4", 0),
        (5, 9, block, 2),  # code of a header belongs to the line that called it
        (5, 9, "expf", 0),
        (9, 1, block, 0),
    ]
    places = text.count(".LEMUP")
    assert text.count(".LEMU") - places == 2 * 8
    assert places == 2 * 4  # one for each line of the kernel, where a signal may come


def test_a_loop_stands_before_what_follows_it_however_it_is_laid_out():
    _, sites = label_calls(LOOP, "linux")
    text, _ = label_calls(LOOP, "linux")
    order = [int(line.split()[1]) for line in text.split("emu_site_order:")[1].split("\t.globl")[0].split("\n") if line]
    by_place = {(s.line, s.flops): order[i] for i, s in enumerate(sites) if "trace_pc" in s.callee}
    start, step, head, body, extra, end = (by_place[k] for k in ((3, 0), (4, 0), (5, 0), (5, 1), (5, 2), (9, 0)))
    assert start < head < body < extra < step < end


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
