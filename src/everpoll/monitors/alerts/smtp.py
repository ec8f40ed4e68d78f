"""Conversation: delivers one mail to one SMTP server, in blocking steps.

Promises: one step never takes longer than STEP_S; `abort` ends it at once, from any thread. `may_have_arrived` is True
exactly from the sending of the content until the server's answer to it.
"""

import contextlib
import logging
import smtplib
import socket
import ssl
from collections.abc import Sequence
from typing import Literal, NamedTuple

from everpoll.monitors.alerts.channel import MAX_ERROR_CHARS, Undelivered
from everpoll.monitors.alerts.letter import one_line

logger = logging.getLogger("everpoll.monitors")

MailTls = Literal["starttls", "implicit", "none"]
STEP_S = 20.0
_ACCEPTED = frozenset({250, 251})


class Server(NamedTuple):
    """The address of a mail server, and how to log in."""

    host: str
    port: int
    tls: MailTls
    ca_file: str | None
    user: str
    password: str


class Conversation:
    """One delivery, in a thread of its own; `abort` ends it from another."""

    def __init__(self, server: Server, sender: str, to: Sequence[str], content: bytes) -> None:
        self._server = server
        self._sender = sender
        self._to = to
        self._content = content
        self._smtp = smtplib.SMTP(timeout=STEP_S, local_hostname=_own_name())
        self._socket: socket.socket | None = None
        self._is_aborted = False
        self.may_have_arrived = False

    def deliver(self) -> None:
        """Deliver, or raise `Undelivered`."""
        try:
            self._converse()
        except (OSError, smtplib.SMTPException, ValueError) as error:
            what = f"{self._server.host}:{self._server.port}: {self._error_text(error)}"
            raise Undelivered(what, is_certain=not self.may_have_arrived) from None
        finally:
            self._smtp.close()
            if self._socket is not None:
                self._socket.close()

    def abort(self) -> None:
        """Close the connection from another thread, which ends a waiting step. Repeatable."""
        self._is_aborted = True
        if self._socket is not None:
            # Not closed here: its number could be given to another connection while the thread still reads from it.
            with contextlib.suppress(OSError):
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def _converse(self) -> None:
        smtp = self._smtp
        self._connect()
        if self._server.user:
            smtp.login(self._server.user, self._server.password)
        _expect(smtp.mail(self._sender), {250})
        refused = [one for one in self._to if smtp.rcpt(one)[0] not in _ACCEPTED]
        if len(refused) == len(self._to):
            raise smtplib.SMTPException(f"it refuses {', '.join(refused)}")
        self.may_have_arrived = True
        reply = smtp.data(self._content)
        self.may_have_arrived = False
        _expect(reply, {250})
        if refused:
            names = ", ".join(refused)
            logger.warning("%s refuses %s; the other recipients have the mail", self._server.host, names)
        with contextlib.suppress(OSError, smtplib.SMTPException):
            smtp.quit()

    def _connect(self) -> None:
        server, smtp = self._server, self._smtp
        self._keep(socket.create_connection((server.host, server.port), STEP_S))
        if server.tls == "implicit":
            self._encrypt()
        smtp.sock = self._socket
        _expect(smtp.getreply(), {220})
        smtp.ehlo_or_helo_if_needed()
        if server.tls != "starttls":
            return
        _expect(smtp.docmd("STARTTLS"), {220})
        if smtp.file is not None:
            smtp.file.close()
        self._encrypt()
        # Answers from before the encryption cannot be trusted: the conversation starts again.
        smtp.sock, smtp.file = self._socket, None
        smtp.ehlo_resp, smtp.helo_resp, smtp.does_esmtp, smtp.esmtp_features = None, None, False, {}
        smtp.ehlo_or_helo_if_needed()

    def _keep(self, connection: socket.socket) -> None:
        self._socket = connection
        if self._is_aborted:
            self.abort()

    def _encrypt(self) -> None:
        assert self._socket is not None, "there is a connection"
        context = ssl.create_default_context(cafile=self._server.ca_file)
        self._keep(context.wrap_socket(self._socket, server_hostname=self._server.host))

    def _error_text(self, error: Exception) -> str:
        if isinstance(error, smtplib.SMTPDataError):
            # The server refused before the content was sent.
            self.may_have_arrived = False
        if isinstance(error, smtplib.SMTPResponseException):
            return _reply_text(error.smtp_code, error.smtp_error)
        text = str(error) or type(error).__name__
        if self._server.password:
            text = text.replace(self._server.password, "***")
        return one_line(text, MAX_ERROR_CHARS)


def _own_name() -> str:
    """Return the name for EHLO without asking a name server, which may be slow."""
    name = socket.gethostname()
    is_known = name.isascii() and "." in name and not any(char.isspace() for char in name)
    return name if is_known else "[127.0.0.1]"


def _expect(reply: tuple[int, bytes], codes: set[int]) -> None:
    if reply[0] not in codes:
        raise smtplib.SMTPResponseException(*reply)


def _reply_text(code: int, text: bytes | str) -> str:
    words = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
    return one_line(f"it answered {code} {words}", MAX_ERROR_CHARS)
