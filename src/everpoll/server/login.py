"""The login page: a form that takes the token once and gives a session cookie for it. No script, no style."""

import html
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from everpoll.server.access import COOKIE, SESSION_S, Access
from everpoll.server.mounts import base_of

HTML = "text/html; charset=utf-8"
FORM_LIMIT = 10_000
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Log in · everpoll</title>
</head>
<body>
<main>
<h1>everpoll</h1>
<p>{message}</p>
<form method="post" action="{action}">
<label>Token <input type="password" name="token" autocomplete="current-password" required autofocus></label>
<button type="submit">Log in</button>
</form>
</main>
</body>
</html>
"""


def wants_page(request: Request) -> bool:
    """Whether a browser asks for a page, as opposed to a program for data."""
    return request.method == "GET" and "text/html" in request.headers.get("accept", "")


def login_page(request: Request, message: str = "This server needs a token.") -> Response:
    """Return the form, as the answer to a request without a token."""
    action = f"{base_of(request.scope)}/login"
    page = _PAGE.format(message=html.escape(message), action=html.escape(action, quote=True))
    return Response(page, 401, {"WWW-Authenticate": "Bearer", "Cache-Control": "no-store"}, HTML)


def log_in(request: Request, access: Access, body: bytes, now: float) -> Response:
    """Answer the form: a cookie and the way back for a token that is known, the form again for any other."""
    fields = parse_qs(body.decode("latin-1"), max_num_fields=10) if len(body) <= FORM_LIMIT else {}
    role = access.role_for(fields.get("token", [""])[0].strip())
    if role is None:
        return login_page(request, "That token is not known here.")
    answer = RedirectResponse(f"{base_of(request.scope)}/", 303)
    _set_cookie(request, answer, access.session(role, now), SESSION_S)
    return answer


def log_out(request: Request) -> Response:
    """Forget the cookie."""
    answer = RedirectResponse(f"{base_of(request.scope)}/", 303)
    _set_cookie(request, answer, "", 0)
    return answer


def _set_cookie(request: Request, answer: Response, value: str, age_s: int) -> None:
    answer.set_cookie(
        COOKIE,
        value,
        max_age=age_s,
        path=base_of(request.scope) or "/",
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )
    answer.headers["Cache-Control"] = "no-store"
