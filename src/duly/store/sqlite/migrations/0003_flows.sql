-- Jobs that depend on each other. A flow's row is locked by whoever moves it on, before any of its
-- jobs; the counters tell its progress without counting.
CREATE TABLE flows (
    id          BLOB PRIMARY KEY,
    name        TEXT NOT NULL,
    state       TEXT NOT NULL,
    policy      TEXT NOT NULL,
    max_active  INTEGER,
    total       INTEGER NOT NULL,
    open        INTEGER NOT NULL,
    succeeded   INTEGER NOT NULL,
    failed      INTEGER NOT NULL,
    cancelled   INTEGER NOT NULL,
    skipped     INTEGER NOT NULL,
    failures    INTEGER NOT NULL,
    reason      TEXT,
    parent_id   BLOB,
    schedule_id TEXT,
    created_at  INTEGER NOT NULL,
    finished_at INTEGER
) STRICT;
CREATE INDEX flows_active ON flows (name, id) WHERE finished_at IS NULL;
CREATE INDEX flows_finished ON flows (finished_at) WHERE finished_at IS NOT NULL;

-- The id of a node that is one job is that job's. `result` is kept where another node needs it:
-- the job itself may be forgotten before that runs.
CREATE TABLE flow_nodes (
    id        BLOB PRIMARY KEY,
    flow_id   BLOB NOT NULL,
    number    INTEGER NOT NULL,
    name      TEXT NOT NULL,
    kind      TEXT NOT NULL,
    rule      TEXT NOT NULL,
    state     TEXT NOT NULL,
    waits_for INTEGER NOT NULL,
    succeeded INTEGER NOT NULL,
    failed    INTEGER NOT NULL,
    skipped   INTEGER NOT NULL,
    spared    INTEGER NOT NULL,
    tolerated INTEGER NOT NULL,
    kept      INTEGER NOT NULL,
    delay     REAL,
    bindings  TEXT,
    expansion TEXT,
    item_of   BLOB,
    position  INTEGER NOT NULL,
    reason    TEXT,
    result    TEXT
) STRICT;
CREATE INDEX flow_nodes_flow ON flow_nodes (flow_id, number, position);
CREATE INDEX flow_nodes_item ON flow_nodes (item_of, position) WHERE item_of IS NOT NULL;

CREATE TABLE flow_edges (
    parent    BLOB NOT NULL,
    child     BLOB NOT NULL,
    condition TEXT NOT NULL,
    PRIMARY KEY (parent, child)
) STRICT, WITHOUT ROWID;
