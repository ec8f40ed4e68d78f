"""Addresses of databases, as far as all of them are alike."""

from urllib.parse import urlsplit


def masked(url: str) -> str:
    """The address without its password, for people and logs."""
    try:
        password = urlsplit(url).password
    except ValueError:
        return "(an address that cannot be read)"
    return url.replace(f":{password}@", ":***@") if password else url
