"""The state of a training run whose parameters lie on several ranks: put together for a checkpoint, and dealt again."""

from __future__ import annotations

from ..checkpoint.state import live_arrays, param_name, serial_part, whole, write
from .layer import Place, places_of, put_together


class DealtState:
    """Gives a strategy with `comm`, `model`, `names` and `optimizer` the state that checkpoints need.

    Notes
    -----
    `gather_state` sends rank 0 what it does not have, in one gather; `put_state` sends nothing.
    """

    checkpointable = True

    @property
    def _along(self):
        """The communicator over which parameters are dealt."""
        return self.comm

    def _places(self, live) -> dict[str, Place]:
        """Return where arrays of the state lie in the whole, by name; what is not in it is the same on every rank."""
        return state_places(live, places_of(self.model))

    def gather_state(self) -> dict | None:
        """Return the whole state in the serial model's shapes on rank 0, None elsewhere; every rank must call."""
        live = live_arrays(self)
        found = put_together(live, self._places(live), self.comm)
        return None if found is None else {name: array.copy() for name, array in found.items()}

    def put_state(self, arrays: dict) -> None:
        """Take this rank's part of a state; nothing is changed if it is that of another model."""
        arrays, live = serial_part(arrays), live_arrays(self)
        others = {param_name(name) for name in arrays} - set(self.names)
        if others:
            raise ValueError(f"the state is of another model or optimizer: it has {sorted(others)[:3]} more")
        places, pairs = self._places(live), []
        for name, array in live.items():
            axis, cut = places.get(name, Place())
            if axis is None:
                pairs.append((array, whole(arrays, name, array.shape, array.dtype)))
                continue
            shape = (*array.shape[:axis], cut.n, *array.shape[axis + 1 :])
            pairs.append((array, cut.take(whole(arrays, name, shape, array.dtype), self._along.rank, axis)))
        write(pairs)


def state_places(live, places: dict[str, Place]) -> dict[str, Place]:
    """Return the places of the arrays of a state, given those of the parameters; both by name."""
    return {name: places[param] for name in live if (param := param_name(name)) in places}
