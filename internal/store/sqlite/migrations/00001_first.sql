-- +goose Up
-- +goose StatementBegin

-- Times are integer microseconds since 1970. Absent strings are '' unless a
-- partial index leaves them out, in which case they are NULL.

-- If two processes migrate at the same time, the one that is later fails, whatever its step does, and then finds the
-- step done.
CREATE UNIQUE INDEX goose_db_version_once ON goose_db_version (version_id) WHERE is_applied = 1;

CREATE TABLE accounts (
    id         TEXT    NOT NULL PRIMARY KEY,
    name       TEXT    NOT NULL UNIQUE,
    plan       TEXT    NOT NULL,
    hosts      TEXT,                        -- JSON array
    created_at INTEGER NOT NULL,
    audit_seq  INTEGER NOT NULL DEFAULT 0,  -- the last audit.seq given out
    state      TEXT    NOT NULL DEFAULT 'active', -- active, suspended, deleted, removed
    version    INTEGER NOT NULL DEFAULT 1
) STRICT;
-- A deleted account leaves its row behind, with its identifier for a name: the audit log stays until its retention
-- ends. In the state deleted its other records are being removed; in the state removed they are gone.
CREATE INDEX accounts_deleted ON accounts (id) WHERE state = 'deleted';

CREATE TABLE gateways (
    id               TEXT    NOT NULL PRIMARY KEY,
    account_id       TEXT    NOT NULL REFERENCES accounts (id),
    name             TEXT    NOT NULL,
    shares_name      INTEGER NOT NULL,           -- another gateway of the account may have the name
    upstream         TEXT    NOT NULL,           -- JSON object
    hostname         TEXT    NOT NULL UNIQUE,
    host_given       INTEGER NOT NULL,
    global_sustained TEXT    NOT NULL,
    global_burst     TEXT    NOT NULL,
    timeout          TEXT    NOT NULL,
    cors             TEXT,                       -- JSON object
    max_body_bytes   INTEGER NOT NULL,
    requests         TEXT    NOT NULL,           -- JSON object
    revision         INTEGER NOT NULL,
    is_default       INTEGER NOT NULL,           -- at most one of all, and of the account default
    table_id         INTEGER NOT NULL DEFAULT 0, -- of the current table of routes
    route_count      INTEGER NOT NULL DEFAULT 0,
    route_bytes      INTEGER NOT NULL DEFAULT 0, -- gateway.RouteBytes of all of them
    created_at       INTEGER NOT NULL,
    version          INTEGER NOT NULL
) STRICT;
CREATE INDEX gateways_list ON gateways (account_id, id);
CREATE INDEX gateways_routes ON gateways (account_id, route_count);
CREATE INDEX gateways_names ON gateways (account_id, name);
CREATE UNIQUE INDEX gateways_own_name ON gateways (account_id, name) WHERE shares_name = 0;
CREATE UNIQUE INDEX gateways_default ON gateways (is_default) WHERE is_default = 1;

CREATE TABLE keys (
    n             INTEGER NOT NULL PRIMARY KEY,
    id            TEXT    NOT NULL UNIQUE,
    account_id    TEXT    NOT NULL REFERENCES accounts (id),
    digest        BLOB    NOT NULL UNIQUE,
    prefix        TEXT    NOT NULL,
    level         INTEGER NOT NULL,         -- 1 gateway, 2 account
    phase         INTEGER NOT NULL,         -- 0 live, 1 expired and told, 2 revoked
    word          INTEGER NOT NULL,         -- of the first scope: 1 read, 2 write, 3 admin
    resource      TEXT,                     -- of the first scope
    more_scopes   TEXT,                     -- the others, as users write them; NULL if there are none
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
    metadata      TEXT,                     -- JSON object
    ended         INTEGER NOT NULL DEFAULT 0 CHECK (ended IN (0, 1)) -- by a rotation without overlap: it has expired, whatever a clock shows
) STRICT;
-- Lists, newest first. keys_list also covers the search by name and prefix.
CREATE INDEX keys_list    ON keys (account_id, id, name, prefix);
CREATE INDEX keys_state   ON keys (account_id, level, phase, id);
CREATE INDEX keys_gateway ON keys (gateway_id, phase, id) WHERE gateway_id IS NOT NULL;
CREATE INDEX keys_owner   ON keys (account_id, owner, phase, id) WHERE owner IS NOT NULL;
CREATE INDEX keys_bucket  ON keys (bucket_id) WHERE bucket_id IS NOT NULL;
-- The keys of a chain of rotations that share its rate limit, which a change of that writes: those that ended long ago
-- are passed over, however many there are.
CREATE INDEX keys_chain   ON keys (bucket_id, expires_at) WHERE bucket_id IS NOT NULL AND phase < 2 AND ended = 0;
CREATE INDEX keys_expiry  ON keys (phase, expires_at) WHERE phase < 2 AND expires_at IS NOT NULL;

