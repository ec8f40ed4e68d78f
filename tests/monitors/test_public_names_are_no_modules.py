"""A public name of `everpoll.monitors` is what it says, whatever else of the room was imported before."""

import pkgutil

import everpoll.monitors


def test_no_module_of_the_room_has_a_public_name() -> None:
    """Importing a module sets its name on the room: a function of the same name would be hidden behind it."""
    modules = {one.name for one in pkgutil.iter_modules(everpoll.monitors.__path__)}
    assert modules.isdisjoint(everpoll.monitors.__all__)
