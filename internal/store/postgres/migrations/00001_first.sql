-- +goose Up
-- +goose StatementBegin

-- Times are microseconds since 1970. Absent texts are '' unless an index leaves them out, in which
-- case they are NULL. A constraint that may be violated is named "table.column", see fault.go.

-- The newest change. A mutation locks this row before it reads anything, so that mutations run one
-- at a time over all nodes.
CREATE TABLE change_head (
    one    boolean NOT NULL PRIMARY KEY DEFAULT true CHECK (one),
    number bigint  NOT NULL,                -- 0 before the first
    mark   bytea   NOT NULL,                -- random; a pair (number, mark) names one history
    format int     NOT NULL DEFAULT 1       -- the newest one of a change ever written, see changes.format
);
INSERT INTO change_head (number, mark) VALUES (0, '\x0000000000000000');

-- What belongs to the installation as a whole: one row, which the first node inserts.
CREATE TABLE installation (
    one    boolean NOT NULL PRIMARY KEY DEFAULT true CHECK (one),
    id     text    COLLATE "C" NOT NULL,    -- names the installation in other stores
    canary bytea   NOT NULL                 -- a known text, sealed with the secret key
);

CREATE TABLE changes (
    seq       bigint NOT NULL PRIMARY KEY,  -- dense, in the order of commits
    mark      bytea  NOT NULL,
    at        bigint NOT NULL,
    kind      text   COLLATE "C" NOT NULL,
    record_id text   COLLATE "C" NOT NULL,
    stored    timestamptz NOT NULL DEFAULT clock_timestamp(), -- by the clock of the server; at has that of the node
    revoked   bytea,                        -- the digest of the key that the change revokes: nodes refuse it without reading it
    format    int    NOT NULL DEFAULT 1     -- that a node must read to put the change in force, or it must not join
);
CREATE TABLE changes_trimmed (
    seq bigint NOT NULL                     -- the last entry that was trimmed
);
INSERT INTO changes_trimmed VALUES (0);

CREATE FUNCTION notify_changes() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('keygate_changes', '');
    RETURN NULL;
END
$$;
CREATE TRIGGER changes_notify AFTER INSERT ON changes FOR EACH STATEMENT EXECUTE FUNCTION notify_changes();

CREATE TABLE accounts (
    id         text   COLLATE "C" NOT NULL CONSTRAINT "accounts.id" PRIMARY KEY,
    name       text   COLLATE "C" NOT NULL CONSTRAINT "accounts.name" UNIQUE,
    plan       text   COLLATE "C" NOT NULL,
    hosts      text   COLLATE "C",          -- JSON array
    created_at bigint NOT NULL,
    audit_seq  bigint NOT NULL DEFAULT 0,   -- the last audit.seq given out
    state      text   COLLATE "C" NOT NULL DEFAULT 'active', -- active, suspended, deleted, removed
    version    bigint NOT NULL DEFAULT 1
);
-- A deleted account leaves its row behind, with its identifier for a name: the audit log stays until
-- its retention ends. In the state deleted its other records are being removed; in the state removed
-- they are gone.
CREATE INDEX accounts_deleted ON accounts (id) WHERE state = 'deleted';

CREATE TABLE gateways (
    id               text    COLLATE "C" NOT NULL CONSTRAINT "gateways.id" PRIMARY KEY,
    account_id       text    COLLATE "C" NOT NULL REFERENCES accounts (id),
    name             text    COLLATE "C" NOT NULL,
    shares_name      boolean NOT NULL,             -- another gateway of the account may have the name
    upstream         text    COLLATE "C" NOT NULL, -- JSON object
    hostname         text    COLLATE "C" NOT NULL CONSTRAINT "gateways.hostname" UNIQUE,
    host_given       boolean NOT NULL,
    global_sustained text    COLLATE "C" NOT NULL,
    global_burst     text    COLLATE "C" NOT NULL,
    timeout          text    COLLATE "C" NOT NULL,
    cors             text    COLLATE "C",          -- JSON object
    max_body_bytes   bigint  NOT NULL,
    requests         text    COLLATE "C" NOT NULL, -- JSON object
    revision         bigint  NOT NULL,
    is_default       boolean NOT NULL,             -- at most one of all
    table_id         bigint  NOT NULL DEFAULT 0,   -- of the current table of routes
    route_count      bigint  NOT NULL DEFAULT 0,
    route_bytes      bigint  NOT NULL DEFAULT 0,   -- gateway.RouteBytes of all of them
    created_at       bigint  NOT NULL,
    version          bigint  NOT NULL
);
CREATE INDEX gateways_list ON gateways (account_id, id);
CREATE INDEX gateways_routes ON gateways (account_id, route_count);
CREATE INDEX gateways_names ON gateways (account_id, name);
CREATE UNIQUE INDEX "gateways.name" ON gateways (account_id, name) WHERE NOT shares_name;
CREATE UNIQUE INDEX "gateways.is_default" ON gateways (is_default) WHERE is_default;

CREATE TABLE route_tables (
    id          bigint  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    gateway_id  text    COLLATE "C" NOT NULL,
    revision_id text    COLLATE "C" NOT NULL,      -- of a staged table, else ''
    state       integer NOT NULL,                  -- 0 staged, 1 current, 2 dropped
    version     bigint  NOT NULL,                  -- grows with every change
    created_at  bigint  NOT NULL
);
CREATE INDEX route_tables_rest ON route_tables (state, created_at);
CREATE INDEX route_tables_gateway ON route_tables (gateway_id);

CREATE TABLE route_pages (
    n        bigint  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    table_id bigint  NOT NULL,
    first    text    COLLATE "C" NOT NULL,         -- identifier of the first route
    routes   integer NOT NULL,                     -- how many it has
    content  bytea   NOT NULL,
    CONSTRAINT "route_pages.first" UNIQUE (table_id, first)
);
-- Pages are compressed already.
ALTER TABLE route_pages ALTER COLUMN content SET STORAGE EXTERNAL;

