"""Messages on a socket: four bytes of length, then JSON."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import msgspec


def framed(value: Any) -> bytes:
    """A value as a frame."""
    body = msgspec.json.encode(value)
    return len(body).to_bytes(4, "big") + body


async def read_frame(reader: asyncio.StreamReader, kind: Any) -> Any:
    """The next frame's value; None at the end of the stream."""
    try:
        length = int.from_bytes(await reader.readexactly(4), "big")
        return msgspec.json.decode(await reader.readexactly(length), type=kind)
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


def receive(connection: socket.socket, kind: Any) -> Any:
    """The next frame's value from a blocking socket; None at its end."""
    header = _exactly(connection, 4)
    if header is None:
        return None
    body = _exactly(connection, int.from_bytes(header, "big"))
    return None if body is None else msgspec.json.decode(body, type=kind)


def _exactly(connection: socket.socket, size: int) -> bytes | None:
    parts = bytearray()
    while len(parts) < size:
        part = connection.recv(size - len(parts))
        if not part:
            return None
        parts += part
    return bytes(parts)
