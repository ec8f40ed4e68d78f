-- The tasks that a worker can run, as it said when it signed on; null: a worker of an earlier release, which did not.
alter table everpoll_workers add column names text;     -- a JSON array
