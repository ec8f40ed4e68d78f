"""Tables over HTTPS: what is special about Supabase and PostgREST."""
