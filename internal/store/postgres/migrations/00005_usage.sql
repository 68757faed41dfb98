-- +goose Up
-- +goose StatementBegin
SELECT set_config('lock_timeout', greatest(1, least(1000, (SELECT min(ttl) FROM nodes WHERE state = 'live') / 10000000))::text, true);

-- Final usage records (package usage): a block is many records of one account and hour, or day.
CREATE TABLE usage_blocks (
    account_id text    COLLATE "C" NOT NULL,
    tier       integer NOT NULL,                  -- 0 hours, 1 days
    number     bigint  NOT NULL,                  -- in the order in which they became final
    start      bigint  NOT NULL,                  -- of the hour or day, in Unix seconds
    body       bytea   NOT NULL,
    CONSTRAINT "usage_blocks.number" PRIMARY KEY (account_id, tier, number)
);
ALTER TABLE usage_blocks ALTER COLUMN body SET STORAGE EXTERNAL;
CREATE INDEX usage_blocks_age   ON usage_blocks (tier, start, account_id, number);
CREATE INDEX usage_blocks_start ON usage_blocks (account_id, tier, start, number);

-- The last number of a block. Whoever adds blocks locks the row.
CREATE TABLE usage_numbers (
    account_id text    COLLATE "C" NOT NULL,
    tier       integer NOT NULL,
    last       bigint  NOT NULL,
    CONSTRAINT "usage_numbers.account" PRIMARY KEY (account_id, tier)
);

-- Until when the usage of the requests of a process is stored.
CREATE TABLE usage_marks (
    process text   COLLATE "C" NOT NULL CONSTRAINT "usage_marks.process" PRIMARY KEY,
    until   bigint NOT NULL
);

-- Until when all hours were closed: one row.
CREATE TABLE usage_closed (
    n     integer NOT NULL CONSTRAINT "usage_closed.n" PRIMARY KEY,
    until bigint  NOT NULL
);

-- The processes whose nodes have a lease.
CREATE VIEW usage_processes_live AS SELECT encode(boot, 'hex') AS process FROM nodes
WHERE state = 'live' AND renewed + ttl / 1000 * interval '1 microsecond' > clock_timestamp();
-- +goose StatementEnd
