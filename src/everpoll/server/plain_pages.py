"""Plain pages for browsers, such as the login page. They have no script, and share a stylesheet."""

import html

from starlette.requests import Request
from starlette.responses import Response

from everpoll.server.mounts import base_of

HTML = "text/html; charset=utf-8"
STYLESHEET = "plain.css"
ICON = "icon.svg"
"""A file of the dashboard; callers without a token get it, too."""
_FRAME = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
{more}<title>{title}</title>
<link rel="icon" href="{base}/icon.svg">
<link rel="stylesheet" href="{base}/plain.css">
</head>
<body>
<main>
{body}
</main>
</body>
</html>
"""
# The colours of the dashboard, docs of which are in dashboard/src/app/tokens.css.
_STYLE = """:root {
  color-scheme: light dark;
  --bg: #f6f8fa; --surface: #fff; --text: #17202a; --soft: #4a5563; --border: #d8dee5; --control: #7d8896;
  --accent: #1f5fd6; --on-accent: #fff; --ok: #26795f; --warn: #995600; --fail: #8a0700; --idle: #3f4348;
}
@media (prefers-color-scheme: dark) {
  :root {
    --bg: #0f141a; --surface: #161c24; --text: #e8edf2; --soft: #b4bfcb; --border: #2a343f; --control: #6f7c8a;
    --accent: #7fa8f5; --on-accent: #0f141a; --ok: #6fe3b4; --warn: #f1b047; --fail: #f0604e; --idle: #a3acb8;
  }
}
body {
  margin: 0; background: var(--bg); color: var(--text);
  font: 14px/20px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif;
}
main {
  box-sizing: border-box; max-width: 640px; margin: 12vh auto 48px; padding: 24px;
  border: 1px solid var(--border); border-radius: 8px; background: var(--surface);
}
main:has(form) { max-width: 360px; }
h1 { margin: 0 0 8px; font-size: 20px; line-height: 28px; }
p { margin: 0 0 16px; color: var(--soft); }
a { color: var(--accent); }
label { display: block; margin-bottom: 16px; font-weight: 500; }
input:not([type=hidden]) {
  box-sizing: border-box; display: block; width: 100%; height: 36px; margin-top: 4px; padding: 0 12px;
  border: 1px solid var(--control); border-radius: 4px; background: var(--bg); color: var(--text); font: inherit;
}
button {
  width: 100%; height: 36px; border: 0; border-radius: 4px; background: var(--accent); color: var(--on-accent);
  font: inherit; font-weight: 600; cursor: pointer;
}
:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
ul { margin: 0 -24px -24px; padding: 0; list-style: none; }
li {
  display: flex; justify-content: space-between; gap: 16px; padding: 12px 24px; border-top: 1px solid var(--border);
  overflow-wrap: anywhere;
}
li span { flex: none; font-weight: 600; }
.up { color: var(--ok); }
.degraded { color: var(--warn); }
.down { color: var(--fail); }
.unknown { color: var(--idle); }
.error { color: var(--fail); font-weight: 500; }
@media (max-width: 719px) { main { margin: 12px; } }
"""


def plain_page(request: Request, title: str, body: str, more: str = "") -> str:
    """Return a page; `body` is HTML, `more` goes into its head."""
    return _FRAME.format(title=html.escape(title), body=body, more=more, base=html.escape(base_of(request.scope)))


def stylesheet() -> Response:
    """Return the stylesheet. Callers without a token get it, too."""
    return Response(_STYLE, headers={"Cache-Control": "max-age=3600"}, media_type="text/css")