-- Management records that are in no block yet.
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

-- An event that is listed no more stays for the deliveries that need its payload.
CREATE TABLE events (
    id         TEXT    NOT NULL PRIMARY KEY,
    account_id TEXT    NOT NULL REFERENCES accounts (id),
    type       TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    payload    BLOB    NOT NULL,
    listed     INTEGER NOT NULL DEFAULT 1
) STRICT;
CREATE INDEX events_list ON events (account_id, id)       WHERE listed = 1;
CREATE INDEX events_type ON events (account_id, type, id) WHERE listed = 1;
CREATE INDEX events_age  ON events (created_at)           WHERE listed = 1;
-- Lists of events are in the order of the commits, which is that of the rowids: each index ends with the rowid.
CREATE INDEX events_order      ON events (account_id)       WHERE listed = 1;
CREATE INDEX events_type_order ON events (account_id, type) WHERE listed = 1;

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
    lost     INTEGER NOT NULL DEFAULT 0,    -- how many of these have not passed, at most
    PRIMARY KEY (day, limit_id, key_id)
) STRICT, WITHOUT ROWID;

-- What each process has claimed of a daily cap. daily_counts has the sums.
CREATE TABLE daily_claims (
    day      INTEGER NOT NULL,              -- UTC days since 1970
    limit_id TEXT    NOT NULL,
    key_id   TEXT    NOT NULL,
    node     TEXT    NOT NULL,              -- name of the process
    used     INTEGER NOT NULL,
    lost     INTEGER NOT NULL,              -- how many of these have not passed, at most
    PRIMARY KEY (day, limit_id, key_id, node)
) STRICT, WITHOUT ROWID;

CREATE TABLE route_tables (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    gateway_id  TEXT    NOT NULL,
    revision_id TEXT    NOT NULL,           -- of a staged table, else ''
    state       INTEGER NOT NULL,           -- 0 staged, 1 current, 2 dropped
    version     INTEGER NOT NULL,           -- grows with every change
    created_at  INTEGER NOT NULL
) STRICT;
CREATE INDEX route_tables_rest ON route_tables (state, created_at);
CREATE INDEX route_tables_gateway ON route_tables (gateway_id);

CREATE TABLE route_pages (
    n        INTEGER PRIMARY KEY,
    table_id INTEGER NOT NULL,
    first    TEXT    NOT NULL,              -- identifier of the first route
    routes   INTEGER NOT NULL,              -- how many it has
    content  BLOB    NOT NULL,              -- see routepage.go
    UNIQUE (table_id, first)
) STRICT;

-- A revision does not refer to its gateway: it is removed some time after that, with others, in small steps.
CREATE TABLE revisions (
    id         TEXT    NOT NULL PRIMARY KEY,
    gateway_id TEXT    NOT NULL,
    number     INTEGER NOT NULL,
    source     TEXT    NOT NULL,
    kind       TEXT    NOT NULL,
    author     TEXT    NOT NULL,
    commit_id  TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    added      INTEGER NOT NULL,
    removed    INTEGER NOT NULL,
    changed    INTEGER NOT NULL,
    bytes      INTEGER NOT NULL,            -- of this row and the parts
    UNIQUE (gateway_id, number)
) STRICT;