-- A revision does not refer to its gateway: it is removed some time after that, with others, in
-- small steps.
CREATE TABLE revisions (
    id         text   COLLATE "C" NOT NULL CONSTRAINT "revisions.id" PRIMARY KEY,
    gateway_id text   COLLATE "C" NOT NULL,
    number     bigint NOT NULL,
    source     text   COLLATE "C" NOT NULL,
    kind       text   COLLATE "C" NOT NULL,
    author     text   COLLATE "C" NOT NULL,
    commit_id  text   COLLATE "C" NOT NULL,
    created_at bigint NOT NULL,
    added      bigint NOT NULL,
    removed    bigint NOT NULL,
    changed    bigint NOT NULL,
    bytes      bigint NOT NULL,                    -- of this row and the parts
    CONSTRAINT "revisions.number" UNIQUE (gateway_id, number)
);

CREATE TABLE revision_parts (
    revision_id text    COLLATE "C" NOT NULL,
    kind        integer NOT NULL,                  -- 0 packed content, 1 pages of routes
    n           bigint  NOT NULL,
    content     bytea   NOT NULL,
    CONSTRAINT "revision_parts.n" PRIMARY KEY (revision_id, kind, n)
);
ALTER TABLE revision_parts ALTER COLUMN content SET STORAGE EXTERNAL;

CREATE TABLE revisions_gone (
    id text COLLATE "C" NOT NULL PRIMARY KEY
);

-- The revisions of each gateway that has any, kept by triggers.
CREATE TABLE revision_counts (
    gateway_id   text    COLLATE "C" NOT NULL PRIMARY KEY,
    account_id   text    COLLATE "C" NOT NULL,
    revisions    bigint  NOT NULL,
    newest       bigint  NOT NULL,                 -- number of the newest
    newest_bytes bigint  NOT NULL,
    older_bytes  bigint  NOT NULL,                 -- of all but the newest
    oldest_at    bigint  NOT NULL,                 -- when the oldest was created
    gone         boolean NOT NULL DEFAULT false    -- the gateway is deleted, and the revisions are to be removed
);
CREATE INDEX revision_counts_older ON revision_counts (account_id, older_bytes);
CREATE INDEX revision_counts_oldest ON revision_counts (revisions, oldest_at);
CREATE INDEX revision_counts_gone ON revision_counts (gateway_id) WHERE gone;

-- How much of some kinds an account has, kept by triggers, so that the bounds are cheap to check. An
-- account that never had any may have no row. The bytes are of the configuration that is in the memory of every
-- node, and count what the account may choose: of gateways the settings; of routes what gateway.RouteBytes says; of
-- keys that are not revoked the scopes and the owner; of webhooks URL and events.
CREATE TABLE account_counts (
    account_id     text   COLLATE "C" NOT NULL PRIMARY KEY,
    keys           bigint NOT NULL DEFAULT 0,      -- in any state
    live_keys      bigint NOT NULL DEFAULT 0,      -- not revoked
    responses      bigint NOT NULL DEFAULT 0,      -- in answers
    response_bytes bigint NOT NULL DEFAULT 0,      -- of their bodies and headers
    revision_bytes bigint NOT NULL DEFAULT 0,
    gateway_bytes  bigint NOT NULL DEFAULT 0,
    route_bytes    bigint NOT NULL DEFAULT 0,
    key_bytes      bigint NOT NULL DEFAULT 0,
    webhook_bytes  bigint NOT NULL DEFAULT 0
);
CREATE INDEX account_counts_revisions ON account_counts (revision_bytes);

CREATE TABLE repositories (
    gateway_id      text    COLLATE "C" NOT NULL CONSTRAINT "repositories.gateway_id" PRIMARY KEY REFERENCES gateways (id),
    account_id      text    COLLATE "C" NOT NULL,
    url             text    COLLATE "C" NOT NULL,
    branch          text    COLLATE "C" NOT NULL,
    path            text    COLLATE "C" NOT NULL,
    kind            text    COLLATE "C" NOT NULL,
    interval        text    COLLATE "C" NOT NULL,  -- as given
    credential      bytea,                         -- sealed
    known_hosts     text    COLLATE "C" NOT NULL,
    host_key        text    COLLATE "C" NOT NULL,
    hook_secret     bytea,                         -- sealed
    status_provider text    COLLATE "C" NOT NULL,
    status_token    bytea,                         -- sealed
    paused          boolean NOT NULL,
    last_commit     text    COLLATE "C" NOT NULL,
    failed_commit   text    COLLATE "C" NOT NULL,
    last_error      text    COLLATE "C" NOT NULL,
    failure_kind    text    COLLATE "C" NOT NULL,
    failures        bigint  NOT NULL,
    warning         text    COLLATE "C" NOT NULL,
    notified        text    COLLATE "C" NOT NULL,  -- commits, separated by spaces
    last_attempt_at bigint,
    last_synced_at  bigint,
    next_sync_at    bigint,
    created_at      bigint  NOT NULL,
    version         bigint  NOT NULL
);
CREATE INDEX repositories_account ON repositories (account_id);

CREATE TABLE keys (
    n            bigint  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id           text    COLLATE "C" NOT NULL CONSTRAINT "keys.id" UNIQUE,
    account_id   text    COLLATE "C" NOT NULL REFERENCES accounts (id),
    digest       bytea   NOT NULL CONSTRAINT "keys.digest" UNIQUE,
    prefix       text    COLLATE "C" NOT NULL,
    level        integer NOT NULL,                 -- 1 gateway, 2 account
    phase        integer NOT NULL,                 -- 0 live, 1 expired and told, 2 revoked
    word         integer NOT NULL,                 -- of the first scope: 1 read, 2 write, 3 admin
    resource     text    COLLATE "C",              -- of the first scope
    more_scopes  text    COLLATE "C",              -- the others, as users write them
    gateway_id   text    COLLATE "C",              -- outlives the gateway
    owner        text    COLLATE "C",
    bucket_id    text    COLLATE "C",              -- NULL if it equals id
    rate_limit   text    COLLATE "C",
    expires_at   bigint,
    last_used_at bigint,
    created_at   bigint  NOT NULL,
    revoked_at   bigint,
    expiry_told  bigint,
    rotated_from text    COLLATE "C",
    rotated_to   text    COLLATE "C",
    version      bigint  NOT NULL,
    name         text    COLLATE "C" NOT NULL,
    metadata     text    COLLATE "C",              -- JSON object
    ended        boolean NOT NULL DEFAULT false    -- by a rotation without overlap: it has expired, whatever a clock shows
);
-- Lists, newest first.
CREATE INDEX keys_list    ON keys (account_id, id);
CREATE INDEX keys_state   ON keys (account_id, level, phase, id);
CREATE INDEX keys_gateway ON keys (gateway_id, phase, id) WHERE gateway_id IS NOT NULL;
CREATE INDEX keys_owner   ON keys (account_id, owner, phase, id) WHERE owner IS NOT NULL;
CREATE INDEX keys_bucket  ON keys (bucket_id) WHERE bucket_id IS NOT NULL;
-- The keys of a chain of rotations that share its rate limit, which a change of that writes: those that ended long ago
-- are passed over, however many there are.
CREATE INDEX keys_chain   ON keys (bucket_id, expires_at) WHERE bucket_id IS NOT NULL AND phase < 2 AND NOT ended;
CREATE INDEX keys_expiry  ON keys (phase, expires_at) WHERE phase < 2 AND expires_at IS NOT NULL;

