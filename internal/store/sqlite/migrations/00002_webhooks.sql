-- +goose Up

CREATE TABLE webhooks (
    id              TEXT    NOT NULL PRIMARY KEY,
    account_id      TEXT    NOT NULL REFERENCES accounts (id),
    url             TEXT    NOT NULL,
    events          TEXT    NOT NULL,       -- separated by spaces
    active          INTEGER NOT NULL,
    disabled_reason TEXT    NOT NULL,
    secret          BLOB    NOT NULL,       -- sealed, as old_secret
    secret_since    INTEGER NOT NULL,
    old_secret      BLOB,
    old_until       INTEGER,
    failing_since   INTEGER,
    created_at      INTEGER NOT NULL,
    version         INTEGER NOT NULL
) STRICT;
CREATE INDEX webhooks_list ON webhooks (account_id, id);

-- An event that is listed no more stays for the deliveries that need its payload.
ALTER TABLE events ADD COLUMN listed INTEGER NOT NULL DEFAULT 1;
DROP INDEX events_list;
DROP INDEX events_age;
CREATE INDEX events_list ON events (account_id, id)       WHERE listed = 1;
CREATE INDEX events_type ON events (account_id, type, id) WHERE listed = 1;
CREATE INDEX events_age  ON events (created_at)           WHERE listed = 1;

-- The log of deliveries and the queue of those that wait. Endpoints and events are
-- named without foreign keys: a delivery outlives its endpoint.
CREATE TABLE deliveries (
    n           INTEGER NOT NULL PRIMARY KEY,
    id          TEXT    NOT NULL UNIQUE,
    account_id  TEXT    NOT NULL,
    webhook_id  TEXT    NOT NULL,
    event_id    TEXT    NOT NULL,
    event_type  TEXT    NOT NULL,
    state       INTEGER NOT NULL,           -- 0 pending, 1 retry_scheduled, 2 delivered, 3 failed
    cause       TEXT    NOT NULL,           -- the trigger
    attempts    INTEGER NOT NULL,           -- how many were made
    again       INTEGER NOT NULL,           -- failed, and made again since as another delivery
    next_at     INTEGER,                    -- NULL once delivered or failed, as due_at
    due_at      INTEGER,                    -- next_at, or the end of the lease
    token       TEXT,                       -- of the lease, NULL without one
    created_at  INTEGER NOT NULL,
    finished_at INTEGER                     -- NULL until delivered or failed
) STRICT;
-- Lists, newest first, by merging one branch for each state and type.
CREATE INDEX deliveries_account ON deliveries (account_id, state, event_type, id);
CREATE INDEX deliveries_webhook ON deliveries (webhook_id, state, event_type, id);
CREATE INDEX deliveries_event   ON deliveries (event_id, webhook_id);
CREATE INDEX deliveries_due     ON deliveries (webhook_id, state, due_at, token) WHERE due_at IS NOT NULL;
CREATE INDEX deliveries_hand    ON deliveries (webhook_id, due_at) WHERE due_at IS NOT NULL AND state = 0 AND cause IN ('manual', 'test');
CREATE INDEX deliveries_age     ON deliveries (state, finished_at) WHERE finished_at IS NOT NULL;
CREATE INDEX deliveries_failed  ON deliveries (webhook_id, finished_at) WHERE state = 3 AND again = 0;

CREATE TABLE attempts (
    n          INTEGER NOT NULL PRIMARY KEY, -- 8 * deliveries.n + the attempt's number
    started_at INTEGER NOT NULL,
    duration   INTEGER NOT NULL,             -- nanoseconds
    status     INTEGER NOT NULL,             -- 0 if no answer came
    error      TEXT    NOT NULL,
    response   BLOB
) STRICT;
