-- +goose Up

-- The time at which the server stored a change, by its own clock. The column at has the clock of the
-- node that made the change.
ALTER TABLE changes ADD COLUMN stored timestamptz NOT NULL DEFAULT clock_timestamp();

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
    renewed    timestamptz NOT NULL             -- by the server's clock
);

-- The servers and timelines on which no lease is in use that another one granted and lost.
CREATE TABLE settled_servers (
    name text COLLATE "C" NOT NULL PRIMARY KEY
);

-- +goose StatementBegin
CREATE FUNCTION notify_changes() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('keygate_changes', '');
    RETURN NULL;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER changes_notify AFTER INSERT ON changes FOR EACH STATEMENT EXECUTE FUNCTION notify_changes();
