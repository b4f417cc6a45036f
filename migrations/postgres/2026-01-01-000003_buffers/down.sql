ALTER TABLE job ADD COLUMN buffered_op_sets BIGINT NOT NULL DEFAULT 0;
ALTER TABLE job ADD COLUMN buffered_bytes BIGINT NOT NULL DEFAULT 0;
UPDATE job SET buffered_op_sets = held.op_sets, buffered_bytes = held.bytes, min_rev = greatest(job.min_rev, held.rev)
    FROM (SELECT job, count(*) AS op_sets, sum(length(body)) AS bytes, max(rev) AS rev FROM op_set GROUP BY job) AS held
    WHERE held.job = job.id;
ALTER TABLE op_set DROP COLUMN place;
ALTER TABLE op_set DROP COLUMN bytes;
