"""What is special about a table in an SQLite file."""
