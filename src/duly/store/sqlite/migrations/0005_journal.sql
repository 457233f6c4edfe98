-- Every stored change of a job. Written by triggers that are there only while the journal is kept;
-- see journal.py.
CREATE TABLE journal (
    number     INTEGER PRIMARY KEY AUTOINCREMENT,
    job_id     BLOB NOT NULL,
    generation INTEGER NOT NULL,
    token      INTEGER NOT NULL,
    attempt    INTEGER NOT NULL,
    before     TEXT,
    after      TEXT NOT NULL,
    due        INTEGER NOT NULL,
    cancelling INTEGER NOT NULL,
    worker     BLOB,
    reason     TEXT,
    at         INTEGER NOT NULL
) STRICT;
CREATE INDEX journal_job ON journal (job_id, number);
CREATE INDEX journal_at ON journal (at);
