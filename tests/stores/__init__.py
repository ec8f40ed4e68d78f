"""One behavioural suite for every store: what the contract promises, on memory, SQLite and Postgres alike."""
