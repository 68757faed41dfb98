-- +goose Up
-- +goose StatementBegin
SELECT set_config('lock_timeout', greatest(1, least(1000, (SELECT min(ttl) FROM nodes WHERE state = 'live') / 10000000))::text, true);

ALTER TABLE keys ADD COLUMN imported boolean NOT NULL DEFAULT false; -- the string of the key is not one of Keygate's; its digest is bound to the account
ALTER TABLE keys ADD COLUMN addresses text COLLATE "C"; -- the lists of addresses that may use the key, as JSON

-- The bytes of keys are those of their scopes and of their lists of addresses.
CREATE FUNCTION key_bytes(phase integer, resource text, more_scopes text, addresses text) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN phase < 2 THEN coalesce(octet_length(resource), 0) + coalesce(octet_length(more_scopes), 0) + coalesce(octet_length(addresses), 0) ELSE 0 END::bigint
$$;

CREATE OR REPLACE FUNCTION count_inserted_keys() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO account_counts AS c (account_id, keys, live_keys, key_bytes)
    SELECT account_id, count(*), count(*) FILTER (WHERE phase < 2), sum(key_bytes(phase, resource, more_scopes, addresses)) FROM inserted GROUP BY account_id
    ON CONFLICT (account_id) DO UPDATE SET keys = c.keys + excluded.keys, live_keys = c.live_keys + excluded.live_keys, key_bytes = c.key_bytes + excluded.key_bytes;
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION count_updated_key() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE account_counts SET live_keys = live_keys + (new.phase < 2)::int - (old.phase < 2)::int, key_bytes = key_bytes
        + key_bytes(new.phase, new.resource, new.more_scopes, new.addresses) - key_bytes(old.phase, old.resource, old.more_scopes, old.addresses)
    WHERE account_id = new.account_id;
    RETURN NULL;
END $$;
DROP TRIGGER keys_recounted ON keys;
CREATE TRIGGER keys_recounted AFTER UPDATE OF phase, resource, more_scopes, addresses ON keys FOR EACH ROW
WHEN ((old.phase < 2, old.resource, old.more_scopes, old.addresses) IS DISTINCT FROM (new.phase < 2, new.resource, new.more_scopes, new.addresses))
EXECUTE FUNCTION count_updated_key();

