"""What simulated ranks share during a run: letters, posted receives, meetings.

The rule of time: a letter that leaves at t arrives at t + alpha + n / beta, and is received when it has arrived *and*
the receive has been posted; a synchronous send ends at that moment, too. A collective ends one network cost after the
last rank came to its meeting.

A letter, a slot and a meeting are *events*: their attribute `when` is None until it is settled at which virtual time
they happen. A fibre that waits for an event is blocked until then, and woken by whoever settles it.

This is the simulator's innermost loop. Of every message only one half becomes an object: whoever comes first leaves a
letter or a slot in the channel, and the other one, finding it there, computes when it happens and is done. So `send`
and `receive` return the virtual time where it is known, and the event that will know it where it is not.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np

from ..trace import Message
from .events import Channel, Letter, Meeting, Slot, deliver
from .protocol import CommError
from .scheduler import Fibre, Scheduler, Waits

if TYPE_CHECKING:
    from .sim import SimWorld


class Post:
    """What the ranks of one run share: channels, objects under way, meetings."""

    def __init__(self, world: SimWorld, scheduler: Scheduler):
        self.world, self.network, self.scheduler, self.trace = world, world.network, scheduler, world._trace
        self.alpha, self.beta = self.network.alpha, self.network.beta
        self.plain = self.network.plain  # every message costs alpha + n / beta: no need to ask the network
        self.wire: list[tuple] = []  # the fields of a `Message` for each letter so far
        self.record = self.wire.append
        self.channels: dict[tuple, Channel] = {}  # (context, source, dest, tag)
        self.objects = defaultdict(list)  # (context, dest, tag) -> pickled letters
        self.listeners = {}  # (context, dest, tag) -> (fibre, source) blocked in recv_obj
        self.meetings = defaultdict(Meeting)  # (context, sequence number)
        self.contexts = 0
        self.sequence = 0
        self._link_free: dict[tuple, float] = {}  # when a shared link has carried what is on it
        self._dice: dict[int, np.random.Generator] = {}  # for the network's jitter, by sender

    losses = ()

    def new_context(self) -> int:
        """Number a new communicator: messages of different ones never meet."""
        self.contexts += 1
        return self.contexts

    def channel(self, context, source, dest, tag) -> Channel:
        """Return the one channel that both ends share."""
        key = (context, source, dest, tag)
        channel = self.channels.get(key)
        if channel is None:
            channel = self.channels[key] = Channel(source, dest, tag)
        return channel

    def flush(self) -> None:
        """Write the messages so far into the trace."""
        self.trace.messages.extend(map(Message._make, self.wire))
        self.wire.clear()

    # -- the wire ----------------------------------------------------------------------------------------------------
    def launch(self, fibre: Fibre, dest: int, nbytes: int, tag: int) -> float:
        """Put a message on the wire: the sender's network card sends one after another. Return when it arrives."""
        if not self.plain:
            return self._launch(fibre, dest, nbytes, tag)
        start = now = fibre.now
        if fibre.nic_free > start:
            start = fibre.nic_free
        arrival = start + (self.alpha + nbytes / self.beta)
        fibre.nic_free = arrival - self.alpha
        self.record((fibre.rank, dest, nbytes, now, arrival, tag))
        return arrival

    def _launch(self, fibre: Fibre, dest: int, nbytes: int, tag: int) -> float:
        """Put a message on a wire that is not the same for all: the network says which links it takes."""
        network = self.network
        if network.shared:  # links go to whoever comes first, so let everybody whose clock stands earlier come
            self.scheduler.yield_until(fibre, fibre.now)
        latency, seconds, links = network.route(nbytes, fibre.rank, dest)
        if network.jitter:
            factor = self._luck(fibre.rank)
            latency, seconds = latency * factor, seconds * factor
        free = self._link_free
        start = fibre.now
        for link in links:
            start = max(start, free.get(link, 0.0))
        for link in links:
            free[link] = start + seconds
        arrival = start + (latency + seconds)
        self.record((fibre.rank, dest, nbytes, fibre.now, arrival, tag))
        return arrival

    def _luck(self, rank: int) -> float:
        """Draw the next random factor of a rank's messages."""
        dice = self._dice.get(rank)
        if dice is None:
            dice = self._dice[rank] = np.random.default_rng([self.network.seed, rank])
        return float(np.exp(dice.normal(0.0, self.network.jitter)))

    def collective(self, name: str, nbytes: int, ranks: list[int], context: int, seq: int) -> float:
        """Return the seconds of a collective among ranks of the world."""
        network = self.network
        seconds = network.collective(name, nbytes, ranks)
        if network.jitter:
            dice = np.random.default_rng([network.seed, context, seq, len(ranks)])
            seconds *= float(np.exp(dice.normal(0.0, network.jitter)))
        return seconds

    # -- letters and slots -------------------------------------------------------------------------------------------
    def send(self, fibre: Fibre, channel: Channel, dest: int, x, name: str = "send") -> float | Letter:
        """Send `x` to rank `dest` of the world: return when it is received, or the letter that will know."""
        nbytes, tag = x.nbytes, channel.tag
        if self.plain:  # as in `launch`, which would cost a call per message
            start = now = fibre.now
            if fibre.nic_free > start:
                start = fibre.nic_free
            arrival = start + (self.alpha + nbytes / self.beta)
            fibre.nic_free = arrival - self.alpha
            self.record((fibre.rank, dest, nbytes, now, arrival, tag))
        else:
            arrival = self._launch(fibre, dest, nbytes, tag)
        slots = channel.slots
        if not slots:
            letter = Letter(channel.source, fibre, x, nbytes, arrival, (name, channel.dest, tag))
            channel.letters.append(letter)
            return letter
        slot = slots.pop(0)
        when = arrival if arrival > slot.posted else slot.posted
        slot.problem = deliver(x, slot.out)
        slot.when = when
        waiter = slot.waiter
        if waiter.waits is slot:
            self.scheduler.wake(waiter, when if when > waiter.now else waiter.now)
        return when

    def receive(self, fibre: Fibre, channel: Channel, out) -> float | Slot:
        """Receive into `out`: return when the data is there, or the slot that will know."""
        letters = channel.letters
        if not letters:
            slot = Slot(out, fibre.now, fibre, (channel.source, channel.tag))
            channel.slots.append(slot)
            return slot
        letter = letters.pop(0)
        when = letter.arrival
        if fibre.now > when:
            when = fibre.now
        problem = deliver(letter.payload, out)
        letter.payload = None
        self.settle(letter, when, letter.sender)
        if problem is not None:
            return Slot(out, fibre.now, fibre, (channel.source, channel.tag), when, problem)
        return when

    def settle(self, event, when: float, fibre: Fibre) -> None:
        """Let `event` happen at `when`, and wake the fibre if it waits for that."""
        event.when = when
        if fibre.waits is event:
            self.scheduler.wake(fibre, when if when > fibre.now else fibre.now)

    def wait_for(self, fibre: Fibre, event) -> None:
        """Block the fibre until `event` has happened."""
        if event.when is None:
            self.scheduler.block(fibre, event)
        elif event.when > fibre.now:
            fibre.now = event.when

    def listen(self, fibre: Fibre, key: tuple, source: int, what: Waits) -> None:
        """Block until an object for `key`, which is (context, dest, tag), has come from `source`."""
        self.listeners[key] = (fibre, source)
        self.scheduler.block(fibre, what)
        del self.listeners[key]

    def check_empty(self) -> None:
        """Raise if a message was sent that nobody received."""
        left = [(letter, channel.dest, channel.tag) for channel in self.channels.values() for letter in channel.letters]
        left += [(letter, dest, tag) for (_, dest, tag), box in self.objects.items() for letter in box]
        if left:
            letter, dest, tag = left[0]
            more = f" (and {len(left) - 1} more)" if len(left) > 1 else ""
            raise CommError(
                f"rank {dest} never received the message of {letter.nbytes} bytes from rank {letter.source}, "
                f"tag {tag}{more}"
            )
