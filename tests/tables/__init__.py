"""Adopted tables: one behavioural suite on every database, and what is special about each."""
