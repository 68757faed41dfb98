-- +goose Up
-- +goose StatementBegin

-- Whether the string of the key is not one of Keygate's. Its digest is then bound to the account.
ALTER TABLE keys ADD COLUMN imported INTEGER NOT NULL DEFAULT 0;

-- The lists of addresses that may use the key, as JSON.
ALTER TABLE keys ADD COLUMN addresses TEXT;


-- The bytes of keys are those of their scopes and of these lists.
DROP TRIGGER keys_counted;
CREATE TRIGGER keys_counted AFTER INSERT ON keys BEGIN
    INSERT INTO account_counts (account_id, keys, live_keys, key_bytes) VALUES (new.account_id, 1, new.phase < 2,
        (new.phase < 2) * (coalesce(octet_length(new.resource), 0) + coalesce(octet_length(new.more_scopes), 0) + coalesce(octet_length(new.addresses), 0)))
    ON CONFLICT (account_id) DO UPDATE SET keys = keys + 1, live_keys = live_keys + excluded.live_keys, key_bytes = key_bytes + excluded.key_bytes;
END;

DROP TRIGGER keys_recounted;
CREATE TRIGGER keys_recounted AFTER UPDATE OF phase, resource, more_scopes, addresses ON keys
WHEN (old.phase < 2) <> (new.phase < 2) OR old.resource IS NOT new.resource OR old.more_scopes IS NOT new.more_scopes OR old.addresses IS NOT new.addresses BEGIN
    UPDATE account_counts SET live_keys = live_keys + (new.phase < 2) - (old.phase < 2), key_bytes = key_bytes
        + (new.phase < 2) * (coalesce(octet_length(new.resource), 0) + coalesce(octet_length(new.more_scopes), 0) + coalesce(octet_length(new.addresses), 0))
        - (old.phase < 2) * (coalesce(octet_length(old.resource), 0) + coalesce(octet_length(old.more_scopes), 0) + coalesce(octet_length(old.addresses), 0))
    WHERE account_id = new.account_id;
END;

DROP TRIGGER keys_uncounted;
-- A response belongs to the account of its key, so it does not outlive the key.
CREATE TRIGGER keys_uncounted BEFORE DELETE ON keys BEGIN
    DELETE FROM answers WHERE key_id = old.id;
    UPDATE account_counts SET keys = keys - 1, live_keys = live_keys - (old.phase < 2), key_bytes = key_bytes
        - (old.phase < 2) * (coalesce(octet_length(old.resource), 0) + coalesce(octet_length(old.more_scopes), 0) + coalesce(octet_length(old.addresses), 0))
    WHERE account_id = old.account_id;
END;

-- The import in pieces that has stored the key; NULL for others. There is no such key as long as key_imports has the import with
-- a state below 2.
ALTER TABLE keys ADD COLUMN import_id TEXT;

-- Imports of keys in pieces: those that are not complete, and those of whose keys some are not recorded yet.
CREATE TABLE key_imports (
    id         TEXT    NOT NULL PRIMARY KEY,
    account_id TEXT    NOT NULL,
    state      INTEGER NOT NULL,            -- 0 being written, 1 given up, 2 complete
    call       TEXT    NOT NULL             -- that imports the keys: JSON object
) STRICT;
CREATE INDEX key_imports_account ON key_imports (account_id);
CREATE TABLE key_import_pieces (
    import_id  TEXT    NOT NULL,
    number     INTEGER NOT NULL,
    account_id TEXT    NOT NULL,
    keys       TEXT    NOT NULL,            -- JSON array of identifiers
    owners     TEXT    NOT NULL,            -- that were created for them: JSON array of identifiers
    PRIMARY KEY (import_id, number)
) STRICT;
CREATE INDEX key_import_pieces_account ON key_import_pieces (account_id);

-- How many targets the upstreams of the gateway have.
ALTER TABLE gateways ADD COLUMN target_count INTEGER NOT NULL DEFAULT 1;
ALTER TABLE account_counts ADD COLUMN targets INTEGER NOT NULL DEFAULT 0;
UPDATE account_counts SET targets = known.targets
FROM (SELECT account_id, count(*) AS targets FROM gateways GROUP BY account_id) AS known
WHERE account_counts.account_id = known.account_id;