-- The search index of keys: an inverted index of the hashes of their terms, see package stored.
CREATE TABLE key_terms (
    n     bigint   NOT NULL PRIMARY KEY,           -- keys.n
    terms bigint[] NOT NULL
);
CREATE INDEX key_terms_index ON key_terms USING gin (terms);
-- So that the planner knows which terms are common.
ALTER TABLE key_terms ALTER COLUMN terms SET STATISTICS 1000;

-- The keys that are not in the search index as they are now, which searches read one by one.
-- Maintenance indexes them and removes them here.
CREATE TABLE keys_unindexed (
    n          bigint NOT NULL PRIMARY KEY,        -- keys.n
    account_id text   COLLATE "C" NOT NULL
);
CREATE INDEX keys_unindexed_account ON keys_unindexed (account_id, n);

-- The sessions of browsers. The value of the cookie is not stored. Each use is checked against the
-- present state of the key, so a session ends with its key whether its row is removed or not.
CREATE TABLE sessions (
    digest     bytea  NOT NULL CONSTRAINT "sessions.digest" PRIMARY KEY, -- SHA-256 of the value of the cookie
    account_id text   COLLATE "C" NOT NULL REFERENCES accounts (id),
    key_id     text   COLLATE "C" NOT NULL,
    created_at bigint NOT NULL,
    expires_at bigint NOT NULL
);
CREATE INDEX sessions_key ON sessions (key_id, created_at);
CREATE INDEX sessions_account ON sessions (account_id, created_at);
CREATE INDEX sessions_expiry ON sessions (expires_at);

-- Responses that are stored for an Idempotency-Key.
CREATE TABLE answers (
    key_id      text    COLLATE "C" NOT NULL,
    key         text    COLLATE "C" NOT NULL,
    fingerprint bytea   NOT NULL,
    status      integer NOT NULL,
    header      text    COLLATE "C",               -- JSON object
    body        bytea,
    created_at  bigint  NOT NULL,
    CONSTRAINT "answers.key" PRIMARY KEY (key_id, key)
);
CREATE INDEX answers_age ON answers (created_at);

CREATE TABLE daily_counts (
    day      bigint NOT NULL,                      -- UTC days since 1970
    limit_id text   COLLATE "C" NOT NULL,
    key_id   text   COLLATE "C" NOT NULL,
    used     bigint NOT NULL,
    lost     bigint NOT NULL DEFAULT 0,            -- how many of these have not passed, at most
    CONSTRAINT "daily_counts.key_id" PRIMARY KEY (day, limit_id, key_id)
);

CREATE TABLE daily_claims (                        -- what each process has claimed of it
    day      bigint NOT NULL,
    limit_id text   COLLATE "C" NOT NULL,
    key_id   text   COLLATE "C" NOT NULL,
    node     text   COLLATE "C" NOT NULL,          -- name of the process
    used     bigint NOT NULL,
    lost     bigint NOT NULL,
    CONSTRAINT "daily_claims.node" PRIMARY KEY (day, limit_id, key_id, node)
);

CREATE FUNCTION gateway_bytes(g gateways) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT (octet_length(g.name) + octet_length(g.upstream) + octet_length(g.hostname) + octet_length(g.requests) + coalesce(octet_length(g.cors), 0))::bigint
$$;

CREATE FUNCTION key_bytes(phase integer, resource text, more_scopes text, owner text) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN phase < 2 THEN coalesce(octet_length(resource), 0) + coalesce(octet_length(more_scopes), 0) + coalesce(octet_length(owner), 0) ELSE 0 END::bigint
$$;

CREATE FUNCTION count_gateway() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    account  text   := CASE WHEN TG_OP = 'DELETE' THEN old.account_id ELSE new.account_id END;
    settings bigint := 0;
    routes   bigint := 0;
BEGIN
    IF TG_OP <> 'DELETE' THEN
        settings := gateway_bytes(new);
        routes := new.route_bytes;
    END IF;
    IF TG_OP <> 'INSERT' THEN
        settings := settings - gateway_bytes(old);
        routes := routes - old.route_bytes;
    END IF;
    IF TG_OP = 'INSERT' THEN
        INSERT INTO account_counts AS c (account_id, gateway_bytes, route_bytes) VALUES (account, settings, routes)
        ON CONFLICT (account_id) DO UPDATE SET gateway_bytes = c.gateway_bytes + excluded.gateway_bytes, route_bytes = c.route_bytes + excluded.route_bytes;
    ELSIF settings <> 0 OR routes <> 0 THEN
        UPDATE account_counts SET gateway_bytes = gateway_bytes + settings, route_bytes = route_bytes + routes WHERE account_id = account;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER gateways_counted AFTER INSERT OR DELETE OR UPDATE OF name, upstream, hostname, requests, cors, route_bytes ON gateways
FOR EACH ROW EXECUTE FUNCTION count_gateway();

-- Where one statement may change many rows of an account, it is counted once, by a trigger for the
-- statement: each change of a row of counts would make the next one slower until the transaction ends.

CREATE FUNCTION count_inserted_keys() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO account_counts AS c (account_id, keys, live_keys, key_bytes)
    SELECT account_id, count(*), count(*) FILTER (WHERE phase < 2), sum(key_bytes(phase, resource, more_scopes, owner)) FROM inserted GROUP BY account_id
    ON CONFLICT (account_id) DO UPDATE SET keys = c.keys + excluded.keys, live_keys = c.live_keys + excluded.live_keys, key_bytes = c.key_bytes + excluded.key_bytes;
    RETURN NULL;