CREATE OR REPLACE FUNCTION count_deleted_keys() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    WITH gone AS (
        DELETE FROM answers a USING deleted d WHERE a.key_id = d.id
        RETURNING d.account_id, coalesce(length(a.body), 0) + coalesce(octet_length(a.header), 0) AS bytes
    ), counts AS (
        SELECT account_id, count(*) AS keys, count(*) FILTER (WHERE phase < 2) AS live_keys, sum(key_bytes(phase, resource, more_scopes, addresses)) AS key_bytes,
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
DROP FUNCTION key_bytes(integer, text, text);

-- The import in pieces that has stored the key; NULL for others. There is no such key as long as key_imports has the import with
-- a state below 2.
ALTER TABLE keys ADD COLUMN import_id text COLLATE "C";

-- Imports of keys in pieces: those that are not complete, and those of whose keys some are not recorded yet.
CREATE TABLE key_imports (
    id         text    COLLATE "C" NOT NULL PRIMARY KEY,
    account_id text    COLLATE "C" NOT NULL,
    state      integer NOT NULL,               -- 0 being written, 1 given up, 2 complete
    call       text    COLLATE "C" NOT NULL    -- that imports the keys: JSON object
);
CREATE INDEX key_imports_account ON key_imports (account_id);
CREATE TABLE key_import_pieces (
    import_id  text    COLLATE "C" NOT NULL,
    number     bigint  NOT NULL,
    account_id text    COLLATE "C" NOT NULL,
    keys       text    COLLATE "C" NOT NULL,   -- JSON array of identifiers
    owners     text    COLLATE "C" NOT NULL,   -- that were created for them: JSON array of identifiers
    PRIMARY KEY (import_id, number)
);
CREATE INDEX key_import_pieces_account ON key_import_pieces (account_id);

-- The names of the issuers whose tokens the gateway takes, each between spaces, as in requests; NULL for none.
ALTER TABLE gateways ADD COLUMN issuers text COLLATE "C";
CREATE INDEX gateways_issuers ON gateways (account_id, id) INCLUDE (issuers) WHERE issuers IS NOT NULL;

ALTER TABLE gateways ADD COLUMN target_count bigint NOT NULL DEFAULT 1; -- how many targets the upstreams of the gateway have
ALTER TABLE account_counts ADD COLUMN targets bigint NOT NULL DEFAULT 0;
UPDATE account_counts c SET targets = known.targets
FROM (SELECT account_id, count(*) AS targets FROM gateways GROUP BY account_id) AS known
WHERE c.account_id = known.account_id;

CREATE OR REPLACE FUNCTION count_gateway() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    account  text   := CASE WHEN TG_OP = 'DELETE' THEN old.account_id ELSE new.account_id END;
    settings bigint := 0;
    routes   bigint := 0;
    more     bigint := 0;
BEGIN
    IF TG_OP <> 'DELETE' THEN
        settings := gateway_bytes(new);
        routes := new.route_bytes;
        more := new.target_count;
    END IF;
    IF TG_OP <> 'INSERT' THEN
        settings := settings - gateway_bytes(old);
        routes := routes - old.route_bytes;
        more := more - old.target_count;
    END IF;
    IF TG_OP = 'INSERT' THEN
        INSERT INTO account_counts AS c (account_id, gateway_bytes, route_bytes, targets) VALUES (account, settings, routes, more)
        ON CONFLICT (account_id) DO UPDATE SET gateway_bytes = c.gateway_bytes + excluded.gateway_bytes,
            route_bytes = c.route_bytes + excluded.route_bytes, targets = c.targets + excluded.targets;
    ELSIF settings <> 0 OR routes <> 0 OR more <> 0 THEN
        UPDATE account_counts SET gateway_bytes = gateway_bytes + settings, route_bytes = route_bytes + routes, targets = targets + more
        WHERE account_id = account;
    END IF;
    RETURN NULL;
END $$;
DROP TRIGGER gateways_counted ON gateways;
CREATE TRIGGER gateways_counted AFTER INSERT OR DELETE OR UPDATE OF name, upstream, hostname, requests, cors, route_bytes, target_count ON gateways
FOR EACH ROW EXECUTE FUNCTION count_gateway();

-- What nodes report of their targets, and with which change in force (package targetreport). The claimant is a lease of a node: rows
-- of one that has ended count no more.
CREATE TABLE target_reports (
    gateway_id text    COLLATE "C" NOT NULL,
    upstream   text    COLLATE "C" NOT NULL,
    target     bytea   NOT NULL,               -- SHA-256 of the URL and the address
    claimant   text    COLLATE "C" NOT NULL,
    account_id text    COLLATE "C" NOT NULL,
    url        text    COLLATE "C" NOT NULL,
    address    text    COLLATE "C" NOT NULL,
    state      text    COLLATE "C" NOT NULL,   -- healthy, unhealthy, ejected, warming
    reason     text    COLLATE "C" NOT NULL,
    draining   boolean NOT NULL,
    degraded   boolean NOT NULL,
    since      bigint  NOT NULL,
    until      bigint,                         -- of an ejection
    in_flight  bigint  NOT NULL,
    requests   bigint  NOT NULL,
    failures   bigint  NOT NULL,
    last_check bigint,
    CONSTRAINT "target_reports.target" PRIMARY KEY (gateway_id, upstream, target, claimant)
) WITH (fillfactor = 80);
CREATE TABLE target_nodes (
    claimant text   COLLATE "C" NOT NULL CONSTRAINT "target_nodes.claimant" PRIMARY KEY,
    number   bigint NOT NULL,                  -- of a change that was in force before the figures of the last report were read
    left_out text[] COLLATE "C" NOT NULL       -- accounts of which the report lacks targets with requests in flight; * for all
) WITH (fillfactor = 80);

ALTER TABLE gateways ADD COLUMN canary text COLLATE "C"; -- the share of a canary that has not ended, as JSON

-- The canaries of gateways (package canary).
CREATE TABLE canaries (
    id          text    COLLATE "C" NOT NULL CONSTRAINT "canaries.id" PRIMARY KEY,
    account_id  text    COLLATE "C" NOT NULL,
    gateway_id  text    COLLATE "C" NOT NULL REFERENCES gateways (id),
    state       text    COLLATE "C" NOT NULL,  -- running, paused, held, promoted, aborted
    ended       boolean NOT NULL,
    step        bigint  NOT NULL,
    number      bigint  NOT NULL,
    ran         bigint  NOT NULL,              -- microseconds
    since       bigint  NOT NULL,
    plan        text    COLLATE "C" NOT NULL,  -- JSON, like progress and lines
    progress    text    COLLATE "C" NOT NULL,
    explanation text    COLLATE "C" NOT NULL,
    lines       text    COLLATE "C",
    created_at  bigint  NOT NULL,
    ended_at    bigint,
    version     bigint  NOT NULL
) WITH (fillfactor = 80);
CREATE INDEX canaries_list ON canaries (gateway_id, id);
CREATE INDEX canaries_account ON canaries (account_id, ended, id);
CREATE INDEX canaries_running ON canaries (id) WHERE state = 'running';

-- Which process judges canaries: the one row, if there was ever one.
CREATE TABLE canary_lead (
    one      bigint NOT NULL PRIMARY KEY CHECK (one = 1),
    claimant text   COLLATE "C" NOT NULL,
    epoch    bigint NOT NULL
);

-- What nodes have counted of canaries and nobody has added up yet (packages canary/count and canary/lead).
CREATE TABLE canary_counts (
    seq       bigint NOT NULL CONSTRAINT "canary_counts.seq" PRIMARY KEY,
    canary_id text   COLLATE "C" NOT NULL,
    number    bigint NOT NULL,
    at        bigint NOT NULL,
    data      bytea  NOT NULL
);
ALTER TABLE canary_counts ALTER COLUMN data SET STORAGE EXTERNAL;
CREATE INDEX canary_counts_list ON canary_counts (canary_id, seq);

-- The last number of canary_counts, and about how many bytes of data it has: the one row, if there was ever one.
CREATE TABLE canary_head (
    one   bigint NOT NULL CONSTRAINT "canary_head.one" PRIMARY KEY CHECK (one = 1),
    last  bigint NOT NULL,
    bytes bigint NOT NULL
) WITH (fillfactor = 50);

-- What was counted of the present step of a canary, in rows that are gone. first is the number of the step when it began.
CREATE TABLE canary_steps (
    canary_id text   COLLATE "C" NOT NULL CONSTRAINT "canary_steps.canary" PRIMARY KEY,
    step      bigint NOT NULL,
    first     bigint NOT NULL,
    data      bytea  NOT NULL
) WITH (fillfactor = 80);

-- Callers that a canary leaves out. Without a row it is not decided whom.
CREATE TABLE canary_left_out (
    canary_id text  COLLATE "C" NOT NULL CONSTRAINT "canary_left_out.canary" PRIMARY KEY,
    data      bytea NOT NULL
);

-- What a request takes on disk, about (requestlog.Record.Size); 0 for those from before this schema, which are not counted.
ALTER TABLE requests ADD COLUMN size bigint NOT NULL DEFAULT 0;
-- What the requests of an account and a day (UTC, since 1970) take together. Triggers keep it, and retention removes the rows of
-- days that it has dropped.
CREATE TABLE request_bytes (
    account_id text   COLLATE "C" NOT NULL,
    day        bigint NOT NULL,
    bytes      bigint NOT NULL,
    PRIMARY KEY (account_id, day)
) WITH (fillfactor = 50);
-- Rows are locked in the order of the key, so that no two nodes wait for each other.
CREATE FUNCTION count_requests() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO request_bytes AS b (account_id, day, bytes)
    SELECT account_id, time / 86400000000, sum(size)::bigint FROM added WHERE size > 0 GROUP BY 1, 2 ORDER BY 1, 2
    ON CONFLICT (account_id, day) DO UPDATE SET bytes = b.bytes + excluded.bytes;
    RETURN NULL;
END $$;
CREATE TRIGGER requests_counted AFTER INSERT ON requests REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION count_requests();
CREATE FUNCTION uncount_requests() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM request_bytes WHERE (account_id, day) IN (SELECT account_id, time / 86400000000 FROM removed WHERE size > 0)
    ORDER BY account_id, day FOR UPDATE;
    UPDATE request_bytes b SET bytes = b.bytes - r.bytes
    FROM (SELECT account_id, time / 86400000000 AS day, sum(size)::bigint AS bytes FROM removed WHERE size > 0 GROUP BY 1, 2) AS r
    WHERE b.account_id = r.account_id AND b.day = r.day;
    RETURN NULL;
END $$;
CREATE TRIGGER requests_uncounted AFTER DELETE ON requests REFERENCING OLD TABLE AS removed FOR EACH STATEMENT EXECUTE FUNCTION uncount_requests();

-- What the requests of a gateway did otherwise than its OpenAPI document says.
CREATE TABLE validation_reports (
    gateway_id text   COLLATE "C" NOT NULL CONSTRAINT "validation_reports.gateway_id" PRIMARY KEY,
    account_id text   COLLATE "C" NOT NULL,
    data       bytea  NOT NULL,                -- JSON, see package validation
    updated_at bigint NOT NULL
);
CREATE INDEX validation_reports_account ON validation_reports (account_id);
CREATE INDEX validation_reports_updated ON validation_reports (updated_at);

CREATE TABLE issuers (
    id         text   COLLATE "C" NOT NULL CONSTRAINT "issuers.id" PRIMARY KEY,
    account_id text   COLLATE "C" NOT NULL REFERENCES accounts (id),
    name       text   COLLATE "C" NOT NULL,
    settings   text   COLLATE "C" NOT NULL,    -- JSON object
    seen       text   COLLATE "C" NOT NULL,    -- JSON array: its keys, and when each of them was seen first
    document   text   COLLATE "C" NOT NULL,    -- the keys that were fetched last, a JWK Set; '' for none
    last_error text   COLLATE "C" NOT NULL,    -- of the last fetch; '' if it did not fail
    fetch_at   bigint,                         -- the next fetch; NULL if the keys are given by hand
    created_at bigint NOT NULL,
    version    bigint NOT NULL,
    denials    bigint NOT NULL DEFAULT 0,      -- how many it has
    CONSTRAINT "issuers.name" UNIQUE (account_id, name)
);
CREATE INDEX issuers_list ON issuers (account_id, id);
CREATE INDEX issuers_due ON issuers (fetch_at) WHERE fetch_at IS NOT NULL;
CREATE INDEX issuers_unreachable ON issuers (id) WHERE last_error <> '';

-- What refuses tokens of issuers before they expire. One of subject, jti and issued_before is not empty.
CREATE TABLE denials (
    id            text   COLLATE "C" NOT NULL CONSTRAINT "denials.id" PRIMARY KEY,
    account_id    text   COLLATE "C" NOT NULL,
    issuer_id     text   COLLATE "C" NOT NULL, -- an issuer, or one that was deleted
    subject       bytea  NOT NULL,
    jti           bytea  NOT NULL,
    issued_before bigint,
    until         bigint NOT NULL,
    reason        text   COLLATE "C" NOT NULL,
    created_at    bigint NOT NULL
);
CREATE INDEX denials_list ON denials (issuer_id, id);
CREATE INDEX denials_subject ON denials (issuer_id, subject, id);
CREATE INDEX denials_account ON denials (account_id);
CREATE INDEX denials_until ON denials (until);
-- +goose StatementEnd
