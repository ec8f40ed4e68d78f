-- The tasks that a worker can run, as it said when it signed on; null: a worker of an earlier release, which did not.
alter table everpoll.workers add column if not exists names text[];
