-- +goose Up

-- How many bytes the configuration of an account has that is in the memory of every node, so that its bound is cheap
-- to check. Triggers keep the numbers, which are what the account may choose: of gateways the settings; of routes
-- what gateway.RouteBytes says; of keys that are not revoked the scopes and the owner; of webhooks URL and events.
-- Tables of routes from before count 64 bytes a route until they are pushed again.
ALTER TABLE gateways ADD COLUMN route_bytes INTEGER NOT NULL DEFAULT 0;
UPDATE gateways SET route_bytes = 64 * route_count;

ALTER TABLE account_counts ADD COLUMN gateway_bytes INTEGER NOT NULL DEFAULT 0;
ALTER TABLE account_counts ADD COLUMN route_bytes   INTEGER NOT NULL DEFAULT 0;
ALTER TABLE account_counts ADD COLUMN key_bytes     INTEGER NOT NULL DEFAULT 0;
ALTER TABLE account_counts ADD COLUMN webhook_bytes INTEGER NOT NULL DEFAULT 0;

INSERT INTO account_counts (account_id, gateway_bytes, route_bytes)
SELECT account_id,
    sum(octet_length(name) + octet_length(upstream) + octet_length(hostname) + octet_length(requests) + coalesce(octet_length(cors), 0)), sum(route_bytes)
FROM gateways WHERE true GROUP BY account_id
ON CONFLICT (account_id) DO UPDATE SET gateway_bytes = excluded.gateway_bytes, route_bytes = excluded.route_bytes;

INSERT INTO account_counts (account_id, key_bytes)
SELECT account_id, sum(coalesce(octet_length(resource), 0) + coalesce(octet_length(more_scopes), 0) + coalesce(octet_length(owner), 0))
FROM keys WHERE phase < 2 GROUP BY account_id
ON CONFLICT (account_id) DO UPDATE SET key_bytes = excluded.key_bytes;

INSERT INTO account_counts (account_id, webhook_bytes)
SELECT account_id, sum(octet_length(url) + octet_length(events)) FROM webhooks WHERE true GROUP BY account_id
ON CONFLICT (account_id) DO UPDATE SET webhook_bytes = excluded.webhook_bytes;

-- +goose StatementBegin
CREATE TRIGGER gateways_counted AFTER INSERT ON gateways BEGIN
    INSERT INTO account_counts (account_id, gateway_bytes, route_bytes) VALUES (new.account_id,
        octet_length(new.name) + octet_length(new.upstream) + octet_length(new.hostname) + octet_length(new.requests) + coalesce(octet_length(new.cors), 0),
        new.route_bytes)
    ON CONFLICT (account_id) DO UPDATE SET gateway_bytes = gateway_bytes + excluded.gateway_bytes, route_bytes = route_bytes + excluded.route_bytes;
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER gateways_recounted AFTER UPDATE OF name, upstream, hostname, requests, cors, route_bytes ON gateways BEGIN
    UPDATE account_counts SET gateway_bytes = gateway_bytes
        + octet_length(new.name) + octet_length(new.upstream) + octet_length(new.hostname) + octet_length(new.requests) + coalesce(octet_length(new.cors), 0)
        - octet_length(old.name) - octet_length(old.upstream) - octet_length(old.hostname) - octet_length(old.requests) - coalesce(octet_length(old.cors), 0),
        route_bytes = route_bytes + new.route_bytes - old.route_bytes
    WHERE account_id = new.account_id;
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER gateways_uncounted AFTER DELETE ON gateways BEGIN
    UPDATE account_counts SET gateway_bytes = gateway_bytes
        - octet_length(old.name) - octet_length(old.upstream) - octet_length(old.hostname) - octet_length(old.requests) - coalesce(octet_length(old.cors), 0),
        route_bytes = route_bytes - old.route_bytes
    WHERE account_id = old.account_id;
END;
-- +goose StatementEnd

DROP TRIGGER keys_counted;
-- +goose StatementBegin
CREATE TRIGGER keys_counted AFTER INSERT ON keys BEGIN
    INSERT INTO account_counts (account_id, keys, live_keys, key_bytes) VALUES (new.account_id, 1, new.phase < 2,
        (new.phase < 2) * (coalesce(octet_length(new.resource), 0) + coalesce(octet_length(new.more_scopes), 0) + coalesce(octet_length(new.owner), 0)))
    ON CONFLICT (account_id) DO UPDATE SET keys = keys + 1, live_keys = live_keys + excluded.live_keys, key_bytes = key_bytes + excluded.key_bytes;
END;
-- +goose StatementEnd

DROP TRIGGER keys_recounted;
-- +goose StatementBegin
CREATE TRIGGER keys_recounted AFTER UPDATE OF phase, resource, more_scopes, owner ON keys
WHEN (old.phase < 2) <> (new.phase < 2) OR old.resource IS NOT new.resource OR old.more_scopes IS NOT new.more_scopes OR old.owner IS NOT new.owner BEGIN
    UPDATE account_counts SET live_keys = live_keys + (new.phase < 2) - (old.phase < 2), key_bytes = key_bytes
        + (new.phase < 2) * (coalesce(octet_length(new.resource), 0) + coalesce(octet_length(new.more_scopes), 0) + coalesce(octet_length(new.owner), 0))
        - (old.phase < 2) * (coalesce(octet_length(old.resource), 0) + coalesce(octet_length(old.more_scopes), 0) + coalesce(octet_length(old.owner), 0))
    WHERE account_id = new.account_id;
END;
-- +goose StatementEnd

DROP TRIGGER keys_uncounted;
-- A response belongs to the account of its key, so it does not outlive the key.
-- +goose StatementBegin
CREATE TRIGGER keys_uncounted BEFORE DELETE ON keys BEGIN
    DELETE FROM answers WHERE key_id = old.id;
    UPDATE account_counts SET keys = keys - 1, live_keys = live_keys - (old.phase < 2), key_bytes = key_bytes
        - (old.phase < 2) * (coalesce(octet_length(old.resource), 0) + coalesce(octet_length(old.more_scopes), 0) + coalesce(octet_length(old.owner), 0))
    WHERE account_id = old.account_id;
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER webhooks_counted AFTER INSERT ON webhooks BEGIN
    INSERT INTO account_counts (account_id, webhook_bytes) VALUES (new.account_id, octet_length(new.url) + octet_length(new.events))
    ON CONFLICT (account_id) DO UPDATE SET webhook_bytes = webhook_bytes + excluded.webhook_bytes;
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER webhooks_recounted AFTER UPDATE OF url, events ON webhooks WHEN old.url <> new.url OR old.events <> new.events BEGIN
    UPDATE account_counts SET webhook_bytes = webhook_bytes + octet_length(new.url) + octet_length(new.events) - octet_length(old.url) - octet_length(old.events)
    WHERE account_id = new.account_id;
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER webhooks_uncounted AFTER DELETE ON webhooks BEGIN
    UPDATE account_counts SET webhook_bytes = webhook_bytes - octet_length(old.url) - octet_length(old.events) WHERE account_id = old.account_id;
END;
-- +goose StatementEnd
