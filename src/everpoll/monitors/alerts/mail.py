"""Email: letters by SMTP, in a thread.

Promises: a delivery ends within TIMEOUT_S, whatever the server does. If the server refuses the connection, the sender,
every recipient or the content, the letter did not arrive. If the server does not answer after the content was sent, the
letter may have arrived, and is not sent again. A password is sent encrypted, or only to this machine.
"""

import asyncio
import ipaddress
from collections.abc import Iterable
from typing import Any, get_args

from everpoll.errors import BadInput
from everpoll.monitors.alerts.channel import Tools, Undelivered
from everpoll.monitors.alerts.letter import Letter
from everpoll.monitors.alerts.mail_message import address_of, mail_of, recipients_of
from everpoll.monitors.alerts.posting import found_in_environment
from everpoll.monitors.alerts.smtp import Conversation, MailTls, Server
from everpoll.policy import human, shown

PORTS: dict[MailTls, int] = {"starttls": 587, "implicit": 465, "none": 25}
TIMEOUT_S = 60.0
"""The time limit for the whole conversation."""


class Email:
    """Sends letters as plain text: `Email("smtp.example.com", to=["ops@example.com"], sender="everpoll@example.com")`.

    `tls` is "starttls" (port 587), "implicit" (port 465) or "none" (port 25). `ca_file` is trusted instead of the
    system's authorities.
    """

    drops_repeats = False

    def __init__(  # noqa: PLR0913 - what a mail server may need, each with its default
        self,
        host: str,
        port: int | None = None,
        *,
        to: str | Iterable[str],
        sender: str,
        user: str | None = None,
        password: str | None = None,
        tls: MailTls = "starttls",
        ca_file: str | None = None,
    ) -> None:
        _check_server(host, port, tls)
        _check_login(user, password, is_in_clear=tls == "none" and not _is_this_machine(host))
        self._server = Server(host, PORTS[tls] if port is None else port, tls, ca_file, user or "", password or "")
        self._to = recipients_of(to)
        self._sender = address_of("sender", sender)

    def __repr__(self) -> str:
        return f"<Email {', '.join(one.addr_spec for one in self._to)} by {self._server.host}:{self._server.port}>"

    def __rich_repr__(self) -> Any:
        yield repr(self)

    async def deliver(self, letter: Letter, now: float, tools: Tools) -> None:
        """Send a letter; see `Channel`."""
        server = self._server._replace(
            user=found_in_environment("the user", self._server.user, tools),
            password=found_in_environment("the password", self._server.password, tools),
        )
        content = mail_of(letter, self._sender, self._to, now).as_bytes()
        conversation = Conversation(server, self._sender.addr_spec, [one.addr_spec for one in self._to], content)
        running = asyncio.get_running_loop().run_in_executor(tools.threads, conversation.deliver)
        running.add_done_callback(_retrieve_error)
        try:
            async with asyncio.timeout(TIMEOUT_S):
                await asyncio.shield(running)
        except TimeoutError:
            why = f"{server.host} took longer than {human(TIMEOUT_S)}"
            raise Undelivered(why, is_certain=not conversation.may_have_arrived) from None
        finally:
            conversation.abort()


def _check_server(host: Any, port: Any, tls: Any) -> None:
    if tls not in get_args(MailTls):
        raise BadInput(f'Email: tls={shown(tls)}: write "starttls", "implicit" or "none"')
    if not isinstance(host, str) or not host or not host.isprintable() or " " in host:
        raise BadInput(f'Email: host={shown(host)}: must be the name of a mail server; write "smtp.example.com"')
    is_port = isinstance(port, int) and not isinstance(port, bool) and 1 <= port <= 65_535
    if port is not None and not is_port:
        raise BadInput(f"Email: port={shown(port)}: must be from 1 to 65535")


def _check_login(user: Any, password: Any, *, is_in_clear: bool) -> None:
    for option, value in (("user", user), ("password", password)):
        if value is not None and (not isinstance(value, str) or not value):
            raise BadInput(f'Email: {option} must be text; write "${{NAME}}"')
    if (user is None) != (password is None):
        raise BadInput("Email: user and password belong together; write both, or none")
    if password is not None and is_in_clear:
        raise BadInput('Email: with tls="none" the password would be sent unencrypted; write tls="starttls"')


def _retrieve_error(running: "asyncio.Future[None]") -> None:
    """Read the error of a conversation that timed out: else asyncio would log that it was never retrieved."""
    if not running.cancelled():
        running.exception()


def _is_this_machine(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
