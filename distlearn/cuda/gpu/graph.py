"""A step captured in a CUDA graph: what it launches on a GPU is recorded once and then replayed by one call.

A small model's step is dozens of kernels of a few microseconds each, and Python takes longer to launch one than the
card to run it. A replay launches all of them at once.
"""

from __future__ import annotations

import contextlib

from distlearn.backend import gpu_matmul
from distlearn.cuda.gpu.blas import Blas


class Captured:
    """What a function launched; calling it launches the same again.

    Attributes
    ----------
    result : object
        What the function returned when it was captured. Every replay overwrites its arrays.
    """

    def __init__(self, graph, stream, result, kept):
        self._graph, self._stream, self.result = graph, stream, result
        self._kept = kept  # memory that the graph's kernels read and write

    def __call__(self):
        """Replay in the order of the current stream: after earlier launches, before later ones.

        Returns
        -------
        result : object
            Always the same arrays; copy what is needed later.
        """
        import cupy

        current = cupy.cuda.get_current_stream()
        self._stream.wait_event(current.record())
        self._graph.launch(self._stream)
        current.wait_event(self._stream.record())
        return self.result


def capture(function, *, warmup: int = 3, cublas=None) -> Captured:
    """Record what `function()` launches on the current GPU.

    The function must do the same at every call: read and write the same arrays, on the GPU alone. What Python computes
    in it (a learning rate, a step count) is computed once and stays. It must not read a value on the host: use
    `nn.loss.softmax_cross_entropy_rows` instead of a loss that returns a float.

    Parameters
    ----------
    function : callable
        Without arguments, such as one training step on a batch whose arrays are refilled between replays.
    warmup : int
        Real calls before the capture, which compile kernels and find memory. If the function trains, these are steps.
        The capture itself computes nothing.
    cublas : object, optional
        cuBLAS's functions, for tests.

    Returns
    -------
    Captured

    Raises
    ------
    RuntimeError
        If the function does what cannot be captured; the original error says what.

    References
    ----------
    NVIDIA, CUDA C++ Programming Guide, section "CUDA Graphs", "Creating a Graph Using Stream Capture".
    """
    import cupy

    if warmup < 1:
        raise ValueError(f"capture: warmup is {warmup!r}, expected 1 or more: nothing may be compiled while capturing")
    pool, stream = cupy.cuda.MemoryPool(), cupy.cuda.Stream(non_blocking=True)
    stream.wait_event(cupy.cuda.get_current_stream().record())
    # A separate pool: memory that the function frees still belongs to the graph and must not be reused.
    with cupy.cuda.using_allocator(pool.malloc), stream:
        blas = Blas(cupy, stream, cublas)
        token = gpu_matmul.set(blas.matmul)
        try:
            for _ in range(warmup):
                function()
            stream.synchronize()
            graph, result = _record(function, stream)
        finally:
            gpu_matmul.reset(token)
    return Captured(graph, stream, result, (pool, blas))


def _record(function, stream):
    stream.begin_capture()
    try:
        result = function()
    except Exception as error:
        with contextlib.suppress(Exception):  # the capture is invalid; that error would hide the original one
            stream.end_capture()
        raise RuntimeError(f"the function cannot be captured: {type(error).__name__}: {error}") from error
    return stream.end_capture(), result
