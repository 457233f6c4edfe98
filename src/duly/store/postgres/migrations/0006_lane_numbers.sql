-- A lane in its index is one number instead of its names, which took a tenth of the time of storing
-- a job to compare; see lanes.py. Lanes of one number lie among each other, so claims ask for the
-- names too. The release before goes on without it, but reads all that is pending for each claim.
DROP INDEX {schema}.jobs_lane;
CREATE INDEX jobs_lane ON {schema}.jobs
    (hashtextextended(task, hashtextextended(queue, priority)), run_at, id)
    WHERE state IN ('pending', 'waiting');
