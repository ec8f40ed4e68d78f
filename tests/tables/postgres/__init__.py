"""What is special about tables in Postgres."""
