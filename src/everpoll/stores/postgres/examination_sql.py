"""The queries of `everpoll doctor`. Any role may read catalogs and statistics; what it may not see is counted."""

from dataclasses import dataclass

from everpoll.stores.examination import KEYS_SHOWN, Plan
from everpoll.stores.postgres.functions import versioned
from everpoll.stores.set_aside import SET_ASIDE, UNKNOWN_JOB

# As the functions that lease and list have them: the plans here are the plans there.
SETTINGS = """set local statement_timeout = {limit_ms}; set local lock_timeout = {limit_ms};
    set local enable_seqscan = off; set local enable_bitmapscan = off; set local jit = off"""
WHERE = """select format('PostgreSQL %s, database %s, as role %s',
    split_part(current_setting('server_version'), ' ', 1), current_database(), current_user)"""
# From the catalog, which needs no right on the schema.
TABLES_THERE = """select count(*) filter (where c.relname = 'migrations') > 0,
        count(*) filter (where c.relname = 'function_sets') > 0
    from pg_class c join pg_namespace n on n.oid = c.relnamespace where n.nspname = 'everpoll'"""
INDEXES = """select c.relname, i.indisvalid from pg_index i join pg_class c on c.oid = i.indexrelid
    join pg_namespace n on n.oid = c.relnamespace where n.nspname = 'everpoll'"""
NOW = "select extract(epoch from clock_timestamp())::float8"
SESSIONS = """select pid, usename, application_name, coalesce('from ' || client_addr::text, 'over a local socket'),
        state, extract(epoch from clock_timestamp() - xact_start)::float8
    from pg_stat_activity
    where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'
      and xact_start <= clock_timestamp() - $1 * interval '1 second' order by xact_start limit 10"""
PREPARED = """select gid, quote_literal(gid), owner, extract(epoch from clock_timestamp() - prepared)::float8
    from pg_prepared_xacts
    where database = current_database() and prepared <= clock_timestamp() - $1 * interval '1 second'
    order by prepared limit 10"""
HIDDEN = """select count(*) filter (where query = '<insufficient privilege>'),
        format('grant pg_read_all_stats to %I', current_user)
    from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"""
LEASES = versioned("""select owner, sum(tasks) from everpoll.running($1) where owner is not null
    group by owner order by owner""")
# Of those without a limit, what was leased a moment ago is in another line: none of it is long past its deadline.
OVERDUE = """select count(*), max(late_s) from (
    select extract(epoch from clock_timestamp() - started_at)::float8 - timeout_s as late_s
      from (select * from (select started_at, timeout_s from everpoll.tasks where line = 2 limit $1) held
            union all
            select * from (select started_at, timeout_s from everpoll.tasks where line = 4 limit $1) limited) leased
     where timeout_s is not null) late where late_s > $2"""
DUE = versioned(f"""select q.queue, head.kind, head.name, head.version, count(*),
        max(extract(epoch from clock_timestamp() - head.due_at))::float8,
        (array_agg(head.key order by head.due_at) filter (where head.key is not null))[1:{KEYS_SHOWN}]
    from everpoll.queue_names() q(queue) cross join lateral (
        (select t.kind, t.name, t.version, t.key, t.due_at from everpoll.tasks t
          where t.line = 0 and not t.is_leased and t.queue = q.queue
          order by t.queue, t.rank, t.due_at, t.id limit $1)
        union all
        (select t.kind, t.name, t.version, t.key, t.due_at from everpoll.tasks t
          where t.line = 3 and t.queue = q.queue
          order by t.queue, t.rank, t.limit_key, t.due_at, t.id limit $1)
        union all
        (select t.kind, t.name, t.version, t.key, t.due_at from everpoll.tasks t
          where t.line = 1 and t.queue = q.queue and t.due_at <= now()
          order by t.queue, t.due_at limit $1)
        union all
        (select t.kind, t.name, t.version, t.key, t.created_at from everpoll.tasks t
          where t.error_type = '{UNKNOWN_JOB}' and t.line = 1 and t.queue = q.queue and t.due_at > now()
            and t.trail[cardinality(t.trail)] like '%"what":"{SET_ASIDE}"%'
          order by t.id limit $1)) head
    group by 1, 2, 3, 4 order by 1, 2, 3, 4""")  # noqa: S608 - a constant
ROWS = """select relname, n_live_tup, n_dead_tup, pg_total_relation_size(relid),
        extract(epoch from clock_timestamp() - greatest(last_vacuum, last_autovacuum))::float8
    from pg_stat_user_tables where schemaname = 'everpoll' order by n_dead_tup desc limit 20"""
CONNECTIONS = """with sessions as (
        select datname, usename from pg_stat_activity where backend_type = 'client backend')
    select count(*), current_setting('max_connections')::int
            - current_setting('superuser_reserved_connections')::int, 'the server' from sessions
    union all select (select count(*) from sessions s where s.datname = d.datname), d.datconnlimit,
        format('the database %s', d.datname) from pg_database d
        where d.datname = current_database() and d.datconnlimit >= 0
    union all select (select count(*) from sessions s where s.usename = r.rolname), r.rolconnlimit,
        format('the role %s', r.rolname) from pg_roles r where r.rolname = current_user and r.rolconnlimit >= 0"""


@dataclass(frozen=True, slots=True)
class Question:
    """A frequent query, and the index that it must use."""

    words: str
    index: str
    statement: str
    has_partitions: bool = False
    """True: the table has partitions, each of which has an index with a name of its own."""

    def judged(self, lines: list[str]) -> Plan:
        """Return whether a plan uses the index."""
        plan = "; ".join(line.strip() for line in lines)
        is_used = "Seq Scan" not in plan and (self.has_partitions or f"using {self.index} " in plan)
        return Plan(question=self.words, index=self.index, is_used=is_used, plan=plan[:200])


QUESTIONS = (
    Question(
        "the next ready task of a queue",
        "tasks_ready",
        """select t.id from everpoll.tasks t where t.line = 0 and t.queue = 'default'
            order by t.queue, t.rank, t.due_at, t.id limit 1""",
    ),
    Question(
        "the next task of a queue to fall due",
        "tasks_waiting",
        """select t.due_at from everpoll.tasks t where t.line = 1 and t.queue = 'default'
            order by t.queue, t.due_at limit 1""",
    ),
    Question(
        "the live task of a key",
        "tasks_key",
        "select t.id from everpoll.tasks t where t.key = 'key' and t.kind = 'kind'",
    ),
    Question(
        "an ended task",
        "history_id",
        "select h.state from everpoll.history h where h.id = 1",
        has_partitions=True,
    ),
)
