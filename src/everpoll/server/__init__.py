"""server: the HTTP API on Starlette and uvicorn: jobs, runs, services, loops, the fleet, live events, health.

`app.asgi()` makes the ASGI app; `everpoll run APP --serve` and `everpoll serve` run it. Needs the extra `server`.
"""
