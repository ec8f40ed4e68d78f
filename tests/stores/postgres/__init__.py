"""What only Postgres can do wrong: plans, dead rows, poolers, outages."""
