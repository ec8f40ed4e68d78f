"""Mail message: makes an e-mail of a letter, and checks its addresses.

Promises: an accepted address has no character with a meaning in SMTP or in a header. A text from a remote is only in
the subject and in the plain body, and cannot add a header. Pure.
"""

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime
from typing import Any

from everpoll.errors import BadInput
from everpoll.monitors.alerts.letter import Letter
from everpoll.policy import shown

MAX_RECIPIENTS = 50
MAX_ADDRESS_CHARS = 254
_SPEC = r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?"
_ADDRESS = re.compile(rf"(?:([^<>@,;:\"\\]{{0,100}}) <({_SPEC})>|({_SPEC}))")
# Seven bits, which every server accepts.
_POLICY = SMTP.clone(cte_type="7bit")


def address_of(option: str, value: Any) -> Address:
    """Read "ops@example.com" or "Everpoll <ops@example.com>"; raise `BadInput` for anything else."""
    problem = BadInput(f'Email: {option}={shown(value)}: must be an address; write "ops@example.com"')
    if not isinstance(value, str) or not value.isprintable() or len(value) > 2 * MAX_ADDRESS_CHARS:
        raise problem
    found = _ADDRESS.fullmatch(value)
    if found is None or len(spec := found[2] or found[3]) > MAX_ADDRESS_CHARS:
        raise problem
    try:
        return Address(display_name=(found[1] or "").strip(), addr_spec=spec)
    except ValueError:
        raise problem from None


def recipients_of(value: Any) -> tuple[Address, ...]:
    """Read the recipients of a channel."""
    addresses = [value] if isinstance(value, str) else value
    if not isinstance(addresses, Iterable) or not (listed := list(addresses)) or len(listed) > MAX_RECIPIENTS:
        raise BadInput(f'Email: to={shown(value)}: must be 1 to {MAX_RECIPIENTS} addresses; write ["ops@example.com"]')
    return tuple({one.addr_spec: one for one in (address_of("to", each) for each in listed)}.values())


def mail_of(letter: Letter, sender: Address, to: Sequence[Address], now: float) -> EmailMessage:
    """Return the e-mail of a letter. Its Message-ID is made from the letter's id."""
    mail = EmailMessage(policy=_POLICY)
    mail["From"] = sender
    mail["To"] = to
    mail["Subject"] = letter.message.subject
    mail["Date"] = format_datetime(datetime.fromtimestamp(now, UTC))
    mail["Message-ID"] = f"<{letter.id}@{sender.domain}>"
    # RFC 3834: automatic responders must not reply.
    mail["Auto-Submitted"] = "auto-generated"
    mail.set_content(letter.text)
    return mail
