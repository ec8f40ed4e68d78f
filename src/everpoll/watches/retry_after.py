"""Retry-After for the functions of a watch: the earliest time at which the remote wants the next call."""

from everpoll.http.retry_after import LONGEST, retry_after_s

__all__ = ["LONGEST", "retry_after_s"]
