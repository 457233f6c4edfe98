-- Rules that make jobs. `definition` is a JSON text that is written and compared as a whole; what
-- statements read of it has columns of its own.
CREATE TABLE {schema}.schedules (
    id                   text PRIMARY KEY,
    definition           text NOT NULL,
    fingerprint          text,
    paused               boolean NOT NULL,
    note                 text,
    accounted_until      timestamptz NOT NULL,
    next_at              timestamptz,
    due_at               timestamptz,
    awaits_end           boolean NOT NULL,
    skipping_since       timestamptz,
    failures_in_a_row    integer NOT NULL,
    last_finished_at     timestamptz,
    last_success_for     timestamptz,
    last_result          text,
    revision             bigint NOT NULL,
    created_at           timestamptz NOT NULL,
    updated_at           timestamptz NOT NULL,
    application          text,
    pause_after_failures integer
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);

-- Lists are in the order of bytes, as on every engine.
CREATE INDEX schedules_id ON {schema}.schedules (id COLLATE "C");

-- A scheduler reads what is due, and the first time to come: one look at this index each.
CREATE INDEX schedules_due ON {schema}.schedules (due_at) WHERE NOT paused AND due_at IS NOT NULL;

-- What became of each nominal time, or of a run of them up to `until`.
CREATE TABLE {schema}.ticks (
    schedule_id text NOT NULL,
    nominal     timestamptz NOT NULL,
    kind        text NOT NULL,
    outcome     text NOT NULL,
    reason      text,
    until       timestamptz,
    count       integer NOT NULL,
    job_id      uuid,
    at          timestamptz NOT NULL,
    PRIMARY KEY (schedule_id, nominal, kind)
);
CREATE INDEX ticks_buffered ON {schema}.ticks (schedule_id, nominal) WHERE outcome = 'buffered';
CREATE INDEX ticks_at ON {schema}.ticks (at);

-- Schedules as the code of running nodes declares them.
CREATE TABLE {schema}.declarations (
    application text NOT NULL,
    schedule_id text NOT NULL,
    fingerprint text NOT NULL,
    definition  text NOT NULL,
    first_seen  timestamptz NOT NULL,
    last_seen   timestamptz NOT NULL,
    PRIMARY KEY (application, schedule_id, fingerprint)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 500);

CREATE INDEX jobs_schedule ON {schema}.jobs (schedule_id) WHERE schedule_id IS NOT NULL;
