"""`everpoll services`: the commands about monitored services, put together."""

import typer

from everpoll.cli.incidents import acknowledge, list_incidents
from everpoll.cli.service_changes import add, beat, mute, remove, unmute
from everpoll.cli.service_check import check_service
from everpoll.cli.service_import import import_services
from everpoll.cli.service_list import list_services
from everpoll.cli.service_show import show

services = typer.Typer(name="services", help="List, show, add, remove, check and mute services.", no_args_is_help=True)
services.command("list")(list_services)
services.command("show")(show)
services.command("add")(add)
services.command("remove")(remove)
services.command("check")(check_service)
services.command("mute")(mute)
services.command("unmute")(unmute)
services.command("beat")(beat)
services.command("import")(import_services)
services.command("incidents")(list_incidents)
services.command("ack")(acknowledge)