CREATE TABLE revision_parts (
    revision_id TEXT    NOT NULL,
    kind        INTEGER NOT NULL,           -- 0 packed content, 1 pages of routes
    n           INTEGER NOT NULL,
    content     BLOB    NOT NULL,
    UNIQUE (revision_id, kind, n)
) STRICT;

CREATE TABLE revisions_gone (id TEXT NOT NULL PRIMARY KEY) STRICT;

-- The revisions of each gateway that has any, kept by triggers.
CREATE TABLE revision_counts (
    gateway_id   TEXT    NOT NULL PRIMARY KEY,
    account_id   TEXT    NOT NULL,
    revisions    INTEGER NOT NULL,
    newest       INTEGER NOT NULL,           -- number of the newest
    newest_bytes INTEGER NOT NULL,
    older_bytes  INTEGER NOT NULL,           -- of all but the newest
    oldest_at    INTEGER NOT NULL,           -- when the oldest was created
    gone         INTEGER NOT NULL DEFAULT 0  -- 1: the gateway is deleted, and the revisions are to be removed
) STRICT, WITHOUT ROWID;
CREATE INDEX revision_counts_older ON revision_counts (account_id, older_bytes);
CREATE INDEX revision_counts_oldest ON revision_counts (revisions, oldest_at);
CREATE INDEX revision_counts_gone ON revision_counts (gone) WHERE gone = 1;

CREATE TRIGGER revisions_deleted AFTER DELETE ON revisions BEGIN
    INSERT OR IGNORE INTO revisions_gone VALUES (old.id);
END;

CREATE TRIGGER revisions_counted AFTER INSERT ON revisions BEGIN
    INSERT INTO revision_counts (gateway_id, account_id, revisions, newest, newest_bytes, older_bytes, oldest_at)
    VALUES (new.gateway_id, (SELECT account_id FROM gateways WHERE id = new.gateway_id), 1, new.number, new.bytes, 0, new.created_at)
    ON CONFLICT (gateway_id) DO UPDATE SET revisions = revisions + 1, newest = excluded.newest,
        newest_bytes = excluded.newest_bytes, older_bytes = older_bytes + newest_bytes;
    INSERT INTO account_counts (account_id, revision_bytes)
    VALUES ((SELECT account_id FROM revision_counts WHERE gateway_id = new.gateway_id), new.bytes)
    ON CONFLICT (account_id) DO UPDATE SET revision_bytes = revision_bytes + excluded.revision_bytes;
END;

-- The newest revision is removed only with all others, after its gateway.
CREATE TRIGGER revisions_uncounted AFTER DELETE ON revisions BEGIN
    UPDATE account_counts SET revision_bytes = revision_bytes - old.bytes
    WHERE account_id = (SELECT account_id FROM revision_counts WHERE gateway_id = old.gateway_id);
    UPDATE revision_counts SET revisions = revisions - 1,
        newest_bytes = iif(newest = old.number, 0, newest_bytes),
        older_bytes = older_bytes - iif(newest = old.number, 0, old.bytes),
        oldest_at = coalesce((SELECT created_at FROM revisions WHERE gateway_id = old.gateway_id ORDER BY number LIMIT 1), 0)
    WHERE gateway_id = old.gateway_id;
    DELETE FROM revision_counts WHERE gateway_id = old.gateway_id AND revisions = 0;
END;

