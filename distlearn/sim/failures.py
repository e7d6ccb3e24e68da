"""Failures as parameters of a simulated world, and the parts of the simulator that apply them."""

from __future__ import annotations

import math
import pickle
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..bounds import check_number
from ..comm.base import CutOffError, PeerLostError
from ..comm.calls import ANY, check_report
from ..trace import Span
from .communicator import SimComm
from .scheduler import Fibre, GreenletExit, Scheduler
from .transport import Channel, CollectiveCall, Event, ObjectRecvOp, ObjectSendOp, RecvOp, SendOp, Transport

# -- events ------------------------------------------------------------------------------------------------------------
# What a simulated rank can wait for only in a world with failures.


class Vanished(Exception):
    """A message that will never be received."""


def abandon(event) -> None:
    """Withdraw a send or a receive that is no longer waited for: a later message must not end up in its buffer."""
    if event.__class__ is RecvOp and event in event.channel.recvs:
        event.channel.recvs.remove(event)
    elif event.__class__ is SendOp and event in event.channel.sends:
        event.channel.sends.remove(event)


def check(problem: Exception | None) -> None:
    """Raise an error, if there is one."""
    if problem is not None:
        raise problem


# -- schedule ----------------------------------------------------------------------------------------------------------
# Failures as parameters of a simulated world: which rank fails when, how, and for how long.
#
# Three kinds: a rank is *killed* (its process ends), *hangs* (it runs no further, as under SIGSTOP), or is *cut* off
# (it runs, but no message reaches it or leaves it). A failure shorter than the detection time is only a delay, which no
# rank notices. After a longer one the detector reports the rank as lost; this is final, even if the rank recovers: it
# would otherwise continue work that the others have abandoned. A slow rank is no failure: `SimWorld(slowdown=)`.
#
# There is one detector for all ranks, like a cluster manager: it never errs, all ranks learn of a loss at the same
# moment, and a rank that is cut off from the others is cut off from the detector too, and so knows that it is lost.

KINDS = ("kill", "hang", "cut")


@dataclass(frozen=True)
class Failure:
    """One failure of one rank of a simulated world: `Failure(2, at=3.5, kind="hang", until=4.0)`.

    Examples
    --------
    >>> from distlearn.comm import PeerLostError
    >>> from distlearn.sim import SimWorld
    >>> def survive(comm):
    ...     total = np.zeros(1)
    ...     try:
    ...         while True:
    ...             comm.clock.sleep(1.0)
    ...             comm.all_reduce(total)
    ...     except PeerLostError as error:
    ...         return error.ranks, round(comm.clock.now(), 3)
    >>> SimWorld(3, failures=[Failure(rank=1, at=2.5)], detection=1.0).run(survive)
    [((1,), 3.5), None, ((1,), 3.5)]
    """

    rank: int
    at: float  # when it begins [virtual s]
    kind: str = "kill"
    until: float = math.inf  # when it ends [s]; a kill never does

    def __post_init__(self):
        if self.kind not in KINDS:
            raise ValueError(f"Failure: kind is {self.kind!r}, expected one of {', '.join(KINDS)}")
        check_number("Failure", whole=True, least=0, rank=self.rank)
        check_number("Failure", least=0, at=self.at)
        check_number("Failure", above=self.at, until=self.until)

    def is_noticed(self, detection: float) -> bool:
        return self.kind == "kill" or self.until - self.at > detection


class Loss(NamedTuple):
    """A rank that was declared lost: kind and time of its failure, and the time at which the others noticed [s]."""

    rank: int
    kind: str
    at: float
    noticed: float

    def __str__(self) -> str:
        done = {"kill": "was killed", "hang": "hung", "cut": "was cut off"}[self.kind]
        return f"rank {self.rank} {done} at {self.at:.6g} s"


