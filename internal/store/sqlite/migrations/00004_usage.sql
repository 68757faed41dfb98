-- +goose Up
-- +goose StatementBegin

-- Final usage records (package usage): a block is many records of one account and hour, or day.
CREATE TABLE usage_blocks (
    account_id TEXT    NOT NULL,
    tier       INTEGER NOT NULL,            -- 0 hours, 1 days
    number     INTEGER NOT NULL,            -- in the order in which they became final
    start      INTEGER NOT NULL,            -- of the hour or day, in Unix seconds
    body       BLOB    NOT NULL,
    PRIMARY KEY (account_id, tier, number)
) STRICT;
CREATE INDEX usage_blocks_age   ON usage_blocks (tier, start, account_id, number);
CREATE INDEX usage_blocks_start ON usage_blocks (account_id, tier, start, number);

-- The last number of a block.
CREATE TABLE usage_numbers (
    account_id TEXT    NOT NULL,
    tier       INTEGER NOT NULL,
    last       INTEGER NOT NULL,
    PRIMARY KEY (account_id, tier)
) STRICT, WITHOUT ROWID;

-- Until when the usage of the requests of a process is stored.
CREATE TABLE usage_marks (
    process TEXT    NOT NULL PRIMARY KEY,
    until   INTEGER NOT NULL
) STRICT;

-- Until when all hours were closed: one row.
CREATE TABLE usage_closed (
    n     INTEGER NOT NULL PRIMARY KEY,
    until INTEGER NOT NULL
) STRICT;

-- Only the process that asks lives: it alone has the file.
CREATE VIEW usage_processes_live AS SELECT '' AS process WHERE 0;
-- +goose StatementEnd