END $$;
CREATE TRIGGER keys_counted AFTER INSERT ON keys REFERENCING NEW TABLE AS inserted FOR EACH STATEMENT EXECUTE FUNCTION count_inserted_keys();

CREATE FUNCTION count_updated_key() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE account_counts SET live_keys = live_keys + (new.phase < 2)::int - (old.phase < 2)::int, key_bytes = key_bytes
        + key_bytes(new.phase, new.resource, new.more_scopes, new.owner) - key_bytes(old.phase, old.resource, old.more_scopes, old.owner)
    WHERE account_id = new.account_id;
    RETURN NULL;
END $$;
CREATE TRIGGER keys_recounted AFTER UPDATE OF phase, resource, more_scopes, owner ON keys FOR EACH ROW
WHEN ((old.phase < 2, old.resource, old.more_scopes, old.owner) IS DISTINCT FROM (new.phase < 2, new.resource, new.more_scopes, new.owner))
EXECUTE FUNCTION count_updated_key();

-- A response belongs to the account of its key, so it does not outlive the key. count_deleted_answers does
-- not find that account any more.
CREATE FUNCTION count_deleted_keys() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    WITH gone AS (
        DELETE FROM answers a USING deleted d WHERE a.key_id = d.id
        RETURNING d.account_id, coalesce(length(a.body), 0) + coalesce(octet_length(a.header), 0) AS bytes
    ), counts AS (
        SELECT account_id, count(*) AS keys, count(*) FILTER (WHERE phase < 2) AS live_keys, sum(key_bytes(phase, resource, more_scopes, owner)) AS key_bytes,
            0 AS responses, 0 AS bytes FROM deleted GROUP BY account_id
        UNION ALL SELECT account_id, 0, 0, 0, count(*), sum(bytes) FROM gone GROUP BY account_id
    )
    UPDATE account_counts c SET keys = c.keys - d.keys, live_keys = c.live_keys - d.live_keys, key_bytes = c.key_bytes - d.key_bytes,
        responses = c.responses - d.responses, response_bytes = c.response_bytes - d.bytes
    FROM (SELECT account_id, sum(keys) AS keys, sum(live_keys) AS live_keys, sum(key_bytes) AS key_bytes, sum(responses) AS responses, sum(bytes) AS bytes
        FROM counts GROUP BY account_id) d
    WHERE c.account_id = d.account_id;
    RETURN NULL;
END $$;
CREATE TRIGGER keys_uncounted AFTER DELETE ON keys REFERENCING OLD TABLE AS deleted FOR EACH STATEMENT EXECUTE FUNCTION count_deleted_keys();

CREATE FUNCTION unindex_key() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN
        DELETE FROM keys_unindexed WHERE n = old.n;
        DELETE FROM key_terms WHERE n = old.n;
    ELSE
        INSERT INTO keys_unindexed (n, account_id) VALUES (new.n, new.account_id) ON CONFLICT DO NOTHING;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER keys_unindexed AFTER INSERT OR DELETE ON keys FOR EACH ROW EXECUTE FUNCTION unindex_key();
CREATE TRIGGER keys_reindexed AFTER UPDATE OF name, level, phase, gateway_id, owner ON keys FOR EACH ROW
WHEN ((old.name, old.level, old.phase, old.gateway_id, old.owner) IS DISTINCT FROM (new.name, new.level, new.phase, new.gateway_id, new.owner))
EXECUTE FUNCTION unindex_key();

CREATE FUNCTION count_answer() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    number bigint := 1;
    bytes  bigint := coalesce(length(new.body), 0) + coalesce(octet_length(new.header), 0);
BEGIN
    IF TG_OP = 'UPDATE' THEN
        number := 0;
        bytes := bytes - coalesce(length(old.body), 0) - coalesce(octet_length(old.header), 0);
    END IF;
    UPDATE account_counts SET responses = responses + number, response_bytes = response_bytes + bytes
    WHERE account_id = (SELECT account_id FROM keys WHERE id = new.key_id);
    RETURN NULL;
END $$;
CREATE TRIGGER answers_counted AFTER INSERT OR UPDATE OF body, header ON answers FOR EACH ROW EXECUTE FUNCTION count_answer();

CREATE FUNCTION count_deleted_answers() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE account_counts c SET responses = c.responses - d.responses, response_bytes = c.response_bytes - d.bytes
    FROM (SELECT k.account_id, count(*) AS responses, sum(coalesce(length(r.body), 0) + coalesce(octet_length(r.header), 0)) AS bytes
        FROM deleted r JOIN keys k ON k.id = r.key_id GROUP BY k.account_id) d
    WHERE c.account_id = d.account_id;
    RETURN NULL;
END $$;
CREATE TRIGGER answers_uncounted AFTER DELETE ON answers REFERENCING OLD TABLE AS deleted FOR EACH STATEMENT EXECUTE FUNCTION count_deleted_answers();

CREATE FUNCTION count_inserted_revision() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO revision_counts AS c (gateway_id, account_id, revisions, newest, newest_bytes, older_bytes, oldest_at)
    VALUES (new.gateway_id, (SELECT account_id FROM gateways WHERE id = new.gateway_id), 1, new.number, new.bytes, 0, new.created_at)
    ON CONFLICT (gateway_id) DO UPDATE SET revisions = c.revisions + 1, newest = excluded.newest,
        newest_bytes = excluded.newest_bytes, older_bytes = c.older_bytes + c.newest_bytes;
    INSERT INTO account_counts AS c (account_id, revision_bytes)
    VALUES ((SELECT account_id FROM revision_counts WHERE gateway_id = new.gateway_id), new.bytes)
    ON CONFLICT (account_id) DO UPDATE SET revision_bytes = c.revision_bytes + excluded.revision_bytes;
    RETURN NULL;
END $$;
CREATE TRIGGER revisions_counted AFTER INSERT ON revisions FOR EACH ROW EXECUTE FUNCTION count_inserted_revision();

