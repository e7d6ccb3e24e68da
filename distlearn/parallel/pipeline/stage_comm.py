"""Messages between the stages of a pipeline: activations forward, gradients backward, without deadlocks.

Sends never block: `isend` starts when an array is ready, and is waited for once the array must have been received.
Receives are posted one action ahead, in the schedule's order. So a rank waits only for data that it needs, and any
schedule that passes `check_schedule` completes even if every send is synchronous.
"""

from __future__ import annotations

from .schedule import Action, Schedule


class StageComm:
    """The messages of one step on one rank; each is named by the action that consumes it."""

    def __init__(self, comm, schedule: Schedule, shape_of, xp, position=None):
        self.comm, self.schedule, self.shape_of, self.xp = comm, schedule, shape_of, xp
        self.position = schedule.place.__getitem__ if position is None else position
        self._kept: dict[Action, object] = {}  # arrays that stay on this rank
        self._receives: dict[Action, object] = {}  # under way
        self._sends: dict[int, list] = {}  # peer -> [(consumer, work)]

    def _tag(self, consumer: Action) -> int:
        """A unique tag for every message: a schedule may send micro-batches in any order."""
        return 2 * (consumer.microbatch * self.schedule.n_stages + consumer.stage) + (consumer.kind != "F") + 1

    def post_recv(self, consumer: Action) -> None:
        """Start to receive what an action consumes, if it comes from another rank."""
        producer = self.schedule.producer(consumer)
        source = self.comm.rank if producer is None else self.schedule.rank_of(producer.stage)
        if source != self.comm.rank and consumer not in self._receives:
            shape, dtype = self.shape_of(consumer)
            self._receives[consumer] = self.comm.irecv(self.xp.empty(shape, dtype), source, self._tag(consumer))

    def recv(self, consumer: Action):
        """Return the array that an action consumes."""
        if consumer in self._kept:
            return self._kept.pop(consumer)
        self.post_recv(consumer)
        x = self._receives.pop(consumer).wait()
        # The peer ran the producer after everything before it in its order, so it has received that: these
        # sends are complete, and waiting for them returns at once.
        producer = self.schedule.producer(consumer)
        peer, reached = self.schedule.rank_of(producer.stage), self.position(producer)
        under_way = []
        for sent_to, work in self._sends.get(peer, ()):
            if self.position(sent_to) <= reached:
                work.wait()
            else:
                under_way.append((sent_to, work))
        self._sends[peer] = under_way
        return x

    def keep(self, consumer: Action, x) -> None:
        """Keep an array for an action of this rank."""
        self._kept[consumer] = x

    def send(self, consumer: Action, x) -> None:
        """Send an array to the rank of the action that consumes it."""
        dest = self.schedule.rank_of(consumer.stage)
        if dest == self.comm.rank:
            self._kept[consumer] = x
            return
        work = self.comm.isend(self.xp.ascontiguousarray(x), dest, self._tag(consumer))
        self._sends.setdefault(dest, []).append((consumer, work))

    def finish(self) -> None:
        """Wait until everything has been received."""
        for sends in self._sends.values():
            for _, work in sends:
                work.wait()
        self._sends.clear()


def agree_on_boundaries(comm, stages, rank_of: list[int], x) -> list:
    """Find shape (of a sample) and dtype of each stage's input and of the last one's output; every rank must call.

    A chain of small messages from the first stage to the last, and a broadcast.
    """
    found = [(tuple(x.shape[1:]), x.dtype)]
    for s, stage in stages.items():
        if s and rank_of[s - 1] != comm.rank:
            found = comm.recv_obj(rank_of[s - 1])
        shape, dtype = found[-1]
        learned = [p.data.dtype for p in stage.params]
        found = [*found, (tuple(stage.output_shape((1, *shape))[1:]), learned[-1] if learned else dtype)]
        if s + 1 < len(rank_of) and rank_of[s + 1] != comm.rank:
            comm.send_obj(found, rank_of[s + 1])
    return comm.broadcast_obj(found, rank_of[-1])
