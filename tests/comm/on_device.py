"""The communicator contract for arrays on a device: it is written with NumPy arrays, this moves them there and back."""

import numpy as np

from distlearn.comm.base import Communicator
from distlearn.nn.costs.count import MockDeviceArray

ARRAYS = ("send", "recv", "isend", "irecv", "send_recv", "all_reduce", "iall_reduce", "reduce_scatter",
          "ireduce_scatter", "all_gather", "iall_gather", "broadcast", "scatter", "gather", "all_to_all")  # fmt: skip
OTHERS = ("rank", "size", "clock", "report", "send_obj", "recv_obj", "barrier", "broadcast_obj", "gather_obj",
          "timeout", "agreement", "n_tags", "abort")  # fmt: skip


class Converted(Communicator):
    """A communicator whose arrays are converted on the way in and out.

    `give(array, name of the call)` makes what `comm` gets, `take(array)` the caller's kind of what it returns, and
    `back(array, given)` brings what it wrote into `given` to the caller's array.
    """

    def __init__(self, comm, give, take, back=lambda array, given: None):
        self.comm, self._how = comm, (give, take, back)
        for name in OTHERS:
            setattr(self, name, getattr(comm, name))
        for name in ARRAYS:
            setattr(self, name, self._converted(name))

    def _converted(self, name):
        give, take, back = self._how

        def call(*args, **kwargs):
            given = [give(a, name) for a in args]

            def result(found):
                for array, new in zip(args, given, strict=True):
                    if new is not array:
                        back(array, new)
                    if found is new and new is not None:
                        found = array
                return take(found)

            found = getattr(self.comm, name)(*given, **kwargs)
            return Later(found, result) if name.startswith("i") else result(found)

        return call

    def split(self, color, key=0):
        part = self.comm.split(color, key)
        return None if part is None else Converted(part, *self._how)


class Later:
    """A `Work` whose result is converted."""

    def __init__(self, work, convert):
        self._work, self._convert = work, convert
        self.done = work.done

    def wait(self):
        return self._convert(self._work.wait())


def on_strict(comm):
    """Let a communicator work on strict arrays, which share the memory of the caller's."""
    return Converted(
        comm,
        lambda a, name: MockDeviceArray(a) if isinstance(a, np.ndarray) else a,
        lambda a: a._array if isinstance(a, MockDeviceArray) else a,
    )


def off_strict(comm):
    """Let strict arrays pass through a communicator that knows NumPy's alone, as MPIComm passes a GPU's through."""
    return Converted(
        comm,
        lambda a, name: a._array if isinstance(a, MockDeviceArray) else a,
        lambda a: MockDeviceArray(a) if isinstance(a, np.ndarray) else a,
    )


def on_gpu(comm):
    """Let a communicator work on copies on this rank's GPU; what it must refuse (gaps, read-only) stays NumPy's."""
    import cupy

    def give(a, name):
        moves = isinstance(a, np.ndarray) and a.dtype.kind in "iufcb" and a.flags.c_contiguous
        return cupy.asarray(a) if moves and (a.flags.writeable or name == "broadcast") else a

    def back(a, given):
        if a.flags.writeable:
            a[...] = given.get()

    return Converted(comm, give, lambda a: a.get() if isinstance(a, cupy.ndarray) else a, back)