-- The newest revision is removed only with all others, after its gateway.
CREATE FUNCTION count_deleted_revisions() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO revisions_gone SELECT id FROM deleted ON CONFLICT DO NOTHING;
    UPDATE account_counts c SET revision_bytes = c.revision_bytes - d.bytes
    FROM (SELECT n.account_id, sum(r.bytes) AS bytes FROM deleted r JOIN revision_counts n ON n.gateway_id = r.gateway_id GROUP BY n.account_id) d
    WHERE c.account_id = d.account_id;
    UPDATE revision_counts c SET revisions = c.revisions - d.revisions,
        newest_bytes = CASE WHEN d.newest THEN 0 ELSE c.newest_bytes END,
        older_bytes = c.older_bytes - d.older_bytes,
        oldest_at = coalesce((SELECT created_at FROM revisions r WHERE r.gateway_id = c.gateway_id ORDER BY r.number LIMIT 1), 0)
    FROM (SELECT r.gateway_id, count(*) AS revisions, bool_or(r.number = n.newest) AS newest, coalesce(sum(r.bytes) FILTER (WHERE r.number <> n.newest), 0) AS older_bytes
        FROM deleted r JOIN revision_counts n ON n.gateway_id = r.gateway_id GROUP BY r.gateway_id) d
    WHERE c.gateway_id = d.gateway_id;
    DELETE FROM revision_counts WHERE revisions = 0 AND gateway_id IN (SELECT gateway_id FROM deleted);
    RETURN NULL;
END $$;
CREATE TRIGGER revisions_uncounted AFTER DELETE ON revisions REFERENCING OLD TABLE AS deleted FOR EACH STATEMENT EXECUTE FUNCTION count_deleted_revisions();

-- What callers of the data plane sent, and texts of errors, may have any bytes: they are bytea.

-- The time of the queue of deliveries. It is the database's, so that the clocks of nodes do not
-- matter; tests, which have a clock of their own, set keygate.callers_time in their connections.
CREATE FUNCTION queue_now(given bigint) RETURNS bigint LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN current_setting('keygate.callers_time', true) = 'on' THEN given
        ELSE (extract(epoch FROM statement_timestamp()) * 1000000)::bigint END
$$;

CREATE TABLE webhooks (
    id              text    COLLATE "C" NOT NULL CONSTRAINT "webhooks.id" PRIMARY KEY,
    account_id      text    COLLATE "C" NOT NULL REFERENCES accounts (id),
    url             text    COLLATE "C" NOT NULL,
    shares_url      boolean NOT NULL,             -- another endpoint of the account may have the URL
    events          text    COLLATE "C" NOT NULL, -- separated by spaces
    active          boolean NOT NULL,
    disabled_reason text    COLLATE "C" NOT NULL,
    secret          bytea   NOT NULL,             -- sealed, as old_secret
    secret_since    bigint  NOT NULL,
    old_secret      bytea,
    old_until       bigint,
    failing_since   bigint,
    paused_until    bigint,                       -- the end of the latest pause; NULL if there was none
    created_at      bigint  NOT NULL,
    version         bigint  NOT NULL,
    since           bigint  NOT NULL DEFAULT 0    -- the last number of fan_outs given out when the present subscription began
);
CREATE INDEX webhooks_list ON webhooks (account_id, id);
CREATE INDEX webhooks_urls ON webhooks (account_id, url);
CREATE UNIQUE INDEX "webhooks.url" ON webhooks (account_id, url) WHERE NOT shares_url;
-- An event steps through the lists of types that there are, and not through all endpoints of its
-- account.
CREATE INDEX webhooks_listeners ON webhooks (account_id, events, id) WHERE active;

-- Lists of events are in the order of the commits, whatever the clocks of the nodes say: a transaction that adds
-- events takes their numbers from the head and holds it until it ends.
CREATE TABLE event_head (
    one boolean NOT NULL PRIMARY KEY DEFAULT true CHECK (one),
    n   bigint  NOT NULL
);
INSERT INTO event_head (n) VALUES (0);

CREATE FUNCTION next_event() RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    number bigint;
BEGIN
    UPDATE event_head SET n = n + 1 RETURNING n INTO STRICT number;
    RETURN number;
END
$$;

-- An event that is listed no more stays for the deliveries that need its payload.
CREATE TABLE events (
    id         text    COLLATE "C" NOT NULL CONSTRAINT "events.id" PRIMARY KEY,
    account_id text    COLLATE "C" NOT NULL REFERENCES accounts (id),
    type       text    COLLATE "C" NOT NULL,
    created_at bigint  NOT NULL,
    payload    bytea   NOT NULL,
    listed     boolean NOT NULL,
    n          bigint  NOT NULL DEFAULT next_event()
);
CREATE INDEX events_list ON events (account_id, id)       WHERE listed;
CREATE INDEX events_type ON events (account_id, type, id) WHERE listed;
CREATE INDEX events_age  ON events (created_at)           WHERE listed;
CREATE INDEX events_order      ON events (account_id, n, id)       WHERE listed;
CREATE INDEX events_type_order ON events (account_id, type, n, id) WHERE listed;

-- The number of the newest delivery. A transaction that adds deliveries takes their numbers from
-- this row, and so holds it until it ends: the numbers are dense, and in the order of the commits.
-- Senders read what is newer than the last number that they saw (sender.Queue.NewlyDue). A sequence
-- would let a lower number commit later, and they would never see it.
CREATE TABLE delivery_head (
    one boolean NOT NULL PRIMARY KEY DEFAULT true CHECK (one),
    n   bigint  NOT NULL
);
INSERT INTO delivery_head (n) VALUES (0);

