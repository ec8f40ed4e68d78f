"""Errors for a package that the plain installation does not have: its name, and how to install it."""

from everpoll.errors import BadInput


def missing_package(what: str, package: str, extra: str) -> BadInput:
    """Return the error. everpoll is installed from a clone, so the command names the path of the clone."""
    return BadInput(
        f"{what} needs the package {package}, which is not installed: pip install {package}, or, with everpoll itself, "
        f"pip install 'path/to/the/clone[{extra}]'"
    )


def missing_server(package: str | None) -> BadInput:
    """Return the error for an HTTP API without its packages; it needs several, so only the extra is named."""
    return BadInput(
        f"the HTTP API needs the package {package}, which is not installed: pip install 'path/to/the/clone[server]'"
    )
