-- +goose Up

-- Times are integer microseconds since 1970. Absent strings are '' unless a
-- partial index leaves them out, in which case they are NULL.

CREATE TABLE accounts (
    id         TEXT    NOT NULL PRIMARY KEY,
    name       TEXT    NOT NULL UNIQUE,
    plan       TEXT    NOT NULL,
    hosts      TEXT,                        -- JSON array
    created_at INTEGER NOT NULL,
    audit_seq  INTEGER NOT NULL DEFAULT 0   -- the last audit.seq given out
) STRICT;

CREATE TABLE gateways (
    id               TEXT    NOT NULL PRIMARY KEY,
    account_id       TEXT    NOT NULL REFERENCES accounts (id),
    name             TEXT    NOT NULL,
    upstream_url     TEXT    NOT NULL,
    upstream_ca      TEXT    NOT NULL,
    hostname         TEXT    NOT NULL UNIQUE,
    host_given       INTEGER NOT NULL,
    global_sustained TEXT    NOT NULL,
    global_burst     TEXT    NOT NULL,
    timeout          TEXT    NOT NULL,
    upstream_headers TEXT,                  -- JSON object of sealed values
    cors             TEXT,                  -- JSON object
    max_body_bytes   INTEGER NOT NULL,
    revision         INTEGER NOT NULL,
    created_at       INTEGER NOT NULL,
    version          INTEGER NOT NULL
) STRICT;
CREATE INDEX gateways_list ON gateways (account_id, id);

CREATE TABLE routes (
    id           TEXT    NOT NULL PRIMARY KEY,
    gateway_id   TEXT    NOT NULL REFERENCES gateways (id),
    path         TEXT    NOT NULL,
    methods      TEXT    NOT NULL,          -- separated by spaces
    sustained    TEXT    NOT NULL,
    burst        TEXT    NOT NULL,
    daily        TEXT    NOT NULL,
    per          TEXT    NOT NULL,
    limit_by_api INTEGER NOT NULL,
    auth         TEXT    NOT NULL,
    source       TEXT    NOT NULL,
    created_at   INTEGER NOT NULL,
    version      INTEGER NOT NULL
) STRICT;
CREATE INDEX routes_list ON routes (gateway_id, id);

CREATE TABLE revisions (
    id         TEXT    NOT NULL PRIMARY KEY,
    gateway_id TEXT    NOT NULL REFERENCES gateways (id),
    number     INTEGER NOT NULL,
    source     TEXT    NOT NULL,
    kind       TEXT    NOT NULL,
    author     TEXT    NOT NULL,
    commit_id  TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    added      INTEGER NOT NULL,
    removed    INTEGER NOT NULL,
    changed    INTEGER NOT NULL,
    content    BLOB    NOT NULL,            -- packed, see pack.go
    routes     BLOB    NOT NULL,            -- JSON array, packed
    UNIQUE (gateway_id, number)
) STRICT;

CREATE TABLE keys (
    n             INTEGER NOT NULL PRIMARY KEY,
    id            TEXT    NOT NULL UNIQUE,
    account_id    TEXT    NOT NULL REFERENCES accounts (id),
    digest        BLOB    NOT NULL UNIQUE,
    prefix        TEXT    NOT NULL,
    level         INTEGER NOT NULL,         -- 1 gateway, 2 account
    phase         INTEGER NOT NULL,         -- 0 live, 1 expired and told, 2 revoked
    word          INTEGER NOT NULL,         -- of the scope: 1 read, 2 write, 3 admin
    resource      TEXT,
    gateway_id    TEXT,                     -- outlives the gateway
    owner         TEXT,
    bucket_id     TEXT,                     -- NULL if it equals id
    rate_limit    TEXT,
    expires_at    INTEGER,
    last_used_at  INTEGER,
    created_at    INTEGER NOT NULL,
    revoked_at    INTEGER,
    expiry_told   INTEGER,
    rotated_from  TEXT,
    rotated_to    TEXT,
    version       INTEGER NOT NULL,
    name          TEXT    NOT NULL,
    metadata      TEXT                      -- JSON object
) STRICT;
-- Lists, newest first. keys_list also covers the search by name and prefix.
CREATE INDEX keys_list    ON keys (account_id, id, name, prefix);
CREATE INDEX keys_state   ON keys (account_id, level, phase, id);
CREATE INDEX keys_gateway ON keys (gateway_id, phase, id) WHERE gateway_id IS NOT NULL;
CREATE INDEX keys_owner   ON keys (account_id, owner, phase, id) WHERE owner IS NOT NULL;
CREATE INDEX keys_bucket  ON keys (bucket_id) WHERE bucket_id IS NOT NULL;
CREATE INDEX keys_expiry  ON keys (phase, expires_at) WHERE phase < 2 AND expires_at IS NOT NULL;

CREATE TABLE audit (
    account_id   TEXT    NOT NULL REFERENCES accounts (id),
    seq          INTEGER NOT NULL,
    time         INTEGER NOT NULL,
    kind         TEXT    NOT NULL,
    outcome      TEXT    NOT NULL,
    key_prefix   TEXT    NOT NULL,
    key_id       TEXT    NOT NULL,
    gateway_id   TEXT    NOT NULL,
    method       TEXT    NOT NULL,
    path         TEXT    NOT NULL,
    client_ip    TEXT    NOT NULL,
    request_id   TEXT    NOT NULL,
    action       TEXT    NOT NULL,
    target       TEXT    NOT NULL,
    actor_key_id TEXT    NOT NULL,
    diff         TEXT,                      -- JSON object
    PRIMARY KEY (account_id, seq)
) STRICT, WITHOUT ROWID;

CREATE TABLE events (
    id         TEXT    NOT NULL PRIMARY KEY,
    account_id TEXT    NOT NULL REFERENCES accounts (id),
    type       TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    payload    BLOB    NOT NULL
) STRICT;
CREATE INDEX events_list ON events (account_id, id);
CREATE INDEX events_age  ON events (created_at);

CREATE TABLE changes (
    seq       INTEGER PRIMARY KEY AUTOINCREMENT,
    at        INTEGER NOT NULL,
    kind      TEXT    NOT NULL,
    record_id TEXT    NOT NULL
) STRICT;
CREATE TABLE changes_trimmed (
    seq INTEGER NOT NULL                    -- the last entry that was trimmed
) STRICT;
INSERT INTO changes_trimmed VALUES (0);

CREATE TABLE answers (
    key_id      TEXT    NOT NULL,
    key         TEXT    NOT NULL,
    fingerprint BLOB    NOT NULL,
    status      INTEGER NOT NULL,
    header      TEXT,                       -- JSON object
    body        BLOB,
    created_at  INTEGER NOT NULL,
    PRIMARY KEY (key_id, key)
) STRICT;
CREATE INDEX answers_age ON answers (created_at);

CREATE TABLE daily_counts (
    day      INTEGER NOT NULL,              -- UTC days since 1970
    limit_id TEXT    NOT NULL,
    key_id   TEXT    NOT NULL,
    used     INTEGER NOT NULL,
    PRIMARY KEY (day, limit_id, key_id)
) STRICT, WITHOUT ROWID;
