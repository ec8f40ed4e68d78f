-- Tasks that wait for others are counted by queue. Tasks outside of chains and groups have no entry in this index.
create index everpoll_tasks_blocked on everpoll_tasks (queue) where line = 5;
