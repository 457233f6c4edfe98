-- Every stored change of a job. Written by triggers that are there only while the journal is kept;
-- see journal.py.
CREATE TABLE {schema}.journal (
    number     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job_id     uuid NOT NULL,
    generation integer NOT NULL,
    token      integer NOT NULL,
    attempt    integer NOT NULL,
    before     text,
    after      text NOT NULL,
    due        timestamptz NOT NULL,
    cancelling boolean NOT NULL,
    worker     uuid,
    reason     text,
    at         timestamptz NOT NULL
);
CREATE INDEX journal_job ON {schema}.journal (job_id, number);
CREATE INDEX journal_at ON {schema}.journal (at);