-- The log of deliveries and the queue of those that wait. Endpoints and events are named without
-- foreign keys: a delivery outlives its endpoint.
CREATE TABLE deliveries (
    n           bigint  NOT NULL CONSTRAINT "deliveries.n" PRIMARY KEY,
    id          text    COLLATE "C" NOT NULL CONSTRAINT "deliveries.id" UNIQUE,
    account_id  text    COLLATE "C" NOT NULL,
    webhook_id  text    COLLATE "C" NOT NULL,
    event_id    text    COLLATE "C" NOT NULL,
    event_type  text    COLLATE "C" NOT NULL,
    state       integer NOT NULL,                 -- 0 pending, 1 retry_scheduled, 2 delivered, 3 failed
    cause       text    COLLATE "C" NOT NULL,     -- the trigger
    attempts    bigint  NOT NULL,                 -- how many were made
    again       boolean NOT NULL,                 -- failed, and made again since as another delivery
    next_at     bigint,                           -- NULL once delivered or failed, as due_at
    due_at      bigint,                           -- next_at, or the end of the lease
    token       text    COLLATE "C",              -- of the lease, NULL without one
    created_at  bigint  NOT NULL,
    finished_at bigint                            -- NULL until delivered or failed
);
-- Lists, newest first, by merging one branch for each state and type.
CREATE INDEX deliveries_account  ON deliveries (account_id, state, event_type, id);
CREATE INDEX deliveries_webhook  ON deliveries (webhook_id, state, event_type, id);
CREATE INDEX deliveries_of_event ON deliveries (event_id, id);
CREATE INDEX deliveries_due      ON deliveries (webhook_id, state, due_at) WHERE due_at IS NOT NULL;
CREATE INDEX deliveries_hand     ON deliveries (webhook_id, due_at) WHERE due_at IS NOT NULL AND state = 0 AND cause IN ('manual', 'test');
CREATE INDEX deliveries_next     ON deliveries (due_at, webhook_id) WHERE due_at IS NOT NULL;
CREATE INDEX deliveries_leased   ON deliveries (token) WHERE token IS NOT NULL;
CREATE INDEX deliveries_age      ON deliveries (state, finished_at) WHERE finished_at IS NOT NULL;
CREATE INDEX deliveries_failed   ON deliveries (webhook_id, finished_at) WHERE state = 3 AND NOT again;
CREATE INDEX deliveries_again    ON deliveries (event_id, webhook_id) WHERE state = 3 AND NOT again;

CREATE TABLE attempts (
    n          bigint NOT NULL,                   -- of the delivery
    number     bigint NOT NULL,                   -- from 1
    started_at bigint NOT NULL,
    duration   bigint NOT NULL,                   -- nanoseconds
    status     bigint NOT NULL,                   -- 0 if no response came
    error      bytea  NOT NULL,
    response   bytea,
    PRIMARY KEY (n, number)
);

-- Management records that are in no block yet.
CREATE TABLE audit (
    account_id   text   COLLATE "C" NOT NULL REFERENCES accounts (id),
    seq          bigint NOT NULL,
    time         bigint NOT NULL,
    kind         text   COLLATE "C" NOT NULL,
    outcome      text   COLLATE "C" NOT NULL,
    key_prefix   bytea  NOT NULL,
    key_id       text   COLLATE "C" NOT NULL,
    gateway_id   text   COLLATE "C" NOT NULL,
    method       bytea  NOT NULL,
    path         bytea  NOT NULL,
    client_ip    text   COLLATE "C" NOT NULL,
    request_id   bytea  NOT NULL,
    action       text   COLLATE "C" NOT NULL,
    target       bytea  NOT NULL,
    actor_key_id text   COLLATE "C" NOT NULL,
    diff         bytea,                           -- JSON object
    PRIMARY KEY (account_id, seq)
);

-- The open end of each account's log. An identifier stands for the same records for ever: a chunk
-- that replaces others has a new one. So what was read can be removed by its identifiers, whatever
-- was committed since, with higher ones or lower ones.
CREATE TABLE audit_chunks (
    id         bigint  NOT NULL PRIMARY KEY,
    position   bigint  NOT NULL,                  -- in the log: the identifier, or that of the last chunk that it replaces
    account_id text    COLLATE "C" NOT NULL,
    records    integer NOT NULL,
    first_time bigint  NOT NULL,
    content    bytea   NOT NULL
);
CREATE SEQUENCE audit_chunks_id OWNED BY audit_chunks.id;
CREATE INDEX audit_chunks_account ON audit_chunks (account_id, position);
ALTER TABLE audit_chunks ALTER COLUMN content SET STORAGE EXTERNAL;

-- One row for each account that has, or had, a block.
CREATE TABLE audit_chains (
    account_id  text   COLLATE "C" NOT NULL PRIMARY KEY,
    number      bigint NOT NULL,                  -- of the last block
    digest      bytea  NOT NULL,
    sealed_at   bigint NOT NULL,
    base        bigint NOT NULL DEFAULT 0,        -- the last block that was removed
    base_digest bytea  NOT NULL DEFAULT '\x0000000000000000000000000000000000000000000000000000000000000000',
    base_sealed bigint NOT NULL DEFAULT 0,
    bytes       bigint NOT NULL,                  -- of the blocks that are there, with their summaries
    cut_records bigint NOT NULL DEFAULT 0,        -- removed before their time
    cut_first   bigint NOT NULL DEFAULT 0,
    cut_last    bigint NOT NULL DEFAULT 0
);

CREATE TABLE audit_blocks (
    account_id text   COLLATE "C" NOT NULL,
    number     bigint NOT NULL,
    previous   bytea  NOT NULL,
    digest     bytea  NOT NULL,
    first_time bigint NOT NULL,
    last_time  bigint NOT NULL,
    sealed_at  bigint NOT NULL,
    records    bigint NOT NULL,
    bytes      bigint NOT NULL,
    content    bytea  NOT NULL,
    PRIMARY KEY (account_id, number)
);
ALTER TABLE audit_blocks ALTER COLUMN content SET STORAGE EXTERNAL; -- it is compressed already

-- What is known of blocks without reading them: one by one behind the last whole group of 64, turned
-- by groups before.
CREATE TABLE audit_summaries (
    account_id text   COLLATE "C" NOT NULL,
    number     bigint NOT NULL,
    summary    bytea  NOT NULL,
    PRIMARY KEY (account_id, number)
);
ALTER TABLE audit_summaries ALTER COLUMN summary SET STORAGE EXTERNAL;

CREATE TABLE audit_groups (
    account_id text   COLLATE "C" NOT NULL,
    number     bigint NOT NULL,
    head       bytea  NOT NULL,
    PRIMARY KEY (account_id, number)
);
ALTER TABLE audit_groups ALTER COLUMN head SET STORAGE EXTERNAL;

CREATE TABLE audit_segments (
    account_id text    COLLATE "C" NOT NULL,
    segment    integer NOT NULL,                  -- a question asks all groups for the same one
    number     bigint  NOT NULL,                  -- of the group
    bits       bytea   NOT NULL,
    PRIMARY KEY (account_id, segment, number)
);
ALTER TABLE audit_segments ALTER COLUMN bits SET STORAGE EXTERNAL;

