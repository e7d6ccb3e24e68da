"""The state of a run with ZeRO: what the ranks keep in parts, put together for a checkpoint, and dealt again."""

from __future__ import annotations

from ...backend import get_xp, to_numpy
from ...optim.rule import memory_of
from ..checkpoint.state import check_names, serial_part, whole, write


class ZeROState:
    """ZeRO's half that checkpoints need: the state of the serial model out of the ranks' parts, and back.

    Notes
    -----
    `gather_state` is one gather of every group's parameters, and one for each array of the optimizer's memory;
    `put_state` sends nothing.
    """

    checkpointable = True

    def _parts(self):
        """Yield (group, pattern of the names, this rank's part) for parameters and the optimizer's memory."""
        states = {id(p): state for p, state in zip(self.optimizer.params, self.optimizer.states, strict=True)}
        for group in self.groups:
            state = states[id(group.own)]
            yield group, "param/{}", group.own.data
            for i, own in enumerate(memory_of(state)):
                yield group, f"optimizer/{{}}/{i}", own

    def _take_memory_of(self, optimizer) -> None:
        """Take this rank's part of the memory that the serial model's optimizer has."""
        memory = {p.name: memory_of(state) for p, state in zip(optimizer.params, optimizer.states, strict=True)}
        states = {id(p): state for p, state in zip(self.optimizer.params, self.optimizer.states, strict=True)}
        for group in self.groups:
            for i, own in enumerate(memory_of(states[id(group.own)])):
                values = {}
                for p in group.params:
                    values[p.name] = whole = to_numpy(memory[p.name][i])
                    if whole.shape != p.data.shape:
                        raise ValueError(
                            f"ZeRO: the optimizer's memory of {p.name!r} has shape {whole.shape}, expected the "
                            f"parameter's {p.data.shape}: other shapes cannot be sharded with it"
                        )
                own[...] = get_xp(own).asarray(group.flatten(values)[group.mine])

    def own_state(self) -> dict:
        """Return what this rank keeps; parts of whole groups, named after their first parameter."""
        frozen = {f"param/{p.name}": p.data for p in self._whole}
        return frozen | {pattern.format(group.params[0].name): own for group, pattern, own in self._parts()}

    def gather_state(self) -> dict | None:
        """Return the whole state in the serial model's shapes on rank 0, None elsewhere; every rank must call."""
        found = {f"param/{p.name}": to_numpy(p.data).copy() for p in self._whole}
        for group, pattern, own in self._parts():
            for name, array in (group.collect(own) or {}).items():
                found[pattern.format(name)] = to_numpy(array).copy()
        return None if self.rank else found

    def put_state(self, arrays: dict) -> None:
        """Take this rank's part of a state; nothing is changed if it is that of another model."""
        arrays, parts = serial_part(arrays), list(self._parts())
        names = [pattern.format(p.name) for group, pattern, _ in parts for p in group.params]
        check_names(arrays, names + [f"param/{p.name}" for p in self._whole])
        pairs = [(p.data, whole(arrays, f"param/{p.name}", p.data.shape, p.data.dtype)) for p in self._whole]
        for group, pattern, own in parts:
            values = {p.name: whole(arrays, pattern.format(p.name), p.data.shape, own.dtype) for p in group.params}
            flat = group.flatten(values)
            pairs.append((own, flat[group.mine]))
            if own is group.own.data and group.full is not None:
                pairs.append((group.full, flat))
        write(pairs)