-- How much of some kinds an account has, kept by triggers, so that the bounds are cheap to check. An account that
-- never had any may have no row. The bytes are of the configuration that is in the memory of every node, and count
-- what the account may choose: of gateways the settings; of routes what gateway.RouteBytes says; of keys that are not
-- revoked the scopes and the owner; of webhooks URL and events.
CREATE TABLE account_counts (
    account_id     TEXT    NOT NULL PRIMARY KEY,
    keys           INTEGER NOT NULL DEFAULT 0, -- in any state
    live_keys      INTEGER NOT NULL DEFAULT 0, -- not revoked
    responses      INTEGER NOT NULL DEFAULT 0, -- in answers
    response_bytes INTEGER NOT NULL DEFAULT 0, -- of their bodies and headers
    revision_bytes INTEGER NOT NULL DEFAULT 0,
    gateway_bytes  INTEGER NOT NULL DEFAULT 0,
    route_bytes    INTEGER NOT NULL DEFAULT 0,
    key_bytes      INTEGER NOT NULL DEFAULT 0,
    webhook_bytes  INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;
CREATE INDEX account_counts_revisions ON account_counts (revision_bytes);

CREATE TRIGGER answers_counted AFTER INSERT ON answers BEGIN
    UPDATE account_counts SET responses = responses + 1,
        response_bytes = response_bytes + coalesce(length(new.body), 0) + coalesce(octet_length(new.header), 0)
    WHERE account_id = (SELECT account_id FROM keys WHERE id = new.key_id);
END;

CREATE TRIGGER answers_recounted AFTER UPDATE OF body, header ON answers BEGIN
    UPDATE account_counts SET response_bytes = response_bytes
        + coalesce(length(new.body), 0) + coalesce(octet_length(new.header), 0)
        - coalesce(length(old.body), 0) - coalesce(octet_length(old.header), 0)
    WHERE account_id = (SELECT account_id FROM keys WHERE id = new.key_id);
END;

CREATE TRIGGER answers_uncounted AFTER DELETE ON answers BEGIN
    UPDATE account_counts SET responses = responses - 1,
        response_bytes = response_bytes - coalesce(length(old.body), 0) - coalesce(octet_length(old.header), 0)
    WHERE account_id = (SELECT account_id FROM keys WHERE id = old.key_id);
END;

CREATE TRIGGER gateways_counted AFTER INSERT ON gateways BEGIN
    INSERT INTO account_counts (account_id, gateway_bytes, route_bytes) VALUES (new.account_id,
        octet_length(new.name) + octet_length(new.upstream) + octet_length(new.hostname) + octet_length(new.requests) + coalesce(octet_length(new.cors), 0),
        new.route_bytes)
    ON CONFLICT (account_id) DO UPDATE SET gateway_bytes = gateway_bytes + excluded.gateway_bytes, route_bytes = route_bytes + excluded.route_bytes;
END;

CREATE TRIGGER gateways_recounted AFTER UPDATE OF name, upstream, hostname, requests, cors, route_bytes ON gateways BEGIN
    UPDATE account_counts SET gateway_bytes = gateway_bytes
        + octet_length(new.name) + octet_length(new.upstream) + octet_length(new.hostname) + octet_length(new.requests) + coalesce(octet_length(new.cors), 0)
        - octet_length(old.name) - octet_length(old.upstream) - octet_length(old.hostname) - octet_length(old.requests) - coalesce(octet_length(old.cors), 0),
        route_bytes = route_bytes + new.route_bytes - old.route_bytes
    WHERE account_id = new.account_id;
END;

CREATE TRIGGER gateways_uncounted AFTER DELETE ON gateways BEGIN
    UPDATE account_counts SET gateway_bytes = gateway_bytes
        - octet_length(old.name) - octet_length(old.upstream) - octet_length(old.hostname) - octet_length(old.requests) - coalesce(octet_length(old.cors), 0),
        route_bytes = route_bytes - old.route_bytes
    WHERE account_id = old.account_id;
END;

CREATE TRIGGER keys_counted AFTER INSERT ON keys BEGIN
    INSERT INTO account_counts (account_id, keys, live_keys, key_bytes) VALUES (new.account_id, 1, new.phase < 2,
        (new.phase < 2) * (coalesce(octet_length(new.resource), 0) + coalesce(octet_length(new.more_scopes), 0) + coalesce(octet_length(new.owner), 0)))
    ON CONFLICT (account_id) DO UPDATE SET keys = keys + 1, live_keys = live_keys + excluded.live_keys, key_bytes = key_bytes + excluded.key_bytes;
END;

CREATE TRIGGER keys_recounted AFTER UPDATE OF phase, resource, more_scopes, owner ON keys
WHEN (old.phase < 2) <> (new.phase < 2) OR old.resource IS NOT new.resource OR old.more_scopes IS NOT new.more_scopes OR old.owner IS NOT new.owner BEGIN
    UPDATE account_counts SET live_keys = live_keys + (new.phase < 2) - (old.phase < 2), key_bytes = key_bytes
        + (new.phase < 2) * (coalesce(octet_length(new.resource), 0) + coalesce(octet_length(new.more_scopes), 0) + coalesce(octet_length(new.owner), 0))
        - (old.phase < 2) * (coalesce(octet_length(old.resource), 0) + coalesce(octet_length(old.more_scopes), 0) + coalesce(octet_length(old.owner), 0))
    WHERE account_id = new.account_id;
END;

-- A response belongs to the account of its key, so it does not outlive the key.
CREATE TRIGGER keys_uncounted BEFORE DELETE ON keys BEGIN
    DELETE FROM answers WHERE key_id = old.id;
    UPDATE account_counts SET keys = keys - 1, live_keys = live_keys - (old.phase < 2), key_bytes = key_bytes
        - (old.phase < 2) * (coalesce(octet_length(old.resource), 0) + coalesce(octet_length(old.more_scopes), 0) + coalesce(octet_length(old.owner), 0))
    WHERE account_id = old.account_id;
END;

-- The search index of keys: an inverted index whose documents are keys, by keys.n, and whose
-- terms are made in keyindex.go. It has no copy of the texts.
CREATE VIRTUAL TABLE key_terms USING fts5 (terms, content = '', contentless_delete = 1, detail = none, tokenize = 'ascii');

-- The keys that are not in the search index as they are now, which searches read one by one.
-- Maintenance indexes them and removes them here. A key that is backdated has a lower
-- identifier than one that was there before, so that keys.n does not order it as lists do; it
-- stays here for good.
CREATE TABLE keys_unindexed (
    account_id TEXT    NOT NULL,
    key_id     TEXT    NOT NULL,
    n          INTEGER NOT NULL,            -- keys.n
    backdated  INTEGER NOT NULL,
    PRIMARY KEY (account_id, key_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX keys_to_index ON keys_unindexed (n) WHERE backdated = 0;

CREATE TRIGGER keys_inserted AFTER INSERT ON keys BEGIN
    INSERT INTO keys_unindexed (account_id, key_id, n, backdated) SELECT new.account_id, new.id, new.n,
        EXISTS (SELECT 1 FROM keys INDEXED BY keys_list WHERE account_id = new.account_id AND id > new.id);
END;

CREATE TRIGGER keys_updated AFTER UPDATE OF name, level, phase, gateway_id, owner ON keys
WHEN old.name <> new.name OR old.level <> new.level OR old.phase <> new.phase OR old.gateway_id IS NOT new.gateway_id OR old.owner IS NOT new.owner BEGIN
    INSERT INTO keys_unindexed (account_id, key_id, n, backdated) VALUES (new.account_id, new.id, new.n, 0) ON CONFLICT DO NOTHING;
END;

CREATE TRIGGER keys_deleted AFTER DELETE ON keys BEGIN
    DELETE FROM keys_unindexed WHERE account_id = old.account_id AND key_id = old.id;
    DELETE FROM key_terms WHERE rowid = old.n;
END;

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

-- The sessions of browsers. The value of the cookie is not stored. Each use is checked against the
-- present state of the key, so a session ends with its key whether its row is removed or not.
CREATE TABLE sessions (
    digest     BLOB    NOT NULL PRIMARY KEY, -- SHA-256 of the value of the cookie
    account_id TEXT    NOT NULL REFERENCES accounts (id),
    key_id     TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX sessions_key ON sessions (key_id, created_at);
CREATE INDEX sessions_account ON sessions (account_id, created_at);
CREATE INDEX sessions_expiry ON sessions (expires_at);

CREATE TABLE webhooks (
    id              TEXT    NOT NULL PRIMARY KEY,
    account_id      TEXT    NOT NULL REFERENCES accounts (id),
    url             TEXT    NOT NULL,
    shares_url      INTEGER NOT NULL,       -- another endpoint of the account may have the URL
    events          TEXT    NOT NULL,       -- separated by spaces
    active          INTEGER NOT NULL,
    disabled_reason TEXT    NOT NULL,
    secret          BLOB    NOT NULL,       -- sealed, as old_secret
    secret_since    INTEGER NOT NULL,
    old_secret      BLOB,
    old_until       INTEGER,
    failing_since   INTEGER,
    paused_until    INTEGER,                -- the end of the latest pause; NULL if there was none
    created_at      INTEGER NOT NULL,
    version         INTEGER NOT NULL,
    since           INTEGER NOT NULL DEFAULT 0 -- the newest fan_outs.n when the present subscription began
) STRICT;
CREATE INDEX webhooks_list ON webhooks (account_id, id);
CREATE INDEX webhooks_urls ON webhooks (account_id, url);
CREATE UNIQUE INDEX webhooks_own_url ON webhooks (account_id, url) WHERE shares_url = 0;
-- Who asked for what: an event steps through the lists of types that there are, and
-- not through all endpoints of its account.
CREATE INDEX webhooks_listeners ON webhooks (account_id, events, id) WHERE active = 1;

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
-- The deliveries of one event, newest first: its endpoints', and every redelivery.
CREATE INDEX deliveries_of_event ON deliveries (event_id, id);
CREATE INDEX deliveries_due     ON deliveries (webhook_id, state, due_at, token) WHERE due_at IS NOT NULL;
CREATE INDEX deliveries_hand    ON deliveries (webhook_id, due_at) WHERE due_at IS NOT NULL AND state = 0 AND cause IN ('manual', 'test');
-- What is due next, whichever endpoint it is for: a claim need not ask each of the
-- endpoints for which something waits.
CREATE INDEX deliveries_next ON deliveries (due_at, webhook_id) WHERE due_at IS NOT NULL;
CREATE INDEX deliveries_age     ON deliveries (state, finished_at) WHERE finished_at IS NOT NULL;
CREATE INDEX deliveries_failed  ON deliveries (webhook_id, finished_at) WHERE state = 3 AND again = 0;
CREATE INDEX deliveries_again   ON deliveries (event_id, webhook_id) WHERE state = 3 AND again = 0;

CREATE TABLE attempts (
    n          INTEGER NOT NULL PRIMARY KEY, -- 8 * deliveries.n + the attempt's number
    started_at INTEGER NOT NULL,
    duration   INTEGER NOT NULL,             -- nanoseconds
    status     INTEGER NOT NULL,             -- 0 if no answer came
    error      TEXT    NOT NULL,
    response   BLOB
) STRICT;

-- The events that have more deliveries than the transaction of the event wrote. They are written later, some in
-- each transaction. n is in the order of the commits.
CREATE TABLE fan_outs (
    n          INTEGER PRIMARY KEY AUTOINCREMENT,
    event_id   TEXT NOT NULL,
    account_id TEXT NOT NULL,
    type       TEXT NOT NULL,
    after      TEXT NOT NULL                -- the endpoint up to which deliveries are written; '' for none
) STRICT;
CREATE INDEX fan_outs_account ON fan_outs (account_id, n);

-- An event is for the endpoints that were subscribed to it when it was raised: those whose subscription began
-- after fewer fan-outs (webhooks.since), and had not ended. Subscriptions that ended are kept as long as a fan-out
-- may need them.
CREATE TABLE former_subscriptions (
    n          INTEGER PRIMARY KEY,
    account_id TEXT    NOT NULL,
    webhook_id TEXT    NOT NULL,
    events     TEXT    NOT NULL,
    since      INTEGER NOT NULL,
    until      INTEGER NOT NULL             -- the newest fan_outs.n when it ended
) STRICT;
CREATE INDEX former_subscriptions_list ON former_subscriptions (account_id, webhook_id);
CREATE INDEX former_subscriptions_end  ON former_subscriptions (account_id, until);

CREATE TRIGGER webhooks_subscribe AFTER INSERT ON webhooks BEGIN
    UPDATE webhooks SET since = coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'fan_outs'), 0) WHERE id = new.id;
END;

CREATE TRIGGER webhooks_resubscribe AFTER UPDATE OF events, active ON webhooks WHEN old.events <> new.events OR old.active <> new.active BEGIN
    INSERT INTO former_subscriptions (account_id, webhook_id, events, since, until)
    SELECT old.account_id, old.id, old.events, old.since, seq FROM sqlite_sequence
    WHERE name = 'fan_outs' AND old.active = 1 AND EXISTS (SELECT 1 FROM fan_outs WHERE account_id = old.account_id);
    UPDATE webhooks SET since = coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'fan_outs'), 0) WHERE id = new.id;
