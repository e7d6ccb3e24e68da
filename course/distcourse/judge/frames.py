"""Frames on a socket: a header in JSON, and the bytes of arrays."""

from __future__ import annotations

import json
import struct

LARGEST = 1 << 28  # Bytes of a frame that are accepted.
_HEAD = struct.Struct("<QQ")


class ProtocolError(RuntimeError):
    """The other process sent what it never should, or is gone."""


class Connection:
    """One end of a socket between two processes."""

    def __init__(self, socket):
        self._socket = socket

    def send(self, header: dict, buffers=()) -> None:
        """Send a frame: a header, and the bytes of its buffers, one after another."""
        text = json.dumps(header, separators=(",", ":")).encode()
        data = b"".join(buffers)
        try:
            self._socket.sendall(_HEAD.pack(len(text), len(data)) + text + data)
        except OSError as error:
            raise ProtocolError(f"the other process is gone ({error})") from None

    def receive(self) -> tuple[dict, memoryview]:
        """Wait for a frame; return its header and its bytes."""
        text_size, data_size = _HEAD.unpack(self._exactly(_HEAD.size))
        if text_size + data_size > LARGEST:
            raise ProtocolError(f"a frame of {text_size + data_size:,} bytes, at most {LARGEST:,} are accepted")
        try:
            header = json.loads(bytes(self._exactly(text_size)))
        except (ValueError, RecursionError) as error:
            raise ProtocolError(f"a frame that is not JSON ({error})") from None
        if not isinstance(header, dict):
            raise ProtocolError("a frame that is not an object")
        return header, self._exactly(data_size)

    def close(self) -> None:
        self._socket.close()

    def _exactly(self, size: int) -> memoryview:
        data = memoryview(bytearray(size))
        got = 0
        while got < size:
            try:
                more = self._socket.recv_into(data[got:])
            except OSError as error:
                raise ProtocolError(f"the other process does not answer ({error})") from None
            if not more:
                raise ProtocolError("the other process is gone")
            got += more
        return data
