-- +goose Up

-- Times are microseconds since 1970. Absent texts are '' unless an index leaves them out, in which
-- case they are NULL. A constraint that may be violated is named "table.column", see fault.go.

-- The newest change. A mutation locks this row before it reads anything, so that mutations run one
-- at a time over all nodes.
CREATE TABLE change_head (
    one    boolean NOT NULL PRIMARY KEY DEFAULT true CHECK (one),
    number bigint  NOT NULL,                -- 0 before the first
    mark   bytea   NOT NULL                 -- random; a pair (number, mark) names one history
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
    record_id text   COLLATE "C" NOT NULL
);
CREATE TABLE changes_trimmed (
    seq bigint NOT NULL                     -- the last entry that was trimmed
);
INSERT INTO changes_trimmed VALUES (0);

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
    created_at       bigint  NOT NULL,
    version          bigint  NOT NULL
);
CREATE INDEX gateways_list ON gateways (account_id, id);
CREATE INDEX gateways_routes ON gateways (account_id, route_count);
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
-- account that never had any may have no row.
CREATE TABLE account_counts (
    account_id     text   COLLATE "C" NOT NULL PRIMARY KEY,
    keys           bigint NOT NULL DEFAULT 0,      -- in any state
    live_keys      bigint NOT NULL DEFAULT 0,      -- not revoked
    responses      bigint NOT NULL DEFAULT 0,      -- in answers
    response_bytes bigint NOT NULL DEFAULT 0,      -- of their bodies and headers
    revision_bytes bigint NOT NULL DEFAULT 0
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
    metadata     text    COLLATE "C"               -- JSON object
);
-- Lists, newest first.
CREATE INDEX keys_list    ON keys (account_id, id);
CREATE INDEX keys_state   ON keys (account_id, level, phase, id);
CREATE INDEX keys_gateway ON keys (gateway_id, phase, id) WHERE gateway_id IS NOT NULL;
CREATE INDEX keys_owner   ON keys (account_id, owner, phase, id) WHERE owner IS NOT NULL;
CREATE INDEX keys_bucket  ON keys (bucket_id) WHERE bucket_id IS NOT NULL;
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

-- Where one statement may change many rows of an account, it is counted once, by a trigger for the
-- statement: each change of a row of counts would make the next one slower until the transaction ends.

-- +goose StatementBegin
CREATE FUNCTION count_inserted_keys() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO account_counts AS c (account_id, keys, live_keys)
    SELECT account_id, count(*), count(*) FILTER (WHERE phase < 2) FROM inserted GROUP BY account_id
    ON CONFLICT (account_id) DO UPDATE SET keys = c.keys + excluded.keys, live_keys = c.live_keys + excluded.live_keys;
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER keys_counted AFTER INSERT ON keys REFERENCING NEW TABLE AS inserted FOR EACH STATEMENT EXECUTE FUNCTION count_inserted_keys();

-- +goose StatementBegin
CREATE FUNCTION count_updated_key() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE account_counts SET live_keys = live_keys + (new.phase < 2)::int - (old.phase < 2)::int WHERE account_id = new.account_id;
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER keys_recounted AFTER UPDATE OF phase ON keys FOR EACH ROW WHEN ((old.phase < 2) <> (new.phase < 2)) EXECUTE FUNCTION count_updated_key();

-- A response belongs to the account of its key, so it does not outlive the key. count_deleted_answers does
-- not find that account any more.
-- +goose StatementBegin
CREATE FUNCTION count_deleted_keys() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    WITH gone AS (
        DELETE FROM answers a USING deleted d WHERE a.key_id = d.id
        RETURNING d.account_id, coalesce(length(a.body), 0) + coalesce(octet_length(a.header), 0) AS bytes
    ), counts AS (
        SELECT account_id, count(*) AS keys, count(*) FILTER (WHERE phase < 2) AS live_keys, 0 AS responses, 0 AS bytes FROM deleted GROUP BY account_id
        UNION ALL SELECT account_id, 0, 0, count(*), sum(bytes) FROM gone GROUP BY account_id
    )
    UPDATE account_counts c SET keys = c.keys - d.keys, live_keys = c.live_keys - d.live_keys,
        responses = c.responses - d.responses, response_bytes = c.response_bytes - d.bytes
    FROM (SELECT account_id, sum(keys) AS keys, sum(live_keys) AS live_keys, sum(responses) AS responses, sum(bytes) AS bytes FROM counts GROUP BY account_id) d
    WHERE c.account_id = d.account_id;
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER keys_uncounted AFTER DELETE ON keys REFERENCING OLD TABLE AS deleted FOR EACH STATEMENT EXECUTE FUNCTION count_deleted_keys();

-- +goose StatementBegin
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
-- +goose StatementEnd
CREATE TRIGGER keys_unindexed AFTER INSERT OR DELETE ON keys FOR EACH ROW EXECUTE FUNCTION unindex_key();
CREATE TRIGGER keys_reindexed AFTER UPDATE OF name, level, phase, gateway_id, owner ON keys FOR EACH ROW
WHEN ((old.name, old.level, old.phase, old.gateway_id, old.owner) IS DISTINCT FROM (new.name, new.level, new.phase, new.gateway_id, new.owner))
EXECUTE FUNCTION unindex_key();

-- +goose StatementBegin
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
-- +goose StatementEnd
CREATE TRIGGER answers_counted AFTER INSERT OR UPDATE OF body, header ON answers FOR EACH ROW EXECUTE FUNCTION count_answer();

-- +goose StatementBegin
CREATE FUNCTION count_deleted_answers() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE account_counts c SET responses = c.responses - d.responses, response_bytes = c.response_bytes - d.bytes
    FROM (SELECT k.account_id, count(*) AS responses, sum(coalesce(length(r.body), 0) + coalesce(octet_length(r.header), 0)) AS bytes
        FROM deleted r JOIN keys k ON k.id = r.key_id GROUP BY k.account_id) d
    WHERE c.account_id = d.account_id;
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER answers_uncounted AFTER DELETE ON answers REFERENCING OLD TABLE AS deleted FOR EACH STATEMENT EXECUTE FUNCTION count_deleted_answers();

-- +goose StatementBegin
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
-- +goose StatementEnd
CREATE TRIGGER revisions_counted AFTER INSERT ON revisions FOR EACH ROW EXECUTE FUNCTION count_inserted_revision();

-- The newest revision is removed only with all others, after its gateway.
-- +goose StatementBegin
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
-- +goose StatementEnd
CREATE TRIGGER revisions_uncounted AFTER DELETE ON revisions REFERENCING OLD TABLE AS deleted FOR EACH STATEMENT EXECUTE FUNCTION count_deleted_revisions();
