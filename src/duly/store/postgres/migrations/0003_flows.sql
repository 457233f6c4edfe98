-- Jobs that depend on each other. A flow's row is locked by whoever moves it on, before any of its
-- jobs; the counters tell its progress without counting.
CREATE TABLE {schema}.flows (
    id          uuid PRIMARY KEY,
    name        text NOT NULL,
    state       text NOT NULL,
    policy      text NOT NULL,
    max_active  integer,
    total       integer NOT NULL,
    open        integer NOT NULL,
    succeeded   integer NOT NULL,
    failed      integer NOT NULL,
    cancelled   integer NOT NULL,
    skipped     integer NOT NULL,
    failures    integer NOT NULL,
    reason      text,
    parent_id   uuid,
    schedule_id text,
    created_at  timestamptz NOT NULL,
    finished_at timestamptz
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
CREATE INDEX flows_active ON {schema}.flows (name, id) WHERE finished_at IS NULL;
CREATE INDEX flows_finished ON {schema}.flows (finished_at) WHERE finished_at IS NOT NULL;

-- The id of a node that is one job is that job's. `result` is kept where another node needs it:
-- the job itself may be forgotten before that runs.
CREATE TABLE {schema}.flow_nodes (
    id        uuid PRIMARY KEY,
    flow_id   uuid NOT NULL,
    number    integer NOT NULL,
    name      text NOT NULL,
    kind      text NOT NULL,
    rule      text NOT NULL,
    state     text NOT NULL,
    waits_for integer NOT NULL,
    succeeded integer NOT NULL,
    failed    integer NOT NULL,
    skipped   integer NOT NULL,
    spared    boolean NOT NULL,
    tolerated boolean NOT NULL,
    kept      boolean NOT NULL,
    delay     double precision,
    bindings  text,
    expansion text,
    item_of   uuid,
    position  integer NOT NULL,
    reason    text,
    result    text
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 5000);
CREATE INDEX flow_nodes_flow ON {schema}.flow_nodes (flow_id, number, position);
CREATE INDEX flow_nodes_item ON {schema}.flow_nodes (item_of, position) WHERE item_of IS NOT NULL;

CREATE TABLE {schema}.flow_edges (
    parent    uuid NOT NULL,
    child     uuid NOT NULL,
    condition text NOT NULL,
    PRIMARY KEY (parent, child)
);
