-- +goose Up

-- The Git repositories that gateways follow (contract, section 5).
CREATE TABLE repositories (
    gateway_id      TEXT    NOT NULL PRIMARY KEY REFERENCES gateways (id),
    account_id      TEXT    NOT NULL,
    url             TEXT    NOT NULL,
    branch          TEXT    NOT NULL,
    path            TEXT    NOT NULL,
    kind            TEXT    NOT NULL,
    interval        TEXT    NOT NULL,  -- as given
    credential      BLOB,              -- sealed
    known_hosts     TEXT    NOT NULL,
    host_key        TEXT    NOT NULL,
    hook_secret     BLOB,              -- sealed
    status_provider TEXT    NOT NULL,
    status_token    BLOB,              -- sealed
    paused          INTEGER NOT NULL,
    last_commit     TEXT    NOT NULL,
    failed_commit   TEXT    NOT NULL,
    last_error      TEXT    NOT NULL,
    failure_kind    TEXT    NOT NULL,
    failures        INTEGER NOT NULL,
    warning         TEXT    NOT NULL,
    notified        TEXT    NOT NULL,  -- commits, separated by spaces
    last_attempt_at INTEGER,
    last_synced_at  INTEGER,
    next_sync_at    INTEGER,
    created_at      INTEGER NOT NULL,
    version         INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX repositories_account ON repositories (account_id);
