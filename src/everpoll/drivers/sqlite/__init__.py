"""SQLite: connections by the standard library, each in a thread of its own."""
