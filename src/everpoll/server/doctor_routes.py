"""The doctor over HTTP."""

from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import replace

from everpoll.doctor import Check, Diagnosis
from everpoll.http.stored_secrets import without_secrets
from everpoll.policy import seconds
from everpoll.server.answers import Reply
from everpoll.server.route import ApiCall, Route

DOCTOR_LIMIT_S = 60.0
"""The limit for a dozen queries, each of which may take two seconds."""


class DoctorQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """What the doctor reports."""

    transaction_age: Annotated[str, Meta(max_length=100)] = "5m"
    """How long a transaction must be open before it is reported."""


async def ask_doctor(call: ApiCall) -> Reply:
    """Answer `GET /api/doctor`."""
    query: DoctorQuery = call.query
    text = query.transaction_age
    age_s = seconds(int(text) if text.isascii() and text.isdigit() else text, name="transaction_age", positive=True)
    found = await call.serving.app.doctor(age_s)
    return Reply(Diagnosis(found.ok, tuple(_safe(one) for one in found.checks)), headers={"Cache-Control": "no-store"})


def _safe(check: Check) -> Check:
    """Mask secrets in texts of a database or a channel."""
    return replace(check, says=str(without_secrets(check.says)), remedy=str(without_secrets(check.remedy)))


DOCTOR_ROUTES = [
    Route(
        method="GET",
        path="/api/doctor",
        noun="fleet",
        summary="Diagnose the database and the fleet. This works even while the database is unavailable.",
        handler=ask_doctor,
        query=DoctorQuery,
        answer=Diagnosis,
        example={
            "ok": False,
            "checks": [
                {"name": "schema", "level": "ok", "says": "the tables are those of this release", "remedy": ""},
                {
                    "name": "paused",
                    "level": "warning",
                    "says": "queue 'mail' is paused (the mail server is being moved), and 3 tasks wait in it",
                    "remedy": "to go on: `everpoll queues resume mail`",
                },
            ],
        },
        limit_s=DOCTOR_LIMIT_S,
    ),
]
