"""The user's own table over HTTPS: in a Supabase project, or behind any PostgREST server."""

from everpoll.errors import BadInput

try:
    import aiohttp as _aiohttp  # noqa: F401 - only to find out whether the extra is installed
except ImportError as error:
    raise BadInput("a table over HTTPS needs the extra: pip install 'everpoll[supabase]'") from error

from everpoll.tables.supabase.source import SupabaseTable

__all__ = ["SupabaseTable"]
