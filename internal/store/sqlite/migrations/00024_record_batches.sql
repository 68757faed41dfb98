-- +goose Up

-- The last batch that each writer of access records has stored (accesslog.BatchID).
CREATE TABLE record_batches (
    writer TEXT    NOT NULL PRIMARY KEY,
    number INTEGER NOT NULL,
    at     INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX record_batches_age ON record_batches (at);
