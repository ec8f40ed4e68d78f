-- Tasks that wait for others are counted by queue. Tasks outside of chains and groups have no entry in this index.
create index tasks_blocked on everpoll.tasks (queue) where line = 5;
