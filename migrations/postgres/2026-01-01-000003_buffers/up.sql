-- What a buffer holds, and the rev behind it, is told by its first and its last row, so that an op set that comes changes no row of a job.
-- Which it is of those that came since the buffer was empty, from 1 on, and how long their bodies are up to this one.
ALTER TABLE op_set ADD COLUMN place BIGINT;
ALTER TABLE op_set ADD COLUMN bytes BIGINT;
UPDATE op_set SET place = told.place, bytes = told.bytes
    FROM (SELECT seq, row_number() OVER of_job AS place, sum(length(body)) OVER of_job AS bytes FROM op_set
        WINDOW of_job AS (PARTITION BY job ORDER BY seq)) AS told
    WHERE told.seq = op_set.seq;
ALTER TABLE op_set ALTER COLUMN place SET NOT NULL;
ALTER TABLE op_set ALTER COLUMN bytes SET NOT NULL;
ALTER TABLE job DROP COLUMN buffered_op_sets;
ALTER TABLE job DROP COLUMN buffered_bytes;
