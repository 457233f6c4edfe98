-- Live jobs only: pending, blocked, running, waiting. A job is inserted, updated by its claim and
-- deleted by its settlement, so the table stays small and is vacuumed often.
CREATE TABLE {schema}.jobs (
    id                  uuid NOT NULL,
    task                text NOT NULL,
    queue               text NOT NULL,
    priority            smallint NOT NULL,
    state               text NOT NULL,
    run_at              timestamptz NOT NULL,
    created_at          timestamptz NOT NULL,
    arguments           text NOT NULL,
    token               integer NOT NULL,
    attempt             integer NOT NULL,
    max_attempts        integer NOT NULL,
    crashes             integer NOT NULL,
    max_crashes         integer NOT NULL,
    generation          integer NOT NULL,
    delivery            text NOT NULL,
    alone               boolean NOT NULL,
    key                 text,
    key_window          double precision,
    owner               text,
    tenant              text,
    timeout             double precision,
    expires_at          timestamptz,
    tags                text[],
    metadata            text,
    parent_id           uuid,
    flow_id             uuid,
    schedule_id         text,
    scheduled_for       timestamptz,
    worker              uuid,
    cancel_requested_at timestamptz,
    started_at          timestamptz,
    finished_at         timestamptz,
    result              text,
    reason              text,
    error_type          text,
    error_message       text,
    error_traceback     text,
    error_fingerprint   text,
    PRIMARY KEY (id)
) WITH (
    fillfactor = 80,
    autovacuum_vacuum_scale_factor = 0.0,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_insert_scale_factor = 0.1,
    autovacuum_analyze_scale_factor = 0.05,
    autovacuum_analyze_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0
);

-- A claim probes one lane (queue, task, priority) and reads only what is due in it.
CREATE INDEX jobs_lane ON {schema}.jobs (queue, task, priority, run_at, id) WHERE state = 'pending';
CREATE INDEX jobs_worker ON {schema}.jobs (worker) WHERE state = 'running';
CREATE INDEX jobs_expiry ON {schema}.jobs (expires_at)
    WHERE state = 'pending' AND expires_at IS NOT NULL;

-- Succeeded and cancelled jobs, a partition for each day they finished on; retention drops whole
-- partitions. The default partition takes what no other does.
CREATE TABLE {schema}.archive (
    id                  uuid NOT NULL,
    task                text NOT NULL,
    queue               text NOT NULL,
    priority            smallint NOT NULL,
    state               text NOT NULL,
    run_at              timestamptz NOT NULL,
    created_at          timestamptz NOT NULL,
    arguments           text NOT NULL,
    token               integer NOT NULL,
    attempt             integer NOT NULL,
    max_attempts        integer NOT NULL,
    crashes             integer NOT NULL,
    max_crashes         integer NOT NULL,
    generation          integer NOT NULL,
    delivery            text NOT NULL,
    alone               boolean NOT NULL,
    key                 text,
    key_window          double precision,
    owner               text,
    tenant              text,
    timeout             double precision,
    expires_at          timestamptz,
    tags                text[],
    metadata            text,
    parent_id           uuid,
    flow_id             uuid,
    schedule_id         text,
    scheduled_for       timestamptz,
    worker              uuid,
    cancel_requested_at timestamptz,
    started_at          timestamptz,
    finished_at         timestamptz,
    result              text,
    reason              text,
    error_type          text,
    error_message       text,
    error_traceback     text,
    error_fingerprint   text
) PARTITION BY RANGE (finished_at);
CREATE INDEX archive_id ON {schema}.archive (id);
CREATE TABLE {schema}.archive_default PARTITION OF {schema}.archive DEFAULT;