class FailureTimeline:
    """The failure timeline of one rank: the times of everything that will go wrong on it."""

    def __init__(self, rank: int, failures: Iterable[Failure] = (), detection: float = 1.0):
        mine = sorted((f for f in failures if f.rank == rank), key=lambda f: f.at)
        noticed = [f for f in mine if f.is_noticed(detection)]
        self.rank = rank
        self.loss = Loss(rank, noticed[0].kind, noticed[0].at, noticed[0].at + detection) if noticed else None
        self.lost_at = self.loss.at if self.loss else math.inf
        self.noticed_at = self.loss.noticed if self.loss else math.inf
        gone = [f.at for f in mine if f.kind == "kill" or (f.kind == "hang" and f.until == math.inf)]
        self.ends_at = min(gone, default=math.inf)
        self.pauses = [(f.at, f.until) for f in mine if f.kind == "hang" and f.until < math.inf]
        self.cuts = [(f.at, f.until) for f in mine if f.kind == "cut"]

    def apply(self, fibre: Fibre) -> None:
        """End the rank's fibre if the rank has been killed by now; move its clock on to the end of a hang."""
        if fibre.now >= self.ends_at:
            fibre.now = self.ends_at
            raise GreenletExit
        for start, end in self.pauses:
            if start <= fibre.now < end:
                fibre.now = end

    def finish(self, start: float, seconds: float) -> float:
        """Return when work of this many seconds that begins at `start` is done, or when the rank ends."""
        now, left = start, seconds
        for begin, end in self.pauses:
            if begin < now + left and now < end:
                left -= max(0.0, begin - now)
                now = end
        return min(now + left, self.ends_at)


# -- transport ---------------------------------------------------------------------------------------------------------
# The simulator's transport in a world where ranks fail: which messages arrive, and who notices a loss.
#
# Everything follows from the ranks' failure timelines, which are known from the start. A message that its sender can
# no longer send, or that would arrive after its receiver was lost, vanishes. A rank that waits for a lost one is
# woken when the failure detector reports the loss, and raises `PeerLostError`. A collective during which a rank is
# lost succeeds on some of the others and fails on the rest (drawn from the seed), as on real networks: recovery must
# not rely on anything better.


