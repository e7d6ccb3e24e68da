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

from ..comm.protocol import CommError
from ..trace import Message
from .events import Channel, Event, Letter, Meeting, Slot, deliver
from .scheduler import Fibre, Scheduler, Waits

if TYPE_CHECKING:
    from .world import SimWorld


class Post:
    """What the ranks of one run share: channels, objects under way, meetings."""

    def __init__(self, world: SimWorld, scheduler: Scheduler):
        self.world, self.network, self.scheduler, self.trace = world, world.network, scheduler, world._trace
        self.wake, self.block = scheduler.wake, scheduler.block
        self.alpha, self.beta = float(self.network.alpha), float(self.network.beta)
        self.plain = self.network.plain  # every message costs alpha + n / beta: no need to ask the network
        self.shared = not self.plain and self.network.shared
        self.eager_limit = world.eager_limit or -1
        self.wire: list = []  # the fields of a `Message` for each letter so far, one after another
        self.record = self.wire.extend
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

    def channel(self, context: int, members: list[Fibre], source: int, dest: int, tag: int) -> Channel:
        """Return the one channel that both ends share; `source` and `dest` number the members of a communicator."""
        key = (context, source, dest, tag)
        channel = self.channels.get(key)
        if channel is None:
            channel = Channel(context, members[source], members[dest], source, dest, tag)
            self.channels[key] = channel
        return channel

    def flush(self) -> None:
        """Write the messages so far into the trace."""
        in_turn = [iter(self.wire)] * len(Message._fields)
        self.trace.messages.extend(map(Message._make, zip(*in_turn, strict=True)))
        self.wire.clear()

    # -- the wire ----------------------------------------------------------------------------------------------------
    def launch(self, channel: Channel, nbytes: int) -> float:
        """Put a message on the wire: the sender's network card sends one after another. Return when it arrives."""
        sender = channel.sender
        if self.plain:
            now = start = sender.now
            if sender.nic_free > start:
                start = sender.nic_free
            arrival = start + (self.alpha + nbytes / self.beta)
            sender.nic_free = arrival - self.alpha
        else:
            arrival = self._travel(sender, channel.receiver, nbytes)
            now = sender.now
        self.record((sender.rank, channel.receiver.rank, nbytes, now, arrival, channel.tag))
        return arrival

    def _travel(self, sender: Fibre, receiver: Fibre, nbytes: int) -> float:
        """Take a message through a network that is not the same for all: it says which links that takes."""
        network = self.network
        if self.shared:  # links go to whoever comes first, so let everybody whose clock stands earlier come
            self.scheduler.yield_until(sender, sender.now)
        latency, seconds, links = network.route(nbytes, sender.rank, receiver.rank)
        if network.jitter:
            factor = self._luck(sender.rank)
            latency, seconds = latency * factor, seconds * factor
        free = self._link_free
        start = sender.now
        for link in links:
            if (carried := free.get(link, start)) > start:
                start = carried
        for link in links:
            free[link] = start + seconds
        return start + (latency + seconds)

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
    def send(self, channel: Channel, x) -> float | Letter:
        """Send `x`: return when it is received, or buffered, or the letter that will know."""
        sender, nbytes = channel.sender, x.nbytes
        if self.plain:  # as in `launch`, which would cost a call per message
            now = start = sender.now
            if sender.nic_free > start:
                start = sender.nic_free
            arrival = start + (self.alpha + nbytes / self.beta)
            sender.nic_free = arrival - self.alpha
            self.record((sender.rank, channel.receiver.rank, nbytes, now, arrival, channel.tag))
        else:
            arrival = self.launch(channel, nbytes)
        eager = nbytes <= self.eager_limit
        slots = channel.slots
        if not slots:
            letter = Letter(channel, x.copy() if eager else x, arrival)
            channel.letters.append(letter)
            return sender.now if eager else letter
        slot = slots.pop(0)
        slot.when = when = arrival if arrival > slot.posted else slot.posted
        slot.problem = deliver(x, slot.out)
        receiver = channel.receiver
        if receiver.waits is slot:
            self.wake(receiver, when if when > receiver.now else receiver.now)
        return sender.now if eager else when

    def receive(self, channel: Channel, out) -> float | Slot:
        """Receive into `out`: return when the data is there, or the slot that will know."""
        now, letters = channel.receiver.now, channel.letters
        if not letters:
            slot = Slot(channel, out, now)
            channel.slots.append(slot)
            return slot
        letter = letters.pop(0)
        letter.when = when = letter.arrival if letter.arrival > now else now
        problem = deliver(letter.payload, out)
        sender = channel.sender
        if sender.waits is letter:
            self.wake(sender, when if when > sender.now else sender.now)
        return when if problem is None else Slot(channel, out, now, when, problem)

    def settle(self, event, when: float, fibre: Fibre) -> None:
        """Let `event` happen at `when`, and wake the fibre if it waits for that."""
        event.when = when
        if fibre.waits is event:
            self.wake(fibre, when if when > fibre.now else fibre.now)

    def wait_for(self, fibre: Fibre, event: Event | float) -> None:
        """Block the fibre until `event` has happened; one that is settled already can be given by its moment."""
        if not isinstance(event, Event):
            if event > fibre.now:
                fibre.now = event
            return
        if event.when is None:
            self.block(fibre, event)
        elif event.when > fibre.now:
            fibre.now = event.when
        if event.problem is not None:
            raise ValueError(f"rank {event.channel.dest}: {event.shown()} {event.problem}")

    def listen(self, fibre: Fibre, key: tuple, source: int, what: Waits) -> None:
        """Block until an object for `key`, which is (context, dest, tag), has come from `source`."""
        self.listeners[key] = (fibre, source)
        self.scheduler.block(fibre, what)
        del self.listeners[key]

    def check_empty(self) -> None:
        """Raise if a message was sent that nobody received."""
        left = [letter for channel in self.channels.values() for letter in channel.letters]
        left += [parcel for box in self.objects.values() for parcel in box]
        if left:
            letter, channel = left[0], left[0].channel
            more = f" (and {len(left) - 1} more)" if len(left) > 1 else ""
            raise CommError(
                f"rank {channel.dest} never received the message of {letter.nbytes} bytes from rank {channel.source}, "
                f"tag {channel.tag}{more}"
            )
