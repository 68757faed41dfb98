-- +goose Up
-- +goose StatementBegin

CREATE TABLE plans (
    id         TEXT    NOT NULL PRIMARY KEY,
    account_id TEXT    NOT NULL REFERENCES accounts (id),
    name       TEXT    NOT NULL,
    title      TEXT    NOT NULL,
    limits     TEXT    NOT NULL,            -- JSON array
    time_zone  TEXT    NOT NULL,
    anchor_day INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    version    INTEGER NOT NULL
) STRICT;
CREATE INDEX plans_list ON plans (account_id, id);
CREATE UNIQUE INDEX plans_name ON plans (account_id, name);

CREATE TABLE owners (
    id          TEXT    NOT NULL PRIMARY KEY,
    account_id  TEXT    NOT NULL REFERENCES accounts (id),
    external_id TEXT    NOT NULL,           -- keys.owner of its keys; never changed
    name        TEXT    NOT NULL DEFAULT '',
    plan_id     TEXT,
    suspended   INTEGER NOT NULL DEFAULT 0,
    metadata    TEXT,                       -- JSON object
    time_zone   TEXT    NOT NULL DEFAULT '', -- '' and 0: that of the plan
    anchor_day  INTEGER NOT NULL DEFAULT 0,
    created_at  INTEGER NOT NULL,
    version     INTEGER NOT NULL DEFAULT 1
) STRICT;
CREATE INDEX owners_list  ON owners (account_id, id);
CREATE INDEX owners_state ON owners (account_id, suspended, id);
CREATE INDEX owners_plan  ON owners (account_id, plan_id, id) WHERE plan_id IS NOT NULL;
CREATE UNIQUE INDEX owners_external_id ON owners (account_id, external_id);

-- Each owner that a key names is an owner since its first key. Its identifier is a UUIDv7 in 26 characters (package id):
-- ten of the time in milliseconds, then one with the version, and the fourth has the variant.
INSERT INTO owners (id, account_id, external_id, created_at)
SELECT 'own_'
        || substr(a, 1 + (at / 1000 >> 45 & 31), 1) || substr(a, 1 + (at / 1000 >> 40 & 31), 1) || substr(a, 1 + (at / 1000 >> 35 & 31), 1) || substr(a, 1 + (at / 1000 >> 30 & 31), 1) || substr(a, 1 + (at / 1000 >> 25 & 31), 1)
        || substr(a, 1 + (at / 1000 >> 20 & 31), 1) || substr(a, 1 + (at / 1000 >> 15 & 31), 1) || substr(a, 1 + (at / 1000 >> 10 & 31), 1) || substr(a, 1 + (at / 1000 >> 5 & 31), 1) || substr(a, 1 + (at / 1000 >> 0 & 31), 1)
        || substr('ef', 1 + (random() & 1), 1) || substr(a, 1 + (random() & 31), 1) || substr(a, 1 + (random() & 31), 1) || substr('89abrstv', 1 + (random() & 7), 1)
        || substr(a, 1 + (random() & 31), 1) || substr(a, 1 + (random() & 31), 1) || substr(a, 1 + (random() & 31), 1) || substr(a, 1 + (random() & 31), 1)
        || substr(a, 1 + (random() & 31), 1) || substr(a, 1 + (random() & 31), 1) || substr(a, 1 + (random() & 31), 1) || substr(a, 1 + (random() & 31), 1)
        || substr(a, 1 + (random() & 31), 1) || substr(a, 1 + (random() & 31), 1) || substr(a, 1 + (random() & 31), 1) || substr(a, 1 + (random() & 31), 1),
    account_id, owner, at
FROM (SELECT '0123456789abcdefghjkmnpqrstvwxyz' AS a) CROSS JOIN
    (SELECT account_id, owner, max(min(created_at), 0) AS at FROM keys INDEXED BY keys_owner WHERE owner IS NOT NULL GROUP BY account_id, owner);

ALTER TABLE keys ADD COLUMN owner_id TEXT;  -- of the owner; outlives it, as owner does
ALTER TABLE keys ADD COLUMN plan_id TEXT;   -- of the key itself
UPDATE keys SET owner_id = (SELECT id FROM owners WHERE account_id = keys.account_id AND external_id = keys.owner) WHERE owner IS NOT NULL;
CREATE INDEX keys_plan ON keys (account_id, plan_id, phase, id) WHERE plan_id IS NOT NULL;

ALTER TABLE gateways ADD COLUMN default_plan_id TEXT;
CREATE INDEX gateways_plan ON gateways (account_id, default_plan_id) WHERE default_plan_id IS NOT NULL;
ALTER TABLE accounts ADD COLUMN default_plan_id TEXT;

