"""Connections to a PostgREST server, bare or of a Supabase project: requests, errors, the database's time, Realtime."""
