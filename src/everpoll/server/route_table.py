"""The route table: every call of the HTTP API, in the order of the reference."""

from everpoll.server.alias_routes import ALIAS_ROUTES
from everpoll.server.beat_routes import BEAT_ROUTES
from everpoll.server.bulk_routes import BULK_ROUTES
from everpoll.server.causes_routes import CAUSES_ROUTES
from everpoll.server.doctor_routes import DOCTOR_ROUTES
from everpoll.server.events_routes import EVENT_ROUTES
from everpoll.server.fleet_routes import FLEET_ROUTES
from everpoll.server.health_routes import HEALTH_ROUTES
from everpoll.server.incidents_routes import INCIDENT_ROUTES
from everpoll.server.jobs_routes import JOB_ROUTES
from everpoll.server.log_routes import LOG_ROUTES
from everpoll.server.loops_routes import LOOP_ROUTES
from everpoll.server.metrics_routes import METRICS_ROUTES
from everpoll.server.openapi import document_route
from everpoll.server.polling_routes import POLLING_ROUTES
from everpoll.server.queues_routes import QUEUE_ROUTES
from everpoll.server.records_routes import RECORD_ROUTES
from everpoll.server.runs_routes import RUN_ROUTES
from everpoll.server.series_routes import SERIES_ROUTES
from everpoll.server.service_orders_routes import SERVICE_ORDER_ROUTES
from everpoll.server.services_routes import SERVICE_ROUTES

ROUTES = [
    *HEALTH_ROUTES,
    *METRICS_ROUTES,
    *BULK_ROUTES,
    *CAUSES_ROUTES,
    *JOB_ROUTES,
    *RUN_ROUTES,
    *POLLING_ROUTES,
    *SERVICE_ROUTES,
    *SERVICE_ORDER_ROUTES,
    *RECORD_ROUTES,
    *ALIAS_ROUTES,
    *BEAT_ROUTES,
    *INCIDENT_ROUTES,
    *LOOP_ROUTES,
    *FLEET_ROUTES,
    *QUEUE_ROUTES,
    *DOCTOR_ROUTES,
    *SERIES_ROUTES,
    *EVENT_ROUTES,
    *LOG_ROUTES,
]
ROUTES.append(document_route(ROUTES))
