"""The login page: a form that takes the token once and gives a session cookie for it."""

import html
import re
from urllib.parse import parse_qs, quote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from everpoll.server.access import COOKIE, SESSION_S, Access
from everpoll.server.mounts import base_of
from everpoll.server.plain_pages import HTML, plain_page

FORM_LIMIT, FIELDS_LIMIT = 10_000, 10
_OWN_PATH = re.compile(r"/(?![/\\])[!-~]{0,4000}")
"""A path of this server: `//host` and `/\\host` would lead to another server."""
_FORM = """<h1>everpoll</h1>
<p{kind}>{message}</p>
<form method="post" action="{action}">
<input type="hidden" name="back" value="{back}">
<label>Token <input type="password" name="token" autocomplete="current-password" required autofocus></label>
<button type="submit">Log in</button>
</form>"""

_LOGGED_IN = """<h1>everpoll</h1>
<p>You are logged in. <a href="{base}/">Open the dashboard</a></p>
<form method="post" action="{base}/logout">
<button type="submit">Log out</button>
</form>"""


def wants_page(request: Request) -> bool:
    """Return True if a browser asks for a page, False if a program asks for data."""
    return request.method == "GET" and "text/html" in request.headers.get("accept", "")


_USUAL_MESSAGE = "This server needs a token."


def login_page(request: Request, message: str = _USUAL_MESSAGE, back: str = "/") -> Response:
    """Return the form, as the answer to a request without a token. After the login, the browser goes to `back`."""
    action = f"{base_of(request.scope)}/login"
    kind = "" if message == _USUAL_MESSAGE else ' class="error" role="alert"'
    form = _FORM.format(message=html.escape(message), kind=kind, action=html.escape(action), back=html.escape(back))
    page = plain_page(request, "Log in · everpoll", form)
    return Response(page, 401, {"WWW-Authenticate": "Bearer", "Cache-Control": "no-store"}, HTML)


def logged_in_page(request: Request) -> Response:
    """Return the page for a browser that is logged in already, with links to the dashboard and to log out."""
    base = html.escape(base_of(request.scope))
    page = plain_page(request, "Logged in · everpoll", _LOGGED_IN.format(base=base))
    return Response(page, 200, {"Cache-Control": "no-store"}, HTML)


def requested_page(request: Request, segments: list[str]) -> str:
    """Return the address of the requested page below the mount, to go back to it after the login."""
    query = request.scope.get("query_string", b"").decode("latin-1")
    path = "/" + "/".join(quote(part, safe="") for part in segments)
    return f"{path}?{query}" if query else path


def log_in(request: Request, access: Access, body: bytes, now: float) -> Response:
    """Answer the form: for a valid token with a cookie and a redirect, else with the form again."""
    fields = _fields(body)
    role = access.role_for(fields.get("token", [""])[0].strip())
    given = fields.get("back", ["/"])[0]
    back = given if _OWN_PATH.fullmatch(given) else "/"
    if role is None:
        return login_page(request, "That token is not known here.", back)
    answer = RedirectResponse(f"{base_of(request.scope)}{back}", 303)
    _set_cookie(request, answer, access.session(role, now), SESSION_S)
    return answer


def _fields(body: bytes) -> dict[str, list[str]]:
    """Return the fields of the form; none of a body that cannot be this form."""
    try:
        return parse_qs(body.decode("latin-1"), max_num_fields=FIELDS_LIMIT) if len(body) <= FORM_LIMIT else {}
    except ValueError:
        return {}


def log_out(request: Request) -> Response:
    """Delete the cookie."""
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
