DROP TABLE total;
DROP TABLE manifest_chunk;
DROP TABLE intent;
DROP TABLE op_set;
DROP TABLE job;
DROP TABLE repo;
DROP TABLE host;
DROP TABLE consumer;
