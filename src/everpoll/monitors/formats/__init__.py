"""Formats: one file for each format of health answers; each reads a body into a `Gathering`.

`read` returns the status of the service in the body, or None if the HTTP status must decide. It raises `Unreadable` for
a body of another shape.
"""
