"""A proxy before a server that loses replies: what was asked has been done, and nobody hears."""

from __future__ import annotations

import random
import socket
import threading
from contextlib import suppress
from types import TracebackType
from urllib.parse import urlsplit, urlunsplit


class CuttingProxy:
    """Passes bytes on both ways; connections that are doomed end instead of the next reply."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._server = (parts.hostname or "127.0.0.1", parts.port or 5432)
        self._listening = socket.create_server(("127.0.0.1", 0))
        user = parts.netloc.rpartition("@")[0]
        place = f"127.0.0.1:{self._listening.getsockname()[1]}"
        self.url = urlunsplit(parts._replace(netloc=f"{user}@{place}" if user else place))
        self._connections: dict[socket.socket, socket.socket] = {}
        self._doomed: set[socket.socket] = set()
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> CuttingProxy:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._listening.close()
        with self._lock:
            for client, server in self._connections.items():
                _end(client, server)

    def doom(self, chance: random.Random, share: float = 0.5) -> int:
        """Let that share of the connections lose their next reply; answers how many."""
        with self._lock:
            chosen = [each for each in self._connections if chance.random() < share]
            self._doomed.update(chosen)
        return len(chosen)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(self._server)
            except OSError:
                client.close()
                continue
            with self._lock:
                self._connections[client] = server
            for source, target in ((client, server), (server, client)):
                threading.Thread(
                    target=self._pass_on, args=(client, source, target), daemon=True
                ).start()

    def _pass_on(self, client: socket.socket, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if target is client and client in self._doomed:
                    break
                target.sendall(data)
        _end(source, target)
        with self._lock:
            self._connections.pop(client, None)
            self._doomed.discard(client)


def _end(*sockets: socket.socket) -> None:
    for each in sockets:
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
        each.close()
