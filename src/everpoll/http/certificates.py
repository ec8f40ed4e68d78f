"""Certificates: reads from a certificate in DER form when it expires.

The standard library returns the fields of a certificate only if it has verified it. The date matters most for an
expired certificate, so it is read here: five steps through ASN.1. Pure; nothing that a remote sent raises an error.
"""

import calendar
import ssl
import time

_SEQUENCE, _VERSION, _UTC_TIME, _GENERALIZED_TIME = 0x30, 0xA0, 0x17, 0x18


def expiry_of(connection: ssl.SSLObject | ssl.SSLSocket | None) -> float | None:
    """Return when the other side's certificate expires, in epoch seconds; None if there is none."""
    der = None if connection is None else connection.getpeercert(binary_form=True)
    return None if der is None else expires_at(der)


def expires_at(der: bytes) -> float | None:
    """Return the end of a certificate's validity in epoch seconds; None if it cannot be read."""
    try:
        certificate, _ = _content(der, _SEQUENCE)
        fields, _ = _content(certificate, _SEQUENCE)
        if fields[0] == _VERSION:
            _, fields = _content(fields, _VERSION)
        for _ in ("serial number", "signature algorithm", "issuer"):
            _, fields = _content(fields)
        validity, _ = _content(fields, _SEQUENCE)
        _, validity = _content(validity)
        return _instant(validity)
    except (IndexError, ValueError, OverflowError):
        return None


def _content(data: bytes, tag: int | None = None) -> tuple[bytes, bytes]:
    """Return the content of the first element, and the bytes after it."""
    if tag is not None and data[0] != tag:
        raise ValueError("another element was expected")
    length, begin = data[1], 2
    if length & 0x80:
        begin += length & 0x7F
        length = int.from_bytes(data[2:begin], "big")
    if begin + length > len(data):
        raise ValueError("the element is cut off")
    return data[begin : begin + length], data[begin + length :]


def _instant(data: bytes) -> float:
    text = _content(data)[0].decode("ascii")
    if data[0] == _UTC_TIME:
        # RFC 5280: a year of two digits from 50 on belongs to the last century.
        text = ("19" if int(text[:2]) >= 50 else "20") + text
    elif data[0] != _GENERALIZED_TIME:
        raise ValueError("not a time")
    return float(calendar.timegm(time.strptime(text, "%Y%m%d%H%M%SZ")))
