-- +goose Up

-- Counts of requests (package traffic). A chunk is many counts of one account's
-- requests that began in one interval; any number of chunks may be of the same.
CREATE TABLE traffic (
    seq        INTEGER PRIMARY KEY AUTOINCREMENT,
    account_id TEXT    NOT NULL,
    part       INTEGER NOT NULL,            -- 0 gateways, 1 routes, 2 keys, 3 seconds
    tier       INTEGER NOT NULL,            -- 0 minutes, 1 hours, 2 days
    state      INTEGER NOT NULL,            -- 0 fresh, 1 merged, 2 rolled
    start      INTEGER NOT NULL,            -- Unix seconds
    first      BLOB    NOT NULL,            -- the least and the greatest identifier in body
    last       BLOB    NOT NULL,
    body       BLOB    NOT NULL
) STRICT;
-- Both have all that tells which chunks a report needs.
CREATE INDEX traffic_read ON traffic (account_id, part, tier, start, first, last);
CREATE INDEX traffic_open ON traffic (tier, state, start, account_id, part, first, last) WHERE state < 2;
CREATE INDEX traffic_age  ON traffic (part, tier, start) WHERE state = 2;

-- Requests that were refused or failed (package requestlog).
CREATE TABLE requests (
    account_id      TEXT    NOT NULL,
    id              TEXT    NOT NULL,
    time            INTEGER NOT NULL,
    gateway_id      TEXT    NOT NULL,
    route_id        TEXT    NOT NULL,
    key_id          TEXT    NOT NULL,
    key_prefix      TEXT    NOT NULL,
    method          TEXT    NOT NULL,
    path            TEXT    NOT NULL,
    client_ip       TEXT    NOT NULL,
    status          INTEGER NOT NULL,
    duration        INTEGER NOT NULL,       -- nanoseconds
    decision        INTEGER NOT NULL,       -- outcome.Decision
    limit_scope     INTEGER NOT NULL,       -- ratelimit.Scope
    limit_count     INTEGER NOT NULL,
    remaining       INTEGER NOT NULL,
    passes_at       INTEGER NOT NULL,       -- Unix seconds
    upstream_status INTEGER NOT NULL,
    PRIMARY KEY (account_id, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX requests_age   ON requests (time);
CREATE INDEX requests_key   ON requests (account_id, key_id, id) WHERE key_id <> '';
CREATE INDEX requests_route ON requests (account_id, route_id, id) WHERE route_id <> '';

-- How many requests of a second were left out of the table above.
CREATE TABLE requests_left_out (
    account_id TEXT    NOT NULL,
    second     INTEGER NOT NULL,            -- Unix seconds
    count      INTEGER NOT NULL,
    PRIMARY KEY (account_id, second)
) STRICT, WITHOUT ROWID;
CREATE INDEX requests_left_out_age ON requests_left_out (second);
