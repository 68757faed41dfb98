-- +goose Up
-- +goose StatementBegin
SELECT set_config('lock_timeout', greatest(1, least(1000, (SELECT min(ttl) FROM nodes WHERE state = 'live') / 10000000))::text, true);
-- No key changes until the end, so that what follows counts them as they are.
SELECT number FROM change_head FOR NO KEY UPDATE;

CREATE TABLE plans (
    id         text    COLLATE "C" NOT NULL CONSTRAINT "plans.id" PRIMARY KEY,
    account_id text    COLLATE "C" NOT NULL REFERENCES accounts (id),
    name       text    COLLATE "C" NOT NULL,
    title      text    COLLATE "C" NOT NULL,
    limits     text    COLLATE "C" NOT NULL,       -- JSON array
    time_zone  text    COLLATE "C" NOT NULL,
    anchor_day integer NOT NULL,
    created_at bigint  NOT NULL,
    version    bigint  NOT NULL,
    CONSTRAINT "plans.name" UNIQUE (account_id, name)
);
CREATE INDEX plans_list ON plans (account_id, id);

CREATE TABLE owners (
    id          text    COLLATE "C" NOT NULL CONSTRAINT "owners.id" PRIMARY KEY,
    account_id  text    COLLATE "C" NOT NULL REFERENCES accounts (id),
    external_id text    COLLATE "C" NOT NULL,      -- keys.owner of its keys; never changed
    name        text    COLLATE "C" NOT NULL DEFAULT '',
    plan_id     text    COLLATE "C",
    suspended   boolean NOT NULL DEFAULT false,
    metadata    text    COLLATE "C",               -- JSON object
    time_zone   text    COLLATE "C" NOT NULL DEFAULT '', -- '' and 0: that of the plan
    anchor_day  integer NOT NULL DEFAULT 0,
    created_at  bigint  NOT NULL,
    version     bigint  NOT NULL DEFAULT 1,
    CONSTRAINT "owners.external_id" UNIQUE (account_id, external_id)
);
CREATE INDEX owners_list  ON owners (account_id, id);
CREATE INDEX owners_state ON owners (account_id, suspended, id);
CREATE INDEX owners_plan  ON owners (account_id, plan_id, id) WHERE plan_id IS NOT NULL;

-- The bytes of owners are those of the external ID and the time zone, those of plans of name, title, limits and time
-- zone. The bytes of keys are those of their scopes, and no longer those of the owner.
ALTER TABLE account_counts
    ADD COLUMN owners      bigint NOT NULL DEFAULT 0,
    ADD COLUMN plans       bigint NOT NULL DEFAULT 0,
    ADD COLUMN owner_bytes bigint NOT NULL DEFAULT 0,
    ADD COLUMN plan_bytes  bigint NOT NULL DEFAULT 0;
UPDATE account_counts c SET key_bytes = c.key_bytes - named.bytes
FROM (SELECT account_id, sum(octet_length(owner)) AS bytes FROM keys WHERE owner IS NOT NULL AND phase < 2 GROUP BY account_id) AS named
WHERE c.account_id = named.account_id;

ALTER TABLE accounts ADD COLUMN default_plan_id text COLLATE "C";
ALTER TABLE gateways ADD COLUMN default_plan_id text COLLATE "C";
CREATE INDEX gateways_plan ON gateways (account_id, default_plan_id) WHERE default_plan_id IS NOT NULL;

ALTER TABLE keys
    ADD COLUMN owner_id text COLLATE "C",          -- of the owner; outlives it, as owner does
    ADD COLUMN plan_id  text COLLATE "C";          -- of the key itself

CREATE FUNCTION key_bytes(phase integer, resource text, more_scopes text) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN phase < 2 THEN coalesce(octet_length(resource), 0) + coalesce(octet_length(more_scopes), 0) ELSE 0 END::bigint
$$;

CREATE OR REPLACE FUNCTION count_inserted_keys() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO account_counts AS c (account_id, keys, live_keys, key_bytes)
    SELECT account_id, count(*), count(*) FILTER (WHERE phase < 2), sum(key_bytes(phase, resource, more_scopes)) FROM inserted GROUP BY account_id
    ON CONFLICT (account_id) DO UPDATE SET keys = c.keys + excluded.keys, live_keys = c.live_keys + excluded.live_keys, key_bytes = c.key_bytes + excluded.key_bytes;
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION count_updated_key() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE account_counts SET live_keys = live_keys + (new.phase < 2)::int - (old.phase < 2)::int, key_bytes = key_bytes
        + key_bytes(new.phase, new.resource, new.more_scopes) - key_bytes(old.phase, old.resource, old.more_scopes)
    WHERE account_id = new.account_id;
    RETURN NULL;
END $$;
DROP TRIGGER keys_recounted ON keys;
CREATE TRIGGER keys_recounted AFTER UPDATE OF phase, resource, more_scopes ON keys FOR EACH ROW
WHEN ((old.phase < 2, old.resource, old.more_scopes) IS DISTINCT FROM (new.phase < 2, new.resource, new.more_scopes))
EXECUTE FUNCTION count_updated_key();

