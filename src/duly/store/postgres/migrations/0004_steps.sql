-- Whether a job has recorded steps; how many compensations it has registered; and, while these
-- run, the final state that follows.
ALTER TABLE {schema}.jobs ADD COLUMN stepped boolean NOT NULL DEFAULT false,
    ADD COLUMN undos integer NOT NULL DEFAULT 0, ADD COLUMN undoing text;
ALTER TABLE {schema}.archive ADD COLUMN stepped boolean NOT NULL DEFAULT false,
    ADD COLUMN undos integer NOT NULL DEFAULT 0, ADD COLUMN undoing text;
ALTER TABLE {schema}.dead ADD COLUMN stepped boolean NOT NULL DEFAULT false,
    ADD COLUMN undos integer NOT NULL DEFAULT 0, ADD COLUMN undoing text;

-- A suspended job is claimed when its time comes, as a pending one is.
DROP INDEX {schema}.jobs_lane;
CREATE INDEX jobs_lane ON {schema}.jobs (queue, task, priority, run_at, id)
    WHERE state IN ('pending', 'waiting');

CREATE TABLE {schema}.steps (
    job_id        uuid NOT NULL,
    name          text NOT NULL,
    key           text NOT NULL,
    kind          text NOT NULL,
    state         text NOT NULL,
    number        integer NOT NULL,
    attempt       integer NOT NULL,
    tries         integer NOT NULL,
    fingerprint   text,
    result        text,
    error_type    text,
    error_message text,
    until         timestamptz,
    child_id      uuid,
    event_id      text,
    at            timestamptz NOT NULL,
    PRIMARY KEY (job_id, name, key)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 5000);
CREATE INDEX steps_at ON {schema}.steps (at);

CREATE TABLE {schema}.events (
    number  bigint GENERATED ALWAYS AS IDENTITY,
    id      text PRIMARY KEY,
    name    text NOT NULL,
    key     text,
    payload text NOT NULL,
    job_id  uuid,
    at      timestamptz NOT NULL
);
CREATE INDEX events_key ON {schema}.events (name, key, number);
CREATE INDEX events_name ON {schema}.events (name, number);
CREATE INDEX events_at ON {schema}.events (at);

-- Which events suspended jobs wait for.
CREATE TABLE {schema}.waits (
    job_id uuid NOT NULL,
    name   text NOT NULL,
    key    text
) WITH (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 5000);
CREATE INDEX waits_job ON {schema}.waits (job_id);
CREATE INDEX waits_name ON {schema}.waits (name, key);

-- Tasks that are started for events, as running code declares them.
CREATE TABLE {schema}.subscriptions (
    name       text PRIMARY KEY,
    definition text NOT NULL,
    last_seen  timestamptz NOT NULL
) WITH (fillfactor = 50);
