"""Formats: one file for each way in which services write their health; each reads a body into a `Gathering`.

A reader returns what the body says about the service, None where the HTTP status must decide, and raises `Unreadable`
for a body of another shape.
"""