class FaultyTransport(Transport):
    """The state that simulated ranks share in a world with failures."""

    def __init__(self, world, scheduler: Scheduler):
        super().__init__(world, scheduler)
        self.timelines = [FailureTimeline(r, world.failures, world.detection) for r in range(world.size)]
        for fibre, timeline in zip(scheduler.fibres, self.timelines, strict=True):
            fibre.failures = timeline
        scheduler.monitor = self._watch
        self.plain = False  # the network must be asked for every message
        self.known: dict[tuple[int, int], set[int]] = {}  # (context, rank) -> lost ranks that recv_obj has reported
        self._n_partial = 0

    @property
    def losses(self) -> list[Loss]:
        end = max(fibre.now for fibre in self.scheduler.fibres)
        return sorted((f.loss for f in self.timelines if f.lost_at <= end), key=lambda loss: (loss.at, loss.rank))

    def check_empty(self) -> None:
        """Raise for messages that were never received, but only if no rank was lost."""
        ranks = zip(self.timelines, self.scheduler.fibres, strict=True)
        if not any(timeline.lost_at <= fibre.now for timeline, fibre in ranks):
            super().check_empty()

    # -- messages that arrive ------------------------------------------------------------------------------------------
    def _travel(self, fibre: Fibre, channel: Channel, nbytes: int) -> float:
        """Route a message through the network; return when it arrives."""
        arrival = super()._travel(fibre, channel, nbytes)
        timelines = self.timelines[channel.sender], self.timelines[channel.receiver]
        for start, end in timelines[0].cuts + timelines[1].cuts:
            if start <= arrival and fibre.now < end < math.inf:  # retransmitted until the link is back
                arrival = max(arrival, end + arrival - fibre.now)
        if arrival >= timelines[1].lost_at or fibre.now >= timelines[0].lost_at:
            raise Vanished
        return arrival

    def send(self, fibre: Fibre, channel: Channel, x):
        """Send `x`, as in a world without failures if it gets through."""
        self.enter(fibre)
        try:
            return super().send(fibre, channel, x)
        except Vanished:
            return fibre.now if x.nbytes <= self.eager_limit else SendOp(fibre, channel, x, math.inf)

    def receive(self, fibre: Fibre, channel: Channel, out):
        """Receive into `out`; messages that a lost rank sent before may still arrive."""
        self.enter(fibre)
        return super().receive(fibre, channel, out)

    def complete(self, event, when: float, fibre: Fibre) -> None:
        """Set the time of `event` for `fibre`, unless it is a collective that failed for it."""
        if event.__class__ is CollectiveCall:
            if event.failed_ranks is None:
                event.failed_ranks = self._failed_ranks(event, when)
            if fibre.rank in event.failed_ranks:
                event.when = when
                return
        super().complete(event, when, fibre)

    def _failed_ranks(self, call: CollectiveCall, when: float) -> set[int]:
        """Return the ranks on which a collective that would end at `when` fails."""
        lost = {member.rank for member in call.members if self.timelines[member.rank].lost_at < when}
        if not lost:
            return lost
        self._n_partial += 1
        coins = np.random.default_rng([self.world.seed, self._n_partial]).integers(2, size=len(call.members))
        return lost | {member.rank for member, coin in zip(call.members, coins, strict=True) if coin}

    # -- who notices ---------------------------------------------------------------------------------------------------
    def enter(self, fibre: Fibre) -> None:
        """Begin an operation; raise if the rank is dead or cut off."""
        # its messages are lost at once, but it knows only after the detection time
        fibre.failures.apply(fibre)
        timeline = self.timelines[fibre.rank]
        if timeline.lost_at <= fibre.now < timeline.noticed_at:
            self.scheduler.yield_until(fibre, timeline.noticed_at)
        check(self._cut_off(fibre))

    def refuse_lost(self, fibre: Fibre, context: int) -> None:
        """Raise if a member of the communicator is known to be lost: a collective could never end."""
        check(self._peer_lost(fibre, context, self._groups[context]))

    def wait_for(self, fibre: Fibre, event) -> None:
        """Block the fibre until `event` has happened."""
        if isinstance(event, Event):
            while self._is_pending(fibre, event):
                problem = self.problem(fibre, event)
                if problem is not None:
                    abandon(event)
                    raise problem
                self.block(fibre, event)
            if event.when > fibre.now:
                fibre.now = event.when
            fibre.failures.apply(fibre)
        super().wait_for(fibre, event)

    def listen(self, fibre: Fibre, event: ObjectRecvOp) -> None:
        """Block until an object has arrived; raise once for every lost rank that might have sent it."""
        self.enter(fibre)
        arrived = False
        while not arrived:
            problem = self.problem(fibre, event)
            if problem is not None and min(self.arrivals(event), default=math.inf) > fibre.now:
                if isinstance(problem, PeerLostError) and event.source == ANY:
                    self.known.setdefault((event.context, fibre.rank), set()).update(problem.ranks)
                raise problem
            super().listen(fibre, event)
            arrived = min(self.arrivals(event), default=math.inf) <= fibre.now

    def _is_pending(self, fibre: Fibre, event) -> bool:
        return event.when is None or (event.__class__ is CollectiveCall and fibre.rank in event.failed_ranks)

    def problem(self, fibre: Fibre, event) -> Exception | None:
        """Return why the event will never happen for this fibre, as far as that is known by now."""
        reported = set()  # lost ranks that were reported to the fibre, which no longer waits for them
        if event.__class__ is ObjectRecvOp and event.source == ANY:
            reported = self.known.get((event.context, fibre.rank), reported)
        return self._cut_off(fibre) or self._peer_lost(fibre, event.context, self._needed(event), reported)

    def _needed(self, event):
        """Return the ranks of the world without which an event cannot happen."""
        if event.__class__ is RecvOp:
            return [event.channel.sender]
        if isinstance(event, SendOp):
            return [event.channel.receiver]
        ranks = self._groups[event.context]
        return ranks if event.__class__ is CollectiveCall or event.source == ANY else [ranks[event.source]]

    def _cut_off(self, fibre: Fibre) -> CutOffError | None:
        timeline = self.timelines[fibre.rank]
        if fibre.now < timeline.noticed_at:
            return None
        return CutOffError(f"{timeline.loss}: the others have continued without it since {timeline.noticed_at:.6g} s")

    def _peer_lost(self, fibre: Fibre, context: int, needed, reported=frozenset()) -> PeerLostError | None:
        ranks = self._groups[context]
        lost = [i for i, r in enumerate(ranks) if self.timelines[r].noticed_at <= fibre.now and i not in reported]
        if not any(ranks[i] in needed for i in lost):
            return None
        stories = "; ".join(str(self.timelines[ranks[i]].loss) for i in lost)
        return PeerLostError(lost, f"rank {ranks.index(fibre.rank)} has lost its peers: {stories}")

    def _watch(self, monitor: Fibre) -> None:
        """Wake each rank at the time at which it ends, and all ranks when a loss is noticed."""
        fibres = self.scheduler.fibres
        moments = {t for timeline in self.timelines for t in (timeline.ends_at, timeline.noticed_at) if t < math.inf}
        for when in sorted(moments):
            self.scheduler.yield_until(monitor, when)
            if all(fibre.greenlet.dead for fibre in fibres):
                return
            for fibre, timeline in zip(fibres, self.timelines, strict=True):
                if timeline.ends_at <= when and fibre.waits is not None:
                    self.wake(fibre, when)
            self._notify(when)

    def _notify(self, when: float) -> None:
        """Wake the fibres that wait for something that a loss, noticed at `when`, has made impossible."""
        for timeline in self.timelines:
            if timeline.noticed_at == when:
                self.trace.spans.append(Span(timeline.rank, "failure", timeline.loss.kind, timeline.lost_at, when))
        for fibre in self.scheduler.fibres:
            event = fibre.waits
            if isinstance(event, Event) and self._is_pending(fibre, event):
                now, fibre.now = fibre.now, max(fibre.now, when)
                hopeless = self.problem(fibre, event) is not None
                fibre.now = now
                if hopeless:
                    self.scheduler.wake(fibre, max(now, when))