CREATE OR REPLACE FUNCTION count_deleted_keys() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    WITH gone AS (
        DELETE FROM answers a USING deleted d WHERE a.key_id = d.id
        RETURNING d.account_id, coalesce(length(a.body), 0) + coalesce(octet_length(a.header), 0) AS bytes
    ), counts AS (
        SELECT account_id, count(*) AS keys, count(*) FILTER (WHERE phase < 2) AS live_keys, sum(key_bytes(phase, resource, more_scopes)) AS key_bytes,
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
DROP FUNCTION key_bytes(integer, text, text, text);

-- One statement may remove many owners of an account.
CREATE FUNCTION count_owners() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO account_counts AS c (account_id, owners, owner_bytes)
        SELECT account_id, count(*), sum(octet_length(external_id) + octet_length(time_zone)) FROM changed GROUP BY account_id
        ON CONFLICT (account_id) DO UPDATE SET owners = c.owners + excluded.owners, owner_bytes = c.owner_bytes + excluded.owner_bytes;
    ELSE
        UPDATE account_counts c SET owners = c.owners - d.owners, owner_bytes = c.owner_bytes - d.bytes
        FROM (SELECT account_id, count(*) AS owners, sum(octet_length(external_id) + octet_length(time_zone)) AS bytes FROM changed GROUP BY account_id) d
        WHERE c.account_id = d.account_id;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER owners_counted AFTER INSERT ON owners REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION count_owners();
CREATE TRIGGER owners_uncounted AFTER DELETE ON owners REFERENCING OLD TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION count_owners();

CREATE FUNCTION count_updated_owner() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE account_counts SET owner_bytes = owner_bytes + octet_length(new.time_zone) - octet_length(old.time_zone) WHERE account_id = new.account_id;
    RETURN NULL;
END $$;
CREATE TRIGGER owners_recounted AFTER UPDATE OF time_zone ON owners FOR EACH ROW WHEN (old.time_zone <> new.time_zone) EXECUTE FUNCTION count_updated_owner();

CREATE FUNCTION plan_bytes(p plans) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT (octet_length(p.name) + octet_length(p.title) + octet_length(p.limits) + octet_length(p.time_zone))::bigint
$$;

CREATE FUNCTION count_plan() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO account_counts AS c (account_id, plans, plan_bytes) VALUES (new.account_id, 1, plan_bytes(new))
        ON CONFLICT (account_id) DO UPDATE SET plans = c.plans + 1, plan_bytes = c.plan_bytes + excluded.plan_bytes;
    ELSIF TG_OP = 'UPDATE' THEN
        UPDATE account_counts SET plan_bytes = account_counts.plan_bytes + plan_bytes(new) - plan_bytes(old) WHERE account_id = new.account_id;
    ELSE
        UPDATE account_counts SET plans = plans - 1, plan_bytes = account_counts.plan_bytes - plan_bytes(old) WHERE account_id = old.account_id;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER plans_counted AFTER INSERT OR DELETE OR UPDATE OF name, title, limits, time_zone ON plans FOR EACH ROW EXECUTE FUNCTION count_plan();

-- A new identifier of an owner that was created at a time: a UUIDv7 in 26 characters (package id), ten of the time in
-- milliseconds, then one with the version; the fourth behind them has the variant. Of the random bytes, the two that
-- hold version and variant of a UUID are not used.
CREATE FUNCTION new_owner_id(at bigint) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    letters constant text := '0123456789abcdefghjkmnpqrstvwxyz';
    random  constant bytea := uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid());
    id      text := 'own_';
BEGIN
    FOR i IN 0..9 LOOP
        id := id || substr(letters, 1 + (greatest(at, 0) / 1000 >> 45 - 5 * i & 31)::int, 1);
    END LOOP;
    id := id || substr('ef', 1 + (get_byte(random, 0) & 1), 1);
    FOR i IN 1..2 LOOP
        id := id || substr(letters, 1 + (get_byte(random, i) & 31), 1);
    END LOOP;
    id := id || substr('89abrstv', 1 + (get_byte(random, 3) & 7), 1);
    FOR i IN 1..12 LOOP
        id := id || substr(letters, 1 + (get_byte(random, i + CASE WHEN i < 7 THEN 8 ELSE 9 END) & 31), 1);
    END LOOP;
    RETURN id;
END $$;

-- Nodes of the version before know owners only by the keys that name them: they leave owner_id as it is.
CREATE FUNCTION own_key() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    at constant bigint := (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;
BEGIN
    SELECT id INTO new.owner_id FROM owners WHERE account_id = new.account_id AND external_id = new.owner;
    IF new.owner_id IS NULL AND new.owner IS NOT NULL THEN
        INSERT INTO owners (id, account_id, external_id, plan_id, created_at)
        SELECT new_owner_id(at), id, new.owner, default_plan_id, at FROM accounts WHERE id = new.account_id RETURNING id INTO new.owner_id;
    END IF;
    RETURN new;
END $$;
CREATE TRIGGER keys_owned BEFORE INSERT ON keys FOR EACH ROW WHEN (new.owner IS NOT NULL AND new.owner_id IS NULL) EXECUTE FUNCTION own_key();
CREATE TRIGGER keys_owned_by_another BEFORE UPDATE OF owner ON keys FOR EACH ROW
WHEN (new.owner IS DISTINCT FROM old.owner AND new.owner_id IS NOT DISTINCT FROM old.owner_id) EXECUTE FUNCTION own_key();
-- +goose StatementEnd
