"""Real servers for tests and benchmarks, started for the length of a session and gone after it."""
