-- What a buffer holds, and the rev behind it, is told by its first and its last row, so that an op set that comes changes no row of a job.
CREATE TABLE op_set_told (
    seq INTEGER NOT NULL PRIMARY KEY,
    job BIGINT NOT NULL,
    rev TEXT NOT NULL,
    data BLOB,
    -- Which it is of those that came since the buffer was empty, from 1 on, and how long their bodies are up to this one.
    place BIGINT NOT NULL,
    bytes BIGINT NOT NULL,
    body BLOB NOT NULL
);
INSERT INTO op_set_told (seq, job, rev, data, place, bytes, body)
    SELECT seq, job, rev, data, row_number() OVER of_job, sum(length(body)) OVER of_job, body FROM op_set
    WINDOW of_job AS (PARTITION BY job ORDER BY seq);
DROP TABLE op_set;
ALTER TABLE op_set_told RENAME TO op_set;
CREATE INDEX op_set_by_job ON op_set (job);
ALTER TABLE job DROP COLUMN buffered_op_sets;
ALTER TABLE job DROP COLUMN buffered_bytes;
