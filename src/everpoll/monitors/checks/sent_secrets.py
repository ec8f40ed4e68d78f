"""Sent secrets: the credentials in the requests to one service, which are masked if an answer repeats them.

Promises: they are read from the environment at each look, as the request reads them. The masks are prepared again only
if they have changed, so a look costs no more than reading the variables.
"""

import base64
import os
from collections.abc import Mapping

from everpoll.http import NotAsked
from everpoll.http.environment import references, resolved
from everpoll.http.secrets import Secrets, sensitive
from everpoll.http.urls import target_of
from everpoll.monitors.definition import Definition


class SentSecrets:
    """The credentials of one definition."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        self._url = url
        self._written = headers
        self._resolved: Mapping[str, str] = {}
        self._secrets: Secrets | None = None

    @classmethod
    def of(cls, definition: Definition) -> "SentSecrets | None":
        """Return the credentials of an HTTP service; None if it has none."""
        url, headers = definition.target, definition.headers
        credentials = target_of(url).credentials
        if credentials:
            headers = {"Authorization": f"Basic {base64.b64encode(credentials.encode()).decode()}", **headers}
        return cls(url, headers) if sensitive(headers) or references(headers) or "?" in url else None

    def now(self) -> Secrets:
        """Return the secrets that are sent now."""
        try:
            headers = resolved(self._written, os.environ)
        except NotAsked:
            headers = self._written  # the request itself fails for the same reason
        if self._secrets is None or headers != self._resolved:
            self._resolved, self._secrets = headers, Secrets(headers, self._url)
        return self._secrets
