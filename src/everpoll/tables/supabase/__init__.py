"""The user's own table over HTTPS: in a Supabase project, or behind any PostgREST server."""

from everpoll.tables.supabase.source import SupabaseTable

__all__ = ["SupabaseTable"]
