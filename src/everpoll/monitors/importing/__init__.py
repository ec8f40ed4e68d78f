"""Importing: the configuration of other monitors, translated into services of everpoll.

Pure: the caller reads the file, and registers what comes out. What cannot be carried over is listed in notes.
"""

from everpoll.monitors.importing.depsera import from_depsera
from everpoll.monitors.importing.gatus import from_gatus
from everpoll.monitors.importing.imported import Imported

__all__ = ["Imported", "from_depsera", "from_gatus"]