# -- communicator ------------------------------------------------------------------------------------------------------
# A simulated rank's communicator in a world where ranks fail.


class FaultyComm(SimComm):
    """A simulated rank's `Communicator`, whose operations raise where ranks that they need are lost."""

    def report(self, step, total, **values):
        """Pass on the progress of the lowest surviving rank."""
        check_report(self.rank, step, total)
        transport, fibre = self._transport, self._fibre
        transport.enter(fibre)  # a rank alone may make no other call
        first = next(r for r, timeline in enumerate(transport.timelines) if timeline.noticed_at > fibre.now)
        if fibre.rank == first and transport.world.report:
            transport.world.report(step, total, **values)

    def _meet(self, call, payload, nbytes, finish):
        """Join the next collective, unless it can no longer succeed."""
        self._transport.enter(self._fibre)
        self._transport.refuse_lost(self._fibre, self._context)
        return super()._meet(call, payload, nbytes, finish)

    def _send_obj(self, obj, dest, tag):
        transport, fibre = self._transport, self._fibre
        transport.enter(fibre)
        try:
            super()._send_obj(obj, dest, tag)
        except Vanished:
            data = pickle.dumps(obj, protocol=5)
            if len(data) > transport.eager_limit:
                channel = transport.channel(self, self.rank, dest, tag)
                transport.wait_for(fibre, ObjectSendOp(fibre, channel, data, math.inf))

    def _poll(self, event) -> None:
        """Let the time of one poll pass; raise if the event will never happen."""
        super()._poll(event)
        check(self._transport.problem(self._fibre, event) if event.when is None else None)
