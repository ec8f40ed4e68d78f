"""A network with scripted names and two more routes: a public and a private address lead to the servers of a test.

The sockets are real. Only the resolver's answers and the routes are scripted.
"""

import socket
from typing import Any
from weakref import WeakKeyDictionary

import pytest

PUBLIC = "93.184.216.34"
PRIVATE = "10.0.0.5"


class Network:
    """What names resolve to, which places answer, and where connections went."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.names: dict[str, str] = {}
        """Addresses by name, separated by spaces; several answers, one after the other, by a comma."""
        self.looked_up: list[str] = []
        self.down: set[str] = set()
        self.connected: list[str] = []
        self._resolve, self._connect, self._peer = socket.getaddrinfo, socket.socket.connect, socket.socket.getpeername
        self._peers: WeakKeyDictionary[socket.socket, Any] = WeakKeyDictionary()
        monkeypatch.setattr(socket, "getaddrinfo", self._getaddrinfo)
        monkeypatch.setattr(socket.socket, "connect", lambda *args: self._route(*args))  # noqa: PLW0108 - a method

        # Behind a route, the address that answers is the address that was connected to.
        monkeypatch.setattr(socket.socket, "getpeername", lambda sock: self._peers.get(sock) or self._peer(sock))

    def _getaddrinfo(self, host: Any, port: Any, *args: Any, **kwargs: Any) -> Any:
        self.looked_up.append(host)
        if host not in self.names:
            return self._resolve(host, port, *args, **kwargs)
        now, comma, later = self.names[host].partition(",")
        if comma:
            self.names[host] = later
        return [(_family(one), socket.SOCK_STREAM, 6, "", (one, port)) for one in now.split()]

    def _route(self, sock: socket.socket, place: Any) -> None:
        self.connected.append(place[0])
        self._peers[sock] = place
        if place[0] in self.down:
            raise ConnectionRefusedError(111, "Connection refused")
        self._connect(sock, ("127.0.0.1", place[1]) if place[0] in (PUBLIC, PRIVATE) else place)


def _family(address: str) -> int:
    return socket.AF_INET6 if ":" in address else socket.AF_INET
