-- +goose Up

-- What callers of the data plane sent, and texts of errors, may have any bytes: they are bytea.

-- The time of the queue of deliveries. It is the database's, so that the clocks of nodes do not
-- matter; tests, which have a clock of their own, set keygate.callers_time in their connections.
-- +goose StatementBegin
CREATE FUNCTION queue_now(given bigint) RETURNS bigint LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN current_setting('keygate.callers_time', true) = 'on' THEN given
        ELSE (extract(epoch FROM statement_timestamp()) * 1000000)::bigint END
$$;
-- +goose StatementEnd

CREATE TABLE webhooks (
    id              text    COLLATE "C" NOT NULL CONSTRAINT "webhooks.id" PRIMARY KEY,
    account_id      text    COLLATE "C" NOT NULL REFERENCES accounts (id),
    url             text    COLLATE "C" NOT NULL,
    events          text    COLLATE "C" NOT NULL, -- separated by spaces
    active          boolean NOT NULL,
    disabled_reason text    COLLATE "C" NOT NULL,
    secret          bytea   NOT NULL,             -- sealed, as old_secret
    secret_since    bigint  NOT NULL,
    old_secret      bytea,
    old_until       bigint,
    failing_since   bigint,
    created_at      bigint  NOT NULL,
    version         bigint  NOT NULL
);
CREATE INDEX webhooks_list ON webhooks (account_id, id);
-- An event steps through the lists of types that there are, and not through all endpoints of its
-- account.
CREATE INDEX webhooks_listeners ON webhooks (account_id, events, id) WHERE active;

-- An event that is listed no more stays for the deliveries that need its payload.
CREATE TABLE events (
    id         text    COLLATE "C" NOT NULL CONSTRAINT "events.id" PRIMARY KEY,
    account_id text    COLLATE "C" NOT NULL REFERENCES accounts (id),
    type       text    COLLATE "C" NOT NULL,
    created_at bigint  NOT NULL,
    payload    bytea   NOT NULL,
    listed     boolean NOT NULL
);
CREATE INDEX events_list ON events (account_id, id)       WHERE listed;
CREATE INDEX events_type ON events (account_id, type, id) WHERE listed;
CREATE INDEX events_age  ON events (created_at)           WHERE listed;

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

-- Requests that were refused or failed (package requestlog).
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
    PRIMARY KEY (account_id, id)
);
CREATE INDEX requests_age   ON requests (time);
CREATE INDEX requests_key   ON requests (account_id, key_id, id) WHERE key_id <> '';
CREATE INDEX requests_route ON requests (account_id, route_id, id) WHERE route_id <> '';

-- How many requests of a second were left out of the table above.
CREATE TABLE requests_left_out (
    account_id text   COLLATE "C" NOT NULL,
    second     bigint NOT NULL,                   -- Unix seconds
    count      bigint NOT NULL,
    PRIMARY KEY (account_id, second)
);
CREATE INDEX requests_left_out_age ON requests_left_out (second);

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