-- The bytes of owners are those of the external ID and the time zone, those of plans of name, title, limits and time
-- zone. The bytes of keys are those of their scopes, and no longer those of the owner.
ALTER TABLE account_counts ADD COLUMN owners INTEGER NOT NULL DEFAULT 0;
ALTER TABLE account_counts ADD COLUMN plans INTEGER NOT NULL DEFAULT 0;
ALTER TABLE account_counts ADD COLUMN owner_bytes INTEGER NOT NULL DEFAULT 0;
ALTER TABLE account_counts ADD COLUMN plan_bytes INTEGER NOT NULL DEFAULT 0;
UPDATE account_counts SET key_bytes = key_bytes - named.bytes
FROM (SELECT account_id, sum(octet_length(owner)) AS bytes FROM keys INDEXED BY keys_owner WHERE owner IS NOT NULL AND phase < 2 GROUP BY account_id) AS named
WHERE account_counts.account_id = named.account_id;
UPDATE account_counts SET owners = some.owners, owner_bytes = some.bytes
FROM (SELECT account_id, count(*) AS owners, sum(octet_length(external_id)) AS bytes FROM owners GROUP BY account_id) AS some
WHERE account_counts.account_id = some.account_id;

DROP TRIGGER keys_counted;
CREATE TRIGGER keys_counted AFTER INSERT ON keys BEGIN
    INSERT INTO account_counts (account_id, keys, live_keys, key_bytes) VALUES (new.account_id, 1, new.phase < 2,
        (new.phase < 2) * (coalesce(octet_length(new.resource), 0) + coalesce(octet_length(new.more_scopes), 0)))
    ON CONFLICT (account_id) DO UPDATE SET keys = keys + 1, live_keys = live_keys + excluded.live_keys, key_bytes = key_bytes + excluded.key_bytes;
END;

DROP TRIGGER keys_recounted;
CREATE TRIGGER keys_recounted AFTER UPDATE OF phase, resource, more_scopes ON keys
WHEN (old.phase < 2) <> (new.phase < 2) OR old.resource IS NOT new.resource OR old.more_scopes IS NOT new.more_scopes BEGIN
    UPDATE account_counts SET live_keys = live_keys + (new.phase < 2) - (old.phase < 2), key_bytes = key_bytes
        + (new.phase < 2) * (coalesce(octet_length(new.resource), 0) + coalesce(octet_length(new.more_scopes), 0))
        - (old.phase < 2) * (coalesce(octet_length(old.resource), 0) + coalesce(octet_length(old.more_scopes), 0))
    WHERE account_id = new.account_id;
END;

DROP TRIGGER keys_uncounted;
-- A response belongs to the account of its key, so it does not outlive the key.
CREATE TRIGGER keys_uncounted BEFORE DELETE ON keys BEGIN
    DELETE FROM answers WHERE key_id = old.id;
    UPDATE account_counts SET keys = keys - 1, live_keys = live_keys - (old.phase < 2), key_bytes = key_bytes
        - (old.phase < 2) * (coalesce(octet_length(old.resource), 0) + coalesce(octet_length(old.more_scopes), 0))
    WHERE account_id = old.account_id;
END;

CREATE TRIGGER owners_counted AFTER INSERT ON owners BEGIN
    INSERT INTO account_counts (account_id, owners, owner_bytes) VALUES (new.account_id, 1, octet_length(new.external_id) + octet_length(new.time_zone))
    ON CONFLICT (account_id) DO UPDATE SET owners = owners + 1, owner_bytes = owner_bytes + excluded.owner_bytes;
END;

CREATE TRIGGER owners_recounted AFTER UPDATE OF time_zone ON owners WHEN old.time_zone <> new.time_zone BEGIN
    UPDATE account_counts SET owner_bytes = owner_bytes + octet_length(new.time_zone) - octet_length(old.time_zone) WHERE account_id = new.account_id;
END;

CREATE TRIGGER owners_uncounted AFTER DELETE ON owners BEGIN
    UPDATE account_counts SET owners = owners - 1, owner_bytes = owner_bytes - octet_length(old.external_id) - octet_length(old.time_zone)
    WHERE account_id = old.account_id;
END;

CREATE TRIGGER plans_counted AFTER INSERT ON plans BEGIN
    INSERT INTO account_counts (account_id, plans, plan_bytes) VALUES (new.account_id, 1,
        octet_length(new.name) + octet_length(new.title) + octet_length(new.limits) + octet_length(new.time_zone))
    ON CONFLICT (account_id) DO UPDATE SET plans = plans + 1, plan_bytes = plan_bytes + excluded.plan_bytes;
END;

CREATE TRIGGER plans_recounted AFTER UPDATE OF name, title, limits, time_zone ON plans BEGIN
    UPDATE account_counts SET plan_bytes = plan_bytes
        + octet_length(new.name) + octet_length(new.title) + octet_length(new.limits) + octet_length(new.time_zone)
        - octet_length(old.name) - octet_length(old.title) - octet_length(old.limits) - octet_length(old.time_zone)
    WHERE account_id = new.account_id;
END;

CREATE TRIGGER plans_uncounted AFTER DELETE ON plans BEGIN
    UPDATE account_counts SET plans = plans - 1, plan_bytes = plan_bytes
        - octet_length(old.name) - octet_length(old.title) - octet_length(old.limits) - octet_length(old.time_zone)
    WHERE account_id = old.account_id;
END;
-- +goose StatementEnd
