"""Where the browser is. Playwright brings none of its own here: the system's Chromium serves."""

import os
import shutil

NAMES = ("chromium", "chromium-browser", "google-chrome")


class NoBrowser(RuntimeError):
    """There is nothing to replay in; the message says how to get it."""


def chromium() -> str:
    """Where the browser is: `$CHROMIUM`, or the first of the usual names on PATH."""
    wanted = os.environ.get("CHROMIUM")
    for name in [wanted] if wanted else NAMES:
        if (path := shutil.which(name)) is not None:
            return path
    looked = f"$CHROMIUM is {wanted!r}, which is not a program" if wanted else f"none of {', '.join(NAMES)} is on PATH"
    raise NoBrowser(f"no Chromium: {looked}; install one (Debian: apt install chromium) or set $CHROMIUM to its path")
