"""What breaks in production, done on purpose to real worker processes on real databases."""
