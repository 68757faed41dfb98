-- +goose Up
-- +goose StatementBegin
SELECT set_config('lock_timeout', greatest(1, least(1000, (SELECT min(ttl) FROM nodes WHERE state = 'live') / 10000000))::text, true);

ALTER TABLE account_counts ADD COLUMN quotas bigint NOT NULL DEFAULT 0;

-- A quota of a subject. Whoever reads its windows to change them locks its row before.
CREATE TABLE quotas (
    n          bigint  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    account_id text    COLLATE "C" NOT NULL,
    subject    text    COLLATE "C" NOT NULL,      -- an owner, or the bucket of a key
    name       text    COLLATE "C" NOT NULL,      -- of the limit
    meter      text    COLLATE "C" NOT NULL,
    unit       integer NOT NULL,                  -- calendar.Unit
    CONSTRAINT "quotas.name" UNIQUE (account_id, subject, name, meter, unit)
);

-- The edges of a window never change.
CREATE TABLE quota_windows (
    quota    bigint  NOT NULL REFERENCES quotas (n),
    start    bigint  NOT NULL,
    ends     bigint  NOT NULL,
    taken    bigint  NOT NULL,                    -- by all processes
    reserved bigint  NOT NULL,                    -- part of taken that is not used yet, at most
    grants   bigint  NOT NULL DEFAULT 0,          -- units
    granted  integer NOT NULL DEFAULT 0,          -- times
    told     text    COLLATE "C" NOT NULL,        -- percentages with an event, separated by spaces
    CONSTRAINT "quota_windows.start" PRIMARY KEY (quota, start)
) WITH (fillfactor = 80);
CREATE INDEX quota_windows_end ON quota_windows (ends);

CREATE TABLE quota_processes (
    n    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text   COLLATE "C" NOT NULL CONSTRAINT "quota_processes.name" UNIQUE,
    seen bigint NOT NULL                          -- about when it last claimed something: up to an hour before that
);

-- The part of a window's figures that a process has.
CREATE TABLE quota_shares (
    quota    bigint  NOT NULL,
    start    bigint  NOT NULL,
    process  bigint  NOT NULL REFERENCES quota_processes (n),
    taken    bigint  NOT NULL,
    reserved bigint  NOT NULL,
    recalled boolean NOT NULL,                    -- other processes need what is reserved
    CONSTRAINT "quota_shares.process" PRIMARY KEY (quota, start, process),
    FOREIGN KEY (quota, start) REFERENCES quota_windows (quota, start)
) WITH (fillfactor = 80);
CREATE INDEX quota_shares_process ON quota_shares (process, recalled);

CREATE TABLE quota_grants (
    id         text   COLLATE "C" NOT NULL CONSTRAINT "quota_grants.id" PRIMARY KEY,
    account_id text   COLLATE "C" NOT NULL,
    subject    text   COLLATE "C" NOT NULL,
    quota      bigint NOT NULL,
    start      bigint NOT NULL,
    plan       text   COLLATE "C" NOT NULL,       -- its name
    units      bigint NOT NULL,
    reason     text   COLLATE "C" NOT NULL,
    created_at bigint NOT NULL,
    FOREIGN KEY (quota, start) REFERENCES quota_windows (quota, start)
);
CREATE INDEX quota_grants_list   ON quota_grants (account_id, subject, id);
CREATE INDEX quota_grants_window ON quota_grants (quota, start);

-- The processes whose nodes have a lease.
CREATE VIEW quota_processes_live AS SELECT p.n FROM quota_processes p JOIN nodes o ON encode(o.boot, 'hex') = p.name
WHERE o.state = 'live' AND o.renewed + o.ttl / 1000 * interval '1 microsecond' > clock_timestamp();

-- Claims of several nodes may add quotas of several accounts at once: they lock the counts in one order. An account that
-- was removed has none.
CREATE FUNCTION count_quotas() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM changed) THEN
        PERFORM FROM account_counts WHERE account_id IN (SELECT account_id FROM changed) ORDER BY account_id FOR NO KEY UPDATE;
        UPDATE account_counts c SET quotas = c.quotas + CASE TG_OP WHEN 'INSERT' THEN d.quotas ELSE -d.quotas END
        FROM (SELECT account_id, count(*) AS quotas FROM changed GROUP BY account_id) d WHERE c.account_id = d.account_id;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER quotas_counted AFTER INSERT ON quotas REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION count_quotas();
CREATE TRIGGER quotas_uncounted AFTER DELETE ON quotas REFERENCING OLD TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION count_quotas();
-- +goose StatementEnd
