CREATE TABLE consumer (
    id BIGINT NOT NULL PRIMARY KEY,
    name TEXT NOT NULL UNIQUE
) WITHOUT ROWID;

CREATE TABLE host (
    id INTEGER NOT NULL PRIMARY KEY,
    name TEXT NOT NULL UNIQUE
);

CREATE TABLE repo (
    id INTEGER NOT NULL PRIMARY KEY,
    did TEXT NOT NULL UNIQUE,
    host BIGINT
);

CREATE TABLE job (
    id INTEGER NOT NULL PRIMARY KEY,
    consumer BIGINT NOT NULL,
    repo BIGINT NOT NULL,
    -- The same as the repo's, so that one index tells what is due at a host.
    host BIGINT,
    state TEXT NOT NULL,
    -- When the job may be claimed, in milliseconds since the Unix epoch: 0 when enqueued, NULL when it may not.
    due_at BIGINT,
    epoch BIGINT NOT NULL,
    rev TEXT,
    data BLOB,
    min_rev TEXT,
    -- An older rev that is being confirmed: rev, confirmations and first time, with blanks between.
    older TEXT,
    failures BIGINT NOT NULL,
    failure TEXT NOT NULL,
    -- What was heard of the account: its status, then upstream and seq of the last event of each; NULL as long as it is nothing.
    account TEXT,
    -- What the consumer has not acknowledged of it yet; NULL when there is nothing.
    untold TEXT,
    records BIGINT NOT NULL,
    buffered_op_sets BIGINT NOT NULL,
    buffered_bytes BIGINT NOT NULL,
    UNIQUE (repo, consumer)
);
CREATE INDEX job_by_consumer ON job (consumer);
CREATE INDEX job_due ON job (host, due_at) WHERE due_at IS NOT NULL;
CREATE INDEX job_untold ON job (id) WHERE untold IS NOT NULL;
CREATE INDEX job_in_progress ON job (state) WHERE state = 'in_progress';

-- Where to go on with a firehose. A sequence that has restarted gets a row, and so an id, of its own.
CREATE TABLE upstream (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL UNIQUE,
    seq BIGINT,
    time BIGINT
);

CREATE TABLE op_set (
    seq INTEGER NOT NULL PRIMARY KEY,
    job BIGINT NOT NULL,
    rev TEXT NOT NULL,
    data BLOB,
    body BLOB NOT NULL
);
CREATE INDEX op_set_by_job ON op_set (job);

CREATE TABLE intent (
    id INTEGER NOT NULL PRIMARY KEY,
    job BIGINT NOT NULL,
    epoch BIGINT NOT NULL,
    paths BLOB NOT NULL
);
CREATE INDEX intent_by_job ON intent (job);

CREATE TABLE manifest_chunk (
    id INTEGER NOT NULL PRIMARY KEY,
    job BIGINT NOT NULL,
    first TEXT NOT NULL,
    entries BIGINT NOT NULL,
    bytes BLOB NOT NULL,
    UNIQUE (job, first)
);

-- Sums over the jobs of a consumer, kept with every change, so that progress costs one row whatever the number of jobs.
CREATE TABLE total (
    consumer BIGINT NOT NULL PRIMARY KEY,
    enqueued BIGINT NOT NULL,
    in_progress BIGINT NOT NULL,
    complete BIGINT NOT NULL,
    failed BIGINT NOT NULL,
    unavailable BIGINT NOT NULL,
    records BIGINT NOT NULL,
    buffered_op_sets BIGINT NOT NULL,
    buffered_bytes BIGINT NOT NULL,
    dropped_op_sets BIGINT NOT NULL,
    untold BIGINT NOT NULL
) WITHOUT ROWID;

-- The audit of a consumer's jobs that is due or under way, if one is.
CREATE TABLE audit (
    consumer BIGINT NOT NULL PRIMARY KEY,
    id BIGINT NOT NULL,
    reason TEXT NOT NULL,
    -- In milliseconds since the Unix epoch.
    begun BIGINT NOT NULL,
    -- The last job that it is done with.
    after BIGINT,
    passed BIGINT NOT NULL
) WITHOUT ROWID;
