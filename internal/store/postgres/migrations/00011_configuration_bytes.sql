-- +goose Up

-- How many bytes the configuration of an account has that is in the memory of every node, so that its bound is cheap
-- to check. Triggers keep the numbers, also for older nodes. They are what the account may choose: of gateways the
-- settings; of routes what gateway.RouteBytes says; of keys that are not revoked the scopes and the owner; of
-- webhooks URL and events. Tables of routes from before count 64 bytes a route, and those that an older node changes
-- what they counted before, until they are pushed again.

-- What runs meanwhile waits behind this migration while it waits for a lock: a tenth of the shortest lease at most,
-- also behind a pooler, which does not keep the settings of a session.
SELECT set_config('lock_timeout', greatest(1, least(1000, (SELECT min(ttl) FROM nodes WHERE state = 'live') / 10000000))::text, true);

LOCK TABLE gateways IN ACCESS EXCLUSIVE MODE;
LOCK TABLE account_counts IN ACCESS EXCLUSIVE MODE;
LOCK TABLE keys, webhooks IN SHARE ROW EXCLUSIVE MODE;

ALTER TABLE gateways ADD COLUMN route_bytes bigint NOT NULL DEFAULT 0;
UPDATE gateways SET route_bytes = 64 * route_count WHERE route_count > 0;

ALTER TABLE account_counts
    ADD COLUMN gateway_bytes bigint NOT NULL DEFAULT 0,
    ADD COLUMN route_bytes   bigint NOT NULL DEFAULT 0,
    ADD COLUMN key_bytes     bigint NOT NULL DEFAULT 0,
    ADD COLUMN webhook_bytes bigint NOT NULL DEFAULT 0;

CREATE FUNCTION gateway_bytes(g gateways) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT (octet_length(g.name) + octet_length(g.upstream) + octet_length(g.hostname) + octet_length(g.requests) + coalesce(octet_length(g.cors), 0))::bigint
$$;

CREATE FUNCTION key_bytes(phase integer, resource text, more_scopes text, owner text) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN phase < 2 THEN coalesce(octet_length(resource), 0) + coalesce(octet_length(more_scopes), 0) + coalesce(octet_length(owner), 0) ELSE 0 END::bigint
$$;

INSERT INTO account_counts AS c (account_id, gateway_bytes, route_bytes)
SELECT account_id, sum(gateway_bytes(g)), sum(g.route_bytes) FROM gateways g GROUP BY account_id
ON CONFLICT (account_id) DO UPDATE SET gateway_bytes = excluded.gateway_bytes, route_bytes = excluded.route_bytes;

INSERT INTO account_counts AS c (account_id, key_bytes)
SELECT account_id, sum(key_bytes(phase, resource, more_scopes, owner)) FROM keys WHERE phase < 2 GROUP BY account_id
ON CONFLICT (account_id) DO UPDATE SET key_bytes = excluded.key_bytes;

INSERT INTO account_counts AS c (account_id, webhook_bytes)
SELECT account_id, sum(octet_length(url) + octet_length(events)) FROM webhooks GROUP BY account_id
ON CONFLICT (account_id) DO UPDATE SET webhook_bytes = excluded.webhook_bytes;

-- +goose StatementBegin
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
-- +goose StatementEnd
CREATE TRIGGER gateways_counted AFTER INSERT OR DELETE OR UPDATE OF name, upstream, hostname, requests, cors, route_bytes ON gateways
FOR EACH ROW EXECUTE FUNCTION count_gateway();

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION count_inserted_keys() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO account_counts AS c (account_id, keys, live_keys, key_bytes)
    SELECT account_id, count(*), count(*) FILTER (WHERE phase < 2), sum(key_bytes(phase, resource, more_scopes, owner)) FROM inserted GROUP BY account_id
    ON CONFLICT (account_id) DO UPDATE SET keys = c.keys + excluded.keys, live_keys = c.live_keys + excluded.live_keys, key_bytes = c.key_bytes + excluded.key_bytes;
    RETURN NULL;
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION count_updated_key() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE account_counts SET live_keys = live_keys + (new.phase < 2)::int - (old.phase < 2)::int, key_bytes = key_bytes
        + key_bytes(new.phase, new.resource, new.more_scopes, new.owner) - key_bytes(old.phase, old.resource, old.more_scopes, old.owner)
    WHERE account_id = new.account_id;
    RETURN NULL;
END $$;
-- +goose StatementEnd
DROP TRIGGER keys_recounted ON keys;
CREATE TRIGGER keys_recounted AFTER UPDATE OF phase, resource, more_scopes, owner ON keys FOR EACH ROW
WHEN ((old.phase < 2, old.resource, old.more_scopes, old.owner) IS DISTINCT FROM (new.phase < 2, new.resource, new.more_scopes, new.owner))
EXECUTE FUNCTION count_updated_key();

-- A response belongs to the account of its key, so it does not outlive the key. count_deleted_answers does
-- not find that account any more.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION count_deleted_keys() RETURNS trigger LANGUAGE plpgsql AS $$
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
-- +goose StatementEnd

-- +goose StatementBegin
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
-- +goose StatementEnd
CREATE TRIGGER webhooks_counted AFTER INSERT OR DELETE ON webhooks FOR EACH ROW EXECUTE FUNCTION count_webhook();
CREATE TRIGGER webhooks_recounted AFTER UPDATE OF url, events ON webhooks FOR EACH ROW
WHEN ((old.url, old.events) IS DISTINCT FROM (new.url, new.events)) EXECUTE FUNCTION count_webhook();
