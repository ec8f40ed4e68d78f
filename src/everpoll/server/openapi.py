"""The OpenAPI 3.1 document, from the route table and the schemas of its structs."""

import functools
from http import HTTPStatus
from typing import Any

import msgspec

from everpoll.server.answers import MEDIA as JSON
from everpoll.server.problems import MEDIA as PROBLEM
from everpoll.server.problems import ProblemDocument
from everpoll.server.route import ApiCall, Route
from everpoll.version import __version__

PATH = "/openapi.json"
COMMON = (400, 401, 403, 422, 500, 503)
"""The problems that any call may return."""
REF = "#/components/schemas/{name}"
_ABOUT = (
    "Errors are problem documents (RFC 9457). Lists have a cursor, `after`, and an ETag. "
    "Integers beyond 2^53 are strings. Bodies have at most 1 MiB."
)


def document_route(routes: list[Route]) -> Route:
    """Return the route of the document that describes these routes and itself."""

    @functools.cache
    def made() -> dict[str, Any]:
        return document(routes)

    async def show_document(_asked: ApiCall) -> dict[str, Any]:
        return made()

    return Route(
        method="GET",
        path=PATH,
        noun="about",
        summary="Describe this API as OpenAPI 3.1.",
        handler=show_document,
        answer=dict[str, Any],
        example={"openapi": "3.1.0", "info": {"title": "everpoll", "version": __version__}, "paths": {}},
    )


def document(routes: list[Route]) -> dict[str, Any]:
    """Return the document of these routes."""
    types = _types(routes)
    schemas, components = msgspec.json.schema_components(list(types), ref_template=REF)
    by_type = dict(zip(types, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, by_type)
    return {
        "openapi": "3.1.0",
        "info": {"title": "everpoll", "version": __version__, "description": _ABOUT},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "session": {"type": "apiKey", "in": "cookie", "name": "everpoll_session"},
            },
        },
    }


def _types(routes: list[Route]) -> list[Any]:
    found: dict[Any, None] = {ProblemDocument: None}
    for route in routes:
        for one in (route.query, route.body, route.answer):
            if one is not None:
                found[one] = None
    return list(found)


def _operation(route: Route, schemas: dict[Any, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": route.handler.__name__,
        "summary": route.summary,
        "tags": [route.noun],
        "parameters": [*_path_parameters(route), *_query_parameters(route)],
        "responses": _responses(route, schemas),
        "security": [] if route.access == "public" else [{"token": []}, {"session": []}],
    }
    if route.body is not None:
        content = {JSON: {"schema": schemas[route.body], "example": route.body_example}}
        operation["requestBody"] = {"required": route.needs_body, "content": content}
    return operation


def _path_parameters(route: Route) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in route.parameters
    ]


def _query_parameters(route: Route) -> list[dict[str, Any]]:
    [schema], components = msgspec.json.schema_components([route.query], ref_template="{name}")
    parameters = components[schema["$ref"]]
    needed = parameters["required"]
    # A query cannot contain null: leave the parameter out instead.
    return [
        {"name": name, "in": "query", "required": name in needed, "schema": _without_null(one)}
        for name, one in parameters["properties"].items()
    ]


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    schema = {name: value for name, value in schema.items() if not (name == "default" and value is None)}
    choices = [one for one in schema.get("anyOf", ()) if one != {"type": "null"}]
    if "anyOf" in schema:
        del schema["anyOf"]
        schema |= choices[0] if len(choices) == 1 else {"anyOf": choices}
    if "enum" in schema:
        schema["enum"] = [one for one in schema["enum"] if one is not None]
    return schema


def _responses(route: Route, schemas: dict[Any, Any]) -> dict[str, Any]:
    responses: dict[str, Any] = {}
    for status in (route.status, *route.also):
        responses[str(status)] = _success(route, status, schemas)
    if route.method == "GET" and route.media == JSON:
        responses["304"] = {"description": "Not Modified: the client has this answer already"}
    problem = {"content": {PROBLEM: {"schema": schemas[ProblemDocument]}}}
    sizes = (408, 413) if route.method != "GET" else ()
    for status in sorted({*COMMON, *route.problems, *sizes}):
        responses.setdefault(str(status), {"description": HTTPStatus(status).phrase, **problem})
    return responses


def _success(route: Route, status: int, schemas: dict[Any, Any]) -> dict[str, Any]:
    described: dict[str, Any] = {"description": HTTPStatus(status).phrase}
    if status == 204 or (route.answer is None and route.media == JSON):
        return described
    schema = {"type": "string"} if route.answer is None else schemas[route.answer]
    return described | {"content": {route.media: {"schema": schema, "example": route.example}}}