END;

CREATE TRIGGER webhooks_unsubscribe AFTER DELETE ON webhooks WHEN old.active = 1 BEGIN
    INSERT INTO former_subscriptions (account_id, webhook_id, events, since, until)
    SELECT old.account_id, old.id, old.events, old.since, seq FROM sqlite_sequence
    WHERE name = 'fan_outs' AND EXISTS (SELECT 1 FROM fan_outs WHERE account_id = old.account_id);
END;

CREATE TRIGGER webhooks_counted AFTER INSERT ON webhooks BEGIN
    INSERT INTO account_counts (account_id, webhook_bytes) VALUES (new.account_id, octet_length(new.url) + octet_length(new.events))
    ON CONFLICT (account_id) DO UPDATE SET webhook_bytes = webhook_bytes + excluded.webhook_bytes;
END;

CREATE TRIGGER webhooks_recounted AFTER UPDATE OF url, events ON webhooks WHEN old.url <> new.url OR old.events <> new.events BEGIN
    UPDATE account_counts SET webhook_bytes = webhook_bytes + octet_length(new.url) + octet_length(new.events) - octet_length(old.url) - octet_length(old.events)
    WHERE account_id = new.account_id;
END;

CREATE TRIGGER webhooks_uncounted AFTER DELETE ON webhooks BEGIN
    UPDATE account_counts SET webhook_bytes = webhook_bytes - octet_length(old.url) - octet_length(old.events) WHERE account_id = old.account_id;
