"""Retry-After, for the functions of a watch: what a remote says about when to ask again."""

from everpoll.http.retry_after import LONGEST, retry_after_s

__all__ = ["LONGEST", "retry_after_s"]
