"""A test runner: recordings of a browser, replayed for every line of a CSV, from a table of one's own."""
