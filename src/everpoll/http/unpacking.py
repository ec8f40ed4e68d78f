"""Unpacking: collects the body of an answer within its limit, and decompresses it as it comes.

Promises: it never holds more than the limit: a few bytes of gzip may expand to gigabytes. A larger body of a success
raises `NotReached`; of any other answer the beginning is kept, which is enough to read the error. A body in an encoding
that was not requested is left unchanged, and `encoding` names it. Pure.
"""

import zlib

from everpoll.http.contract import Kind, NotReached

ACCEPTED = "gzip, deflate"
_IDENTITY = ("", "identity")
# Window bits of zlib: for zlib and gzip, recognized by their first bytes; and for deflate without a header.
_ZLIB_OR_GZIP, _BARE = 47, -15
_SLACK_BYTES = 65_536
"""By how much compressed data may be larger than its contents."""


class Body:
    """One body. `add` returns False once no further data is wanted."""

    def __init__(self, shown_url: str, status: int, content_encoding: str, limit: int) -> None:
        self._shown_url = shown_url
        self._is_success = 200 <= status < 300
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0
        self.received = 0
        """How many bytes came, still compressed."""
        self.is_truncated = False
        coding = content_encoding.strip().lower()
        self._inflater = _Inflater() if coding in ("gzip", "x-gzip", "deflate") else None
        self.encoding = "" if self._inflater is not None or coding in _IDENTITY else coding[:40]

    def expect(self, length: int) -> None:
        """Raise `NotReached` if the announced length is too large."""
        if self._is_success and length > self._limit + (_SLACK_BYTES if self._inflater is not None else 0):
            self._too_large()

    def add(self, data: bytes) -> bool:
        """Add received data; raise `NotReached` if the body is too large or cannot be decompressed."""
        if self.is_truncated:
            return False
        self.received += len(data)
        if self._inflater is None:
            return self._keep(data)
        try:
            while data:
                # One byte more than allowed is unpacked, to notice a body that is too large.
                unpacked, data = self._inflater.unpack(data, self._limit - self._size + 1)
                if not self._keep(unpacked):
                    return False
        except zlib.error:
            return self._cut(f"{self._shown_url}: its body cannot be unpacked", Kind.PROTOCOL)
        # Compressed bytes without contents (empty blocks) may never end.
        return self.received <= self._limit + _SLACK_BYTES or self._too_large()

    def content(self) -> bytes:
        """Return the whole body; raise `NotReached` if its end is missing."""
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
        """The first bytes, until there are two, which tell the kind; None: the kind is known."""
        self.is_complete = False

    def unpack(self, data: bytes, at_most: int) -> tuple[bytes, bytes]:
        """Return the decompressed data, and the rest of the compressed data."""
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
                return b"", b""  # Some servers pad the compressed body.
            if self._start is None:
                raise
            self._inflating = zlib.decompressobj(_BARE)
            unpacked = self._inflating.decompress(data, max(at_most, 1))
        self._start = None
        self.is_complete = self._inflating.eof
        return unpacked, self._inflating.unconsumed_tail or self._inflating.unused_data


def _amount(size: int) -> str:
    return f"{size / 2**20:g} MiB" if size >= 2**20 and size % 2**20 == 0 else f"{size} bytes"