-- Counts of requests (package traffic). A chunk is many counts of one account's requests that began
-- in one interval; any number of chunks may be of the same.
CREATE TABLE traffic (
    seq        bigint  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    account_id text    COLLATE "C" NOT NULL,
    part       integer NOT NULL,                  -- 0 gateways, 1 routes, 2 keys, 3 seconds
    tier       integer NOT NULL,                  -- 0 minutes, 1 hours, 2 days
    state      integer NOT NULL,                  -- 0 fresh, 1 merged, 2 rolled
    start      bigint  NOT NULL,                  -- Unix seconds
    first      bytea   NOT NULL,                  -- the least and the greatest identifier in body
    last       bytea   NOT NULL,
    body       bytea   NOT NULL
);
ALTER TABLE traffic ALTER COLUMN body SET STORAGE EXTERNAL;
CREATE INDEX traffic_read ON traffic (account_id, part, tier, start);
CREATE INDEX traffic_open ON traffic (tier, state, start, account_id, part) WHERE state < 2;
CREATE INDEX traffic_age  ON traffic (part, tier, start) WHERE state = 2;

-- Requests that were refused or failed (package requestlog). The log has a partition for each day (UTC), which
-- retention drops. There is none for other days: add_request_days makes what is missing before a write. Partitions
-- are named after their day.
CREATE TABLE requests (
    account_id      text    COLLATE "C" NOT NULL,
    id              text    COLLATE "C" NOT NULL,
    time            bigint  NOT NULL,
    gateway_id      text    COLLATE "C" NOT NULL,
    route_id        text    COLLATE "C" NOT NULL,
    key_id          text    COLLATE "C" NOT NULL,
    key_prefix      bytea   NOT NULL,
    method          bytea   NOT NULL,
    path            bytea   NOT NULL,
    client_ip       text    COLLATE "C" NOT NULL,
    status          bigint  NOT NULL,
    duration        bigint  NOT NULL,             -- nanoseconds
    decision        integer NOT NULL,             -- accesslog.Result
    limit_scope     integer NOT NULL,             -- ratelimit.Scope
    limit_count     bigint  NOT NULL,
    remaining       bigint  NOT NULL,
    passes_at       bigint  NOT NULL,             -- Unix seconds
    upstream_status bigint  NOT NULL,
    reason          integer NOT NULL,             -- accesslog.Reason
    detail          bytea   NOT NULL,
    host            bytea   NOT NULL,
    PRIMARY KEY (account_id, id, time)
) PARTITION BY RANGE (time);
CREATE INDEX requests_key   ON requests (account_id, key_id, id) WHERE key_id <> '';
CREATE INDEX requests_route ON requests (account_id, route_id, id) WHERE route_id <> '';

-- How many requests of a second were left out of the table above.
CREATE TABLE requests_left_out (
    account_id text   COLLATE "C" NOT NULL,
    second     bigint NOT NULL,                   -- Unix seconds
    count      bigint NOT NULL,
    PRIMARY KEY (account_id, second)
) PARTITION BY RANGE (second);

CREATE FUNCTION request_day_name(parent text, day bigint) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT parent || to_char(to_timestamp(day * 86400) AT TIME ZONE 'UTC', '_YYYYMMDD')
$$;

-- Makes the partitions of days since 1970 that do not exist. The partitions are attached, and not created in
-- place, which would lock out readers and writers.
CREATE FUNCTION add_request_days(first bigint, last bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    day    bigint;
    parent text;
    unit   bigint;
    name   text;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('keygate'), hashtext('request_days'));
    FOR day IN SELECT generate_series(first, last) LOOP
        FOR parent, unit IN VALUES ('requests', 1000000), ('requests_left_out', 1) LOOP
            name := request_day_name(parent, day);
            CONTINUE WHEN to_regclass(quote_ident(name)) IS NOT NULL;
            EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING DEFAULTS INCLUDING STORAGE)', name, parent);
            EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%s) TO (%s)', parent, name, day * 86400 * unit, (day + 1) * 86400 * unit);
        END LOOP;
    END LOOP;
END $$;

-- Drops the partitions of up to max_days days that end before the given one, the oldest first, and returns the
-- number of days. A partition that is in use is left for the next call: what comes after a call that waits
-- for it would have to wait too.
CREATE FUNCTION drop_request_days(before bigint, max_days bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    dropped bigint := 0;
    suffix  text;
    name    text;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('keygate'), hashtext('request_days'));
    SET LOCAL lock_timeout = 200;
    FOR suffix IN
        SELECT DISTINCT right(c.relname, 9) FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
        WHERE i.inhparent IN ('requests'::regclass, 'requests_left_out'::regclass) AND c.relname ~ '_[0-9]{8}$'
            AND right(c.relname, 9) COLLATE "C" < request_day_name('', before)
        ORDER BY 1 LIMIT max_days
    LOOP
        FOREACH name IN ARRAY ARRAY['requests' || suffix, 'requests_left_out' || suffix] LOOP
            EXECUTE format('DROP TABLE IF EXISTS %I', name);
        END LOOP;
        dropped := dropped + 1;
    END LOOP;
    RETURN dropped;
EXCEPTION WHEN lock_not_available THEN
    RETURN 0;
END $$;

SELECT add_request_days(today, today + 7) FROM (SELECT floor(extract(epoch FROM clock_timestamp()) / 86400)::bigint) AS clock (today);

-- The last batch that each writer of access records has stored (accesslog.BatchID). The row is locked
-- until the transaction ends that stores a batch: if that is repeated meanwhile, the repetition waits.
CREATE TABLE record_batches (
    writer text   COLLATE "C" NOT NULL PRIMARY KEY,
    number bigint NOT NULL,
    at     bigint NOT NULL
);
CREATE INDEX record_batches_age ON record_batches (at);

-- The readings of the clock of retention, as JSON (package retention).
CREATE TABLE retention (
    one   boolean NOT NULL PRIMARY KEY DEFAULT true CHECK (one),
    state text    COLLATE "C" NOT NULL
);

