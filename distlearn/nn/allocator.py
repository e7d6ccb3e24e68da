"""Keep freed memory in the process, so that NumPy's large arrays cost no page faults at every step.

The C library gives large blocks back to the kernel as soon as they are freed, and the kernel hands out every new page
zeroed, at the first touch of it. A training step that makes and frees a few megabytes then spends more time in page
faults than in arithmetic. With this setting the allocator reuses the same warm memory in the next step:
buffers are recycled without any code in the layers.

The price is that the process never shrinks. DISTLEARN_KEEP_MEMORY=0 in the environment leaves the
allocator alone; on systems without the GNU C library nothing is changed anyway. On GPUs CuPy's memory pool does the
same.
"""

from __future__ import annotations

import ctypes
import functools
import os

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_MAX = -1, -2, -4  # malloc.h


@functools.cache
def keep_memory() -> bool:
    """Tell the C library to keep freed memory for the next allocation; return whether it will.

    It changes the whole process, so nothing here calls it: programs do (`distlearn train`, the benchmarks).
    """
    if os.environ.get("DISTLEARN_KEEP_MEMORY", "1") == "0":
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):  # not the GNU C library
        return False
    settings = {M_MMAP_MAX: 0, M_TRIM_THRESHOLD: 2**31 - 1, M_TOP_PAD: 64 * 2**20}
    return all(mallopt(name, value) == 1 for name, value in settings.items())