END;

-- Deleted gateways whose keys are not all revoked yet, or whose routes are not all in the audit log. Whatever reads
-- keys takes those restricted to such a gateway for revoked when it was deleted.
CREATE TABLE ended_gateways (
    id         TEXT    NOT NULL PRIMARY KEY,
    account_id TEXT    NOT NULL,
    table_id   INTEGER NOT NULL,            -- of its routes; 0 for none
    after      TEXT    NOT NULL,            -- the route up to which they are in the audit log; '' for none
    at         INTEGER NOT NULL,            -- when it was deleted
    call       TEXT    NOT NULL             -- that deleted it: JSON object
) STRICT;
CREATE INDEX ended_gateways_account ON ended_gateways (account_id);

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
    reason          INTEGER NOT NULL,       -- accesslog.Reason: why an upstream could not be reached
    detail          TEXT    NOT NULL,       -- the text of that error
    host            TEXT    NOT NULL,       -- that the client addressed, for a 404 or 405
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

-- The last batch that each writer of access records has stored (accesslog.BatchID).
CREATE TABLE record_batches (
    writer TEXT    NOT NULL PRIMARY KEY,
    number INTEGER NOT NULL,
    at     INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX record_batches_age ON record_batches (at);

-- The readings of the clock of retention, as JSON (package retention).
CREATE TABLE retention (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    state TEXT NOT NULL
) STRICT;

-- The version of Keygate that has migrated the database to a schema, which an older one names when it
-- refuses the database. It says nothing of another schema than that.
CREATE TABLE schema_support (
    schema  INTEGER NOT NULL,
    version TEXT    NOT NULL                -- '' if unknown
) STRICT;
INSERT INTO schema_support VALUES (0, '');
-- +goose StatementEnd