DROP TRIGGER gateways_counted;
CREATE TRIGGER gateways_counted AFTER INSERT ON gateways BEGIN
    INSERT INTO account_counts (account_id, gateway_bytes, route_bytes, targets) VALUES (new.account_id,
        octet_length(new.name) + octet_length(new.upstream) + octet_length(new.hostname) + octet_length(new.requests) + coalesce(octet_length(new.cors), 0),
        new.route_bytes, new.target_count)
    ON CONFLICT (account_id) DO UPDATE SET gateway_bytes = gateway_bytes + excluded.gateway_bytes,
        route_bytes = route_bytes + excluded.route_bytes, targets = targets + excluded.targets;
END;

DROP TRIGGER gateways_recounted;
CREATE TRIGGER gateways_recounted AFTER UPDATE OF name, upstream, hostname, requests, cors, route_bytes, target_count ON gateways BEGIN
    UPDATE account_counts SET gateway_bytes = gateway_bytes
        + octet_length(new.name) + octet_length(new.upstream) + octet_length(new.hostname) + octet_length(new.requests) + coalesce(octet_length(new.cors), 0)
        - octet_length(old.name) - octet_length(old.upstream) - octet_length(old.hostname) - octet_length(old.requests) - coalesce(octet_length(old.cors), 0),
        route_bytes = route_bytes + new.route_bytes - old.route_bytes,
        targets = targets + new.target_count - old.target_count
    WHERE account_id = new.account_id;
END;

DROP TRIGGER gateways_uncounted;
CREATE TRIGGER gateways_uncounted AFTER DELETE ON gateways BEGIN
    UPDATE account_counts SET gateway_bytes = gateway_bytes
        - octet_length(old.name) - octet_length(old.upstream) - octet_length(old.hostname) - octet_length(old.requests) - coalesce(octet_length(old.cors), 0),
        route_bytes = route_bytes - old.route_bytes, targets = targets - old.target_count
    WHERE account_id = old.account_id;
END;

-- The names of the issuers whose tokens the gateway takes, each between spaces, as in requests; NULL for none.
ALTER TABLE gateways ADD COLUMN issuers TEXT;
CREATE INDEX gateways_issuers ON gateways (account_id, id, issuers, name) WHERE issuers IS NOT NULL;

-- The share of a canary that has not ended, as JSON.
ALTER TABLE gateways ADD COLUMN canary TEXT;