-- Jobs that exhausted their attempts, with everything needed to inspect and replay them.
CREATE TABLE {schema}.dead (
    id                  uuid NOT NULL,
    task                text NOT NULL,
    queue               text NOT NULL,
    priority            smallint NOT NULL,
    state               text NOT NULL,
    run_at              timestamptz NOT NULL,
    created_at          timestamptz NOT NULL,
    arguments           text NOT NULL,
    token               integer NOT NULL,
    attempt             integer NOT NULL,
    max_attempts        integer NOT NULL,
    crashes             integer NOT NULL,
    max_crashes         integer NOT NULL,
    generation          integer NOT NULL,
    delivery            text NOT NULL,
    alone               boolean NOT NULL,
    key                 text,
    key_window          double precision,
    owner               text,
    tenant              text,
    timeout             double precision,
    expires_at          timestamptz,
    tags                text[],
    metadata            text,
    parent_id           uuid,
    flow_id             uuid,
    schedule_id         text,
    scheduled_for       timestamptz,
    worker              uuid,
    cancel_requested_at timestamptz,
    started_at          timestamptz,
    finished_at         timestamptz,
    result              text,
    reason              text,
    error_type          text,
    error_message       text,
    error_traceback     text,
    error_fingerprint   text,
    PRIMARY KEY (id)
);
CREATE INDEX dead_finished ON {schema}.dead (finished_at);
CREATE INDEX dead_fingerprint ON {schema}.dead (error_fingerprint);

-- Every lane that ever had a job. Claims go through it, so that jobs of tasks that no live worker
-- knows are never read. Without a unique constraint: inserting the first job of a lane in a long
-- transaction must not make others wait. Readers take the distinct rows.
CREATE TABLE {schema}.lanes (
    queue    text NOT NULL,
    task     text NOT NULL,
    priority smallint NOT NULL
);
CREATE INDEX lanes_lane ON {schema}.lanes (queue, task, priority);

-- Who holds a key: a live job, or a finished one until held_until.
CREATE TABLE {schema}.keys (
    task       text NOT NULL,
    key        text NOT NULL,
    job_id     uuid NOT NULL,
    held_until timestamptz,
    PRIMARY KEY (task, key)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 5000);
CREATE INDEX keys_held_until ON {schema}.keys (held_until) WHERE held_until IS NOT NULL;

-- Attempts of live and dead jobs; those of archived jobs lie in partitions beside them.
CREATE TABLE {schema}.attempts (
    job_id            uuid NOT NULL,
    token             integer NOT NULL,
    number            integer NOT NULL,
    generation        integer NOT NULL,
    worker            uuid,
    started_at        timestamptz NOT NULL,
    ended_at          timestamptz NOT NULL,
    outcome           text NOT NULL,
    error_type        text,
    error_message     text,
    error_traceback   text,
    error_fingerprint text,
    PRIMARY KEY (job_id, token)
);
CREATE TABLE {schema}.archived_attempts (
    job_id            uuid NOT NULL,
    token             integer NOT NULL,
    number            integer NOT NULL,
    generation        integer NOT NULL,
    worker            uuid,
    started_at        timestamptz NOT NULL,
    ended_at          timestamptz NOT NULL,
    outcome           text NOT NULL,
    error_type        text,
    error_message     text,
    error_traceback   text,
    error_fingerprint text
) PARTITION BY RANGE (ended_at);
CREATE INDEX archived_attempts_job ON {schema}.archived_attempts (job_id);
CREATE TABLE {schema}.archived_attempts_default
    PARTITION OF {schema}.archived_attempts DEFAULT;

-- A heartbeat updates lease_until only, which is in no index: the row is updated in place.
CREATE TABLE {schema}.workers (
    id              uuid PRIMARY KEY,
    name            text NOT NULL,
    machine         text NOT NULL,
    pid             integer NOT NULL,
    process_started bigint NOT NULL,
    queues          text[] NOT NULL,
    tasks           text[] NOT NULL,
    version         text NOT NULL,
    started_at      timestamptz NOT NULL,
    lease_until     timestamptz NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 500);

CREATE TABLE {schema}.paused_queues (
    queue text PRIMARY KEY,
    note  text
);

CREATE TABLE {schema}.catalogue (
    name  text PRIMARY KEY,
    entry text NOT NULL
);

-- What jobs say of themselves while they run.
CREATE TABLE {schema}.progress (
    job_id   uuid PRIMARY KEY,
    token    integer NOT NULL,
    fraction double precision NOT NULL,
    message  text NOT NULL,
    at       timestamptz NOT NULL
) WITH (fillfactor = 70);
CREATE TABLE {schema}.log_lines (
    number  bigint GENERATED ALWAYS AS IDENTITY,
    job_id  uuid NOT NULL,
    token   integer NOT NULL,
    at      timestamptz NOT NULL,
    level   text NOT NULL,
    logger  text NOT NULL,
    message text NOT NULL
);
CREATE INDEX log_lines_job ON {schema}.log_lines (job_id, number);
CREATE INDEX log_lines_at ON {schema}.log_lines (at);
