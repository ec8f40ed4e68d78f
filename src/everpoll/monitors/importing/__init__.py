"""Importing: translates the configuration of other monitors into services of everpoll.

Pure: the caller reads the file and registers the services. Notes list what cannot be translated.
"""

from everpoll.monitors.importing.depsera import from_depsera
from everpoll.monitors.importing.gatus import from_gatus
from everpoll.monitors.importing.imported import Imported

__all__ = ["Imported", "from_depsera", "from_gatus"]