-- The events that have more deliveries than the transaction of the event wrote. They are written later, some in
-- each transaction.
CREATE TABLE fan_outs (
    n          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    event_id   text   COLLATE "C" NOT NULL,
    account_id text   COLLATE "C" NOT NULL,
    type       text   COLLATE "C" NOT NULL,
    after      text   COLLATE "C" NOT NULL   -- the endpoint up to which deliveries are written; '' for none
);
CREATE INDEX fan_outs_account ON fan_outs (account_id, n);
-- The last value of a sequence that was never used is one that it has not given out.
SELECT nextval(pg_get_serial_sequence('fan_outs', 'n'));

-- An event is for the endpoints that were subscribed to it when it was raised: those whose subscription began
-- after fewer numbers of fan-outs were given out (webhooks.since), and had not ended. Subscriptions that ended are
-- kept as long as a fan-out may need them, also one that is not committed yet.
CREATE TABLE former_subscriptions (
    n          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    account_id text   COLLATE "C" NOT NULL,
    webhook_id text   COLLATE "C" NOT NULL,
    events     text   COLLATE "C" NOT NULL,
    since      bigint NOT NULL,
    until      bigint NOT NULL,              -- the last number given out when it ended
    ended      timestamptz DEFAULT clock_timestamp()
);
CREATE INDEX former_subscriptions_list ON former_subscriptions (account_id, webhook_id);
CREATE INDEX former_subscriptions_end  ON former_subscriptions (account_id, ended);

CREATE FUNCTION begin_subscription() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    SELECT last_value INTO STRICT new.since FROM fan_outs_n_seq;
    RETURN new;
END
$$;
CREATE FUNCTION end_subscription() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF old.active THEN
        INSERT INTO former_subscriptions (account_id, webhook_id, events, since, until)
        SELECT old.account_id, old.id, old.events, old.since, last_value FROM fan_outs_n_seq;
    END IF;
    RETURN NULL;
END
$$;
CREATE TRIGGER webhooks_subscribe BEFORE INSERT ON webhooks FOR EACH ROW EXECUTE FUNCTION begin_subscription();
CREATE TRIGGER webhooks_resubscribe BEFORE UPDATE OF events, active ON webhooks FOR EACH ROW
    WHEN (old.events <> new.events OR old.active <> new.active) EXECUTE FUNCTION begin_subscription();
CREATE TRIGGER webhooks_end_former AFTER UPDATE OF events, active ON webhooks FOR EACH ROW
    WHEN (old.events <> new.events OR old.active <> new.active) EXECUTE FUNCTION end_subscription();
CREATE TRIGGER webhooks_unsubscribe AFTER DELETE ON webhooks FOR EACH ROW EXECUTE FUNCTION end_subscription();

-- Deleted gateways whose keys are not all revoked yet, or whose routes are not all in the audit log. Whatever reads
-- keys takes those restricted to such a gateway for revoked when it was deleted.
CREATE TABLE ended_gateways (
    id         text   COLLATE "C" NOT NULL PRIMARY KEY,
    account_id text   COLLATE "C" NOT NULL,
    table_id   bigint NOT NULL,              -- of its routes; 0 for none
    after      text   COLLATE "C" NOT NULL,  -- the route up to which they are in the audit log; '' for none
    at         bigint NOT NULL,              -- when it was deleted
    call       text   COLLATE "C" NOT NULL   -- that deleted it: JSON object
);
CREATE INDEX ended_gateways_account ON ended_gateways (account_id);

CREATE FUNCTION count_webhook() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO account_counts AS c (account_id, webhook_bytes) VALUES (new.account_id, octet_length(new.url) + octet_length(new.events))
        ON CONFLICT (account_id) DO UPDATE SET webhook_bytes = c.webhook_bytes + excluded.webhook_bytes;
    ELSIF TG_OP = 'UPDATE' THEN
        UPDATE account_counts SET webhook_bytes = webhook_bytes + octet_length(new.url) + octet_length(new.events) - octet_length(old.url) - octet_length(old.events)
        WHERE account_id = new.account_id;
    ELSE
        UPDATE account_counts SET webhook_bytes = webhook_bytes - octet_length(old.url) - octet_length(old.events) WHERE account_id = old.account_id;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER webhooks_counted AFTER INSERT OR DELETE ON webhooks FOR EACH ROW EXECUTE FUNCTION count_webhook();
CREATE TRIGGER webhooks_recounted AFTER UPDATE OF url, events ON webhooks FOR EACH ROW
WHEN ((old.url, old.events) IS DISTINCT FROM (new.url, new.events)) EXECUTE FUNCTION count_webhook();

-- The rules of these columns are in internal/cluster/lease.
CREATE TABLE nodes (
    id         text   COLLATE "C" NOT NULL CONSTRAINT "nodes.id" PRIMARY KEY,
    name       text   COLLATE "C" NOT NULL CONSTRAINT "nodes.name" UNIQUE,
    boot       bytea  NOT NULL,                 -- random, of the process
    epoch      bigint NOT NULL,                 -- rises when a lease begins and when it ends
    granted    bigint NOT NULL,                 -- rises with each renewal
    ttl        bigint NOT NULL,                 -- in nanoseconds
    number     bigint NOT NULL,                 -- of the newest change that the node has applied
    mark       bytea  NOT NULL,                 -- of that change
    state      text   COLLATE "C" NOT NULL,     -- live, expired, stopped
    -- What follows is shown to users, and decides nothing.
    role       text   COLLATE "C" NOT NULL,
    version    text   COLLATE "C" NOT NULL,
    limits     text   COLLATE "C" NOT NULL,
    started_at bigint NOT NULL,                 -- by the node's clock
    renewed    timestamptz NOT NULL,            -- by the server's clock
    format     int    NOT NULL DEFAULT 1        -- the newest format of changes that the node reads
);

-- The servers and timelines on which no lease is in use that another one granted and lost.
CREATE TABLE settled_servers (
    name text COLLATE "C" NOT NULL PRIMARY KEY
);

-- The oldest schema whose binaries may start on this database. A migration that an older binary cannot live with
-- sets it to its own number. Binaries that run already go on.
CREATE TABLE schema_support (
    oldest  bigint NOT NULL,
    version text   COLLATE "C" NOT NULL         -- of the binary that has migrated the database; '' if unknown
);
INSERT INTO schema_support VALUES (1, '');
-- +goose StatementEnd
