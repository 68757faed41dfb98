-- +goose Up

-- The table audit holds the management records that are in no block yet.

-- The open end of each account's log: what data planes and the API told.
CREATE TABLE audit_chunks (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    account_id TEXT    NOT NULL,
    records    INTEGER NOT NULL,
    first_time INTEGER NOT NULL,
    content    BLOB    NOT NULL
) STRICT;
CREATE INDEX audit_chunks_account ON audit_chunks (account_id, id, records, first_time);

-- One row for each account that has, or had, a block.
CREATE TABLE audit_chains (
    account_id  TEXT    NOT NULL PRIMARY KEY,
    number      INTEGER NOT NULL,            -- of the last block
    digest      BLOB    NOT NULL,
    sealed_at   INTEGER NOT NULL,
    base        INTEGER NOT NULL DEFAULT 0,  -- the last block that was removed
    base_digest BLOB    NOT NULL DEFAULT x'0000000000000000000000000000000000000000000000000000000000000000',
    base_sealed INTEGER NOT NULL DEFAULT 0,
    bytes       INTEGER NOT NULL,            -- of the blocks that are there, with their summaries
    cut_records INTEGER NOT NULL DEFAULT 0,  -- removed before their time
    cut_first   INTEGER NOT NULL DEFAULT 0,
    cut_last    INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

CREATE TABLE audit_blocks (
    account_id TEXT    NOT NULL,
    number     INTEGER NOT NULL,
    previous   BLOB    NOT NULL,
    digest     BLOB    NOT NULL,
    first_time INTEGER NOT NULL,
    last_time  INTEGER NOT NULL,
    sealed_at  INTEGER NOT NULL,
    records    INTEGER NOT NULL,
    bytes      INTEGER NOT NULL,
    content    BLOB    NOT NULL,
    UNIQUE (account_id, number)
) STRICT;

-- What is known of blocks without reading them: one by one behind the last
-- whole group of 64, turned by groups before.
CREATE TABLE audit_summaries (
    account_id TEXT    NOT NULL,
    number     INTEGER NOT NULL,
    summary    BLOB    NOT NULL,
    PRIMARY KEY (account_id, number)
) STRICT, WITHOUT ROWID;

CREATE TABLE audit_groups (
    account_id TEXT    NOT NULL,
    number     INTEGER NOT NULL,
    head       BLOB    NOT NULL,
    PRIMARY KEY (account_id, number)
) STRICT, WITHOUT ROWID;

CREATE TABLE audit_segments (
    account_id TEXT    NOT NULL,
    segment    INTEGER NOT NULL,             -- a question asks all groups for the same one
    number     INTEGER NOT NULL,             -- of the group
    bits       BLOB    NOT NULL,
    PRIMARY KEY (account_id, segment, number)
) STRICT, WITHOUT ROWID;
