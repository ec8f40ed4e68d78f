"""`everpoll services check NAME`: lets a worker look at a service now."""

import typer
from msgspec.structs import asdict

from everpoll.cli.health_display import (
    http_word,
    latency,
    print_dependencies,
    print_head,
    print_warnings,
)
from everpoll.cli.service_access import ServiceName, since, with_services
from everpoll.cli.session import AsJson, Url, actor, console, print_json
from everpoll.engine.live_workers import is_any_alive
from everpoll.errors import NotRunning
from everpoll.http.stored_secrets import safe_dependency, without_secrets
from everpoll.monitors.info import ServiceInfo
from everpoll.monitors.report import Status
from everpoll.monitors.service import Service
from everpoll.monitors.services import Services
from everpoll.stores.contract import Store
from everpoll.stores.health import DependencyInfo


def check_service(name: ServiceName, url: Url = None, as_json: AsJson = False) -> None:
    """Let a worker look at a service now. Exit code 0: up, 1: not up, 2: no answer."""

    async def use(services: Services, store: Store) -> tuple[ServiceInfo, list[DependencyInfo]]:
        await services.row(name)
        if not is_any_alive(await store.workers()):
            raise NotRunning(f"service {name!r}: no worker is running to look at it; `everpoll check URL` needs none")
        service = Service(services, name)
        try:
            info = await service.check(by=actor())
        except TimeoutError as error:
            raise NotRunning(str(error)) from None
        return info, [safe_dependency(one) for one in await service.dependencies()]

    info, dependencies = with_services(url, use)
    error, warnings = without_secrets(info.error), without_secrets(info.warnings)
    if as_json:
        details = {"healthy": info.healthy, "error": error, "warnings": warnings, "dependencies": dependencies}
        print_json(asdict(info) | details)
    else:
        out = console()
        facts = [http_word(info.http_status), latency(info.latency_ms), f"looked {since(info.looked_at)}"]
        print_head(out, info.status, info.name, error, facts)
        print_dependencies(out, dependencies)
        print_warnings(out, warnings)
    raise typer.Exit(2 if info.failures else 0 if info.status is Status.UP else 1)