-- The canaries of gateways (package canary).
CREATE TABLE canaries (
    id          TEXT    NOT NULL PRIMARY KEY,
    account_id  TEXT    NOT NULL,
    gateway_id  TEXT    NOT NULL REFERENCES gateways (id),
    state       TEXT    NOT NULL,  -- running, paused, held, promoted, aborted
    ended       INTEGER NOT NULL,
    step        INTEGER NOT NULL,
    number      INTEGER NOT NULL,
    ran         INTEGER NOT NULL,  -- microseconds
    since       INTEGER NOT NULL,
    plan        TEXT    NOT NULL,  -- JSON, like progress and lines
    progress    TEXT    NOT NULL,
    explanation TEXT    NOT NULL,
    lines       TEXT,
    created_at  INTEGER NOT NULL,
    ended_at    INTEGER,
    version     INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX canaries_list ON canaries (gateway_id, id);
CREATE INDEX canaries_account ON canaries (account_id, ended, id);
CREATE INDEX canaries_running ON canaries (id) WHERE state = 'running';

-- Which process judges canaries: the one row, if there was ever one.
CREATE TABLE canary_lead (
    one      INTEGER NOT NULL PRIMARY KEY CHECK (one = 1),
    claimant TEXT    NOT NULL,
    epoch    INTEGER NOT NULL
) STRICT;

-- What nodes have counted of canaries and nobody has added up yet (packages canary/count and canary/lead).
CREATE TABLE canary_counts (
    seq       INTEGER PRIMARY KEY,
    canary_id TEXT    NOT NULL,
    number    INTEGER NOT NULL,
    at        INTEGER NOT NULL,
    data      BLOB    NOT NULL
) STRICT;
CREATE INDEX canary_counts_list ON canary_counts (canary_id, seq);

-- The last number of canary_counts, and about how many bytes of data it has: the one row, if there was ever one.
CREATE TABLE canary_head (
    one   INTEGER NOT NULL PRIMARY KEY CHECK (one = 1),
    last  INTEGER NOT NULL,
    bytes INTEGER NOT NULL
) STRICT;

-- What was counted of the present step of a canary, in rows that are gone. first is the number of the step when it began.
CREATE TABLE canary_steps (
    canary_id TEXT    NOT NULL PRIMARY KEY,
    step      INTEGER NOT NULL,
    first     INTEGER NOT NULL,
    data      BLOB    NOT NULL
) STRICT, WITHOUT ROWID;

-- Callers that a canary leaves out. Without a row it is not decided whom.
CREATE TABLE canary_left_out (
    canary_id TEXT NOT NULL PRIMARY KEY,
    data      BLOB NOT NULL
) STRICT, WITHOUT ROWID;

-- What a request takes on disk, about (requestlog.Record.Size); 0 for those from before this schema, which are not counted.
ALTER TABLE requests ADD COLUMN size INTEGER NOT NULL DEFAULT 0;
-- What the requests of an account and a day (UTC, since 1970) take together. Triggers keep it.
CREATE TABLE request_bytes (
    account_id TEXT    NOT NULL,
    day        INTEGER NOT NULL,
    bytes      INTEGER NOT NULL,
    PRIMARY KEY (account_id, day)
) STRICT, WITHOUT ROWID;
CREATE TRIGGER requests_counted AFTER INSERT ON requests WHEN new.size > 0 BEGIN
    INSERT INTO request_bytes (account_id, day, bytes) VALUES (new.account_id, new.time / 86400000000, new.size)
    ON CONFLICT (account_id, day) DO UPDATE SET bytes = bytes + excluded.bytes;
END;
CREATE TRIGGER requests_uncounted AFTER DELETE ON requests WHEN old.size > 0 BEGIN
    UPDATE request_bytes SET bytes = bytes - old.size WHERE account_id = old.account_id AND day = old.time / 86400000000;
    DELETE FROM request_bytes WHERE account_id = old.account_id AND day = old.time / 86400000000 AND bytes <= 0;
END;

-- What the requests of a gateway did otherwise than its OpenAPI document says.
CREATE TABLE validation_reports (
    gateway_id TEXT    NOT NULL PRIMARY KEY,
    account_id TEXT    NOT NULL,
    data       BLOB    NOT NULL,            -- JSON, see package validation
    updated_at INTEGER NOT NULL
) STRICT;
CREATE INDEX validation_reports_account ON validation_reports (account_id);
CREATE INDEX validation_reports_updated ON validation_reports (updated_at);

CREATE TABLE issuers (
    id         TEXT    NOT NULL PRIMARY KEY,
    account_id TEXT    NOT NULL REFERENCES accounts (id),
    name       TEXT    NOT NULL,
    settings   TEXT    NOT NULL,            -- JSON object
    seen       TEXT    NOT NULL,            -- JSON array: its keys, and when each of them was seen first
    document   TEXT    NOT NULL,            -- the keys that were fetched last, a JWK Set; '' for none
    last_error TEXT    NOT NULL,            -- of the last fetch; '' if it did not fail
    fetch_at   INTEGER,                     -- the next fetch; NULL if the keys are given by hand
    created_at INTEGER NOT NULL,
    version    INTEGER NOT NULL,
    denials    INTEGER NOT NULL DEFAULT 0   -- how many it has
) STRICT;
CREATE INDEX issuers_list ON issuers (account_id, id);
CREATE UNIQUE INDEX issuers_name ON issuers (account_id, name);
CREATE INDEX issuers_due ON issuers (fetch_at) WHERE fetch_at IS NOT NULL;
CREATE INDEX issuers_unreachable ON issuers (id) WHERE last_error <> '';

-- What refuses tokens of issuers before they expire. One of subject, jti and issued_before is not empty.
CREATE TABLE denials (
    id            TEXT    NOT NULL PRIMARY KEY,
    account_id    TEXT    NOT NULL,
    issuer_id     TEXT    NOT NULL,        -- an issuer, or one that was deleted
    subject       BLOB    NOT NULL,
    jti           BLOB    NOT NULL,
    issued_before INTEGER,
    until         INTEGER NOT NULL,
    reason        TEXT    NOT NULL,
    created_at    INTEGER NOT NULL
) STRICT;
CREATE INDEX denials_list ON denials (issuer_id, id);
CREATE INDEX denials_subject ON denials (issuer_id, subject, id);
CREATE INDEX denials_account ON denials (account_id);
CREATE INDEX denials_until ON denials (until);
-- +goose StatementEnd
