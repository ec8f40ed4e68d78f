"""The log: which task a record is about, and how it becomes a line."""
