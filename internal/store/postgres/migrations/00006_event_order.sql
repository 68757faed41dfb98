-- +goose Up

-- Lists of events are in the order of the commits, whatever the clocks of the nodes say: a transaction that adds
-- events takes their numbers from the head and holds it until it ends. The default gives numbers also to events
-- of older nodes, which do not know the column. Events from before have 0, and are in the order of their
-- identifiers: none of them is committed after this migration, which waits for their transactions.

-- What runs meanwhile waits behind this migration while it waits for a lock: a tenth of the shortest lease at most,
-- also behind a pooler, which does not keep the settings of a session.
SELECT set_config('lock_timeout', greatest(1, least(1000, (SELECT min(ttl) FROM nodes WHERE state = 'live') / 10000000))::text, true);

LOCK TABLE events IN ACCESS EXCLUSIVE MODE;

CREATE TABLE event_head (
    one boolean NOT NULL PRIMARY KEY DEFAULT true CHECK (one),
    n   bigint  NOT NULL
);
INSERT INTO event_head (n) VALUES (0);

-- +goose StatementBegin
CREATE FUNCTION next_event() RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    number bigint;
BEGIN
    UPDATE event_head SET n = n + 1 RETURNING n INTO STRICT number;
    RETURN number;
END
$$;
-- +goose StatementEnd

ALTER TABLE events ADD COLUMN n bigint NOT NULL DEFAULT 0;
ALTER TABLE events ALTER COLUMN n SET DEFAULT next_event();
CREATE INDEX events_order      ON events (account_id, n, id)       WHERE listed;
CREATE INDEX events_type_order ON events (account_id, type, n, id) WHERE listed;
