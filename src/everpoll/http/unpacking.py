"""The body of an answer: collected within its limit, unpacked while it comes.

Promises: never holds more than the limit, whatever was packed: a few bytes of gzip can stand for gigabytes. A success
that is larger is `NotReached`. Of every other answer the beginning is kept, which is enough to read what went wrong.
An encoding that was not asked for is left as it is, and `encoding` names it. Pure.
"""

import zlib

from everpoll.http.contract import Kind, NotReached

ACCEPTED = "gzip, deflate"
_IDENTITY = ("", "identity")
# zlib and gzip, recognised by their first bytes; and deflate without a header, as some servers send it.
_ZLIB_OR_GZIP, _BARE = 47, -15
_SLACK_BYTES = 65_536
"""By how much packed data may be larger than what is packed in it."""


class Body:
    """One body. `add` returns False once nothing more is wanted."""

    def __init__(self, shown_url: str, status: int, content_encoding: str, limit: int) -> None:
        self._shown_url = shown_url
        self._is_success = 200 <= status < 300
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0
        self.received = 0
        """Bytes that came, as they were packed."""
        self.is_truncated = False
        coding = content_encoding.strip().lower()
        self._inflater = _Inflater() if coding in ("gzip", "x-gzip", "deflate") else None
        self.encoding = "" if self._inflater is not None or coding in _IDENTITY else coding[:40]

    def expect(self, length: int) -> None:
        """Raise `NotReached` where the announced length is too large already."""
        if self._is_success and length > self._limit + (_SLACK_BYTES if self._inflater is not None else 0):
            self._too_large()

    def add(self, data: bytes) -> bool:
        """Take what came; raise `NotReached` where it is too large, or cannot be unpacked."""
        if self.is_truncated:
            return False
        self.received += len(data)
        if self._inflater is None:
            return self._keep(data)
        try:
            while data:
                # One byte more than allowed tells a body that is too large from one that just fits.
                unpacked, data = self._inflater.unpack(data, self._limit - self._size + 1)
                if not self._keep(unpacked):
                    return False
        except zlib.error:
            return self._cut(f"{self._shown_url}: its body cannot be unpacked", Kind.PROTOCOL)
        # Packed bytes that stand for nothing (empty blocks) may go on for ever.
        return self.received <= self._limit + _SLACK_BYTES or self._too_large()

    def content(self) -> bytes:
        """Return the whole body; raise `NotReached` where its end is missing."""
        if self._inflater is not None and self.received and not self._inflater.is_complete and not self.is_truncated:
            self._cut(f"{self._shown_url}: its body is packed, and its end is missing", Kind.PROTOCOL)
        return self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)

    def _keep(self, data: bytes) -> bool:
        self._size += len(data)
        if self._size <= self._limit:
            self._parts.append(data)
            return True
        self._parts.append(data[: len(data) - (self._size - self._limit)])
        return self._too_large()

    def _too_large(self) -> bool:
        return self._cut(f"{self._shown_url} answered with more than {_amount(self._limit)}", Kind.TOO_LARGE)

    def _cut(self, reason: str, kind: Kind) -> bool:
        if self._is_success:
            raise NotReached(reason, kind)
        self.is_truncated = True
        return False


class _Inflater:
    """Unpacks gzip (of several members, too), zlib and bare deflate, a bounded amount at a time."""

    def __init__(self) -> None:
        self._inflating = zlib.decompressobj(_ZLIB_OR_GZIP)
        self._start: bytes | None = b""
        """What came before the two bytes that tell the kind; None: the kind is known."""
        self.is_complete = False

    def unpack(self, data: bytes, at_most: int) -> tuple[bytes, bytes]:
        """Return what was unpacked, and what is left of the packed data."""
        if self._inflating.eof:
            self._inflating = zlib.decompressobj(_ZLIB_OR_GZIP)
        if self._start is not None:
            data = self._start = self._start + data
            if len(data) < 2:
                return b"", b""
        try:
            unpacked = self._inflating.decompress(data, max(at_most, 1))
        except zlib.error:
            if self.is_complete and not data.strip(b"\0"):
                return b"", b""  # Some servers pad what they packed.
            if self._start is None:
                raise
            self._inflating = zlib.decompressobj(_BARE)
            unpacked = self._inflating.decompress(data, max(at_most, 1))
        self._start = None
        self.is_complete = self._inflating.eof
        return unpacked, self._inflating.unconsumed_tail or self._inflating.unused_data


def _amount(size: int) -> str:
    return f"{size / 2**20:g} MiB" if size >= 2**20 and size % 2**20 == 0 else f"{size} bytes"
