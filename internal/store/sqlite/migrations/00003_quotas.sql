-- +goose Up
-- +goose StatementBegin

ALTER TABLE account_counts ADD COLUMN quotas INTEGER NOT NULL DEFAULT 0;

-- A quota of a subject.
CREATE TABLE quotas (
    n          INTEGER NOT NULL PRIMARY KEY,
    account_id TEXT    NOT NULL,
    subject    TEXT    NOT NULL,            -- an owner, or the bucket of a key
    name       TEXT    NOT NULL,            -- of the limit
    meter      TEXT    NOT NULL,
    unit       INTEGER NOT NULL             -- calendar.Unit
) STRICT;
CREATE UNIQUE INDEX quotas_name ON quotas (account_id, subject, name, meter, unit);

-- The edges of a window never change.
CREATE TABLE quota_windows (
    quota    INTEGER NOT NULL REFERENCES quotas (n),
    start    INTEGER NOT NULL,
    ends     INTEGER NOT NULL,
    taken    INTEGER NOT NULL,              -- by all processes
    reserved INTEGER NOT NULL,              -- part of taken that is not used yet, at most
    grants   INTEGER NOT NULL DEFAULT 0,    -- units
    granted  INTEGER NOT NULL DEFAULT 0,    -- times
    told     TEXT    NOT NULL,              -- percentages with an event, separated by spaces
    PRIMARY KEY (quota, start)
) STRICT, WITHOUT ROWID;
CREATE INDEX quota_windows_end ON quota_windows (ends);

CREATE TABLE quota_processes (
    n    INTEGER NOT NULL PRIMARY KEY,
    name TEXT    NOT NULL UNIQUE,
    seen INTEGER NOT NULL                   -- about when it last claimed something: up to an hour before that
) STRICT;

-- The part of a window's figures that a process has.
CREATE TABLE quota_shares (
    quota    INTEGER NOT NULL,
    start    INTEGER NOT NULL,
    process  INTEGER NOT NULL REFERENCES quota_processes (n),
    taken    INTEGER NOT NULL,
    reserved INTEGER NOT NULL,
    recalled INTEGER NOT NULL,              -- other processes need what is reserved
    PRIMARY KEY (quota, start, process),
    FOREIGN KEY (quota, start) REFERENCES quota_windows (quota, start)
) STRICT, WITHOUT ROWID;
CREATE INDEX quota_shares_process ON quota_shares (process, recalled);

CREATE TABLE quota_grants (
    id         TEXT    NOT NULL PRIMARY KEY,
    account_id TEXT    NOT NULL,
    subject    TEXT    NOT NULL,
    quota      INTEGER NOT NULL,
    start      INTEGER NOT NULL,
    plan       TEXT    NOT NULL,            -- its name
    units      INTEGER NOT NULL,
    reason     TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    FOREIGN KEY (quota, start) REFERENCES quota_windows (quota, start)
) STRICT;
CREATE INDEX quota_grants_list   ON quota_grants (account_id, subject, id);
CREATE INDEX quota_grants_window ON quota_grants (quota, start);

-- Only the process that asks lives: it alone has the file.
CREATE VIEW quota_processes_live AS SELECT n FROM quota_processes WHERE 0;

-- An account that was removed has no counts.
CREATE TRIGGER quotas_counted AFTER INSERT ON quotas BEGIN
    UPDATE account_counts SET quotas = quotas + 1 WHERE account_id = new.account_id;
END;

CREATE TRIGGER quotas_uncounted AFTER DELETE ON quotas BEGIN
    UPDATE account_counts SET quotas = quotas - 1 WHERE account_id = old.account_id;
END;
-- +goose StatementEnd
