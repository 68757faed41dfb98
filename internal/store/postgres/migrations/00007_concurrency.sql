-- +goose Up
-- +goose StatementBegin
SELECT set_config('lock_timeout', greatest(1, least(1000, (SELECT min(ttl) FROM nodes WHERE state = 'live') / 10000000))::text, true);

ALTER TABLE keys ADD COLUMN concurrency bigint; -- how many requests of the key may be in flight at once; NULL for any number

-- How many requests in flight of a limit a process may have. There is a row only while that is more than none. Whoever
-- reads rows to change them, or adds some, holds the locks of their names (store/postgres/slot.go).
CREATE TABLE slots (
    name    text    COLLATE "C" NOT NULL,      -- of the limit, with its account and subject
    process text    COLLATE "C" NOT NULL,      -- the boot of a node, in hexadecimal digits
    part    bigint  NOT NULL,                  -- of the process
    held    bigint  NOT NULL,
    asked   boolean NOT NULL,                  -- other processes need what is not in use
    since   bigint  NOT NULL,                  -- from then to seen, all that are held were in use; 0 if they were not
    seen    bigint  NOT NULL,
    CONSTRAINT "slots.process" PRIMARY KEY (name, process, part)
) WITH (fillfactor = 80);
CREATE INDEX slots_asked ON slots (process, part) WHERE asked;

-- Processes that were replaced, by one with the same name of a node, while they had slots. These count until the time.
CREATE TABLE slot_processes (
    process text        COLLATE "C" NOT NULL CONSTRAINT "slot_processes.process" PRIMARY KEY,
    ends    timestamptz NOT NULL
);

CREATE FUNCTION keep_slots() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM slot_processes WHERE ends < clock_timestamp() - interval '1 minute';
    INSERT INTO slot_processes SELECT encode(OLD.boot, 'hex'), OLD.renewed + OLD.ttl / 1000 * interval '1 microsecond' + interval '2 seconds'
    WHERE EXISTS (SELECT FROM slots WHERE process = encode(OLD.boot, 'hex'))
    ON CONFLICT (process) DO UPDATE SET ends = excluded.ends;
    RETURN NULL;
END $$;
CREATE TRIGGER nodes_keep_slots AFTER UPDATE OF boot ON nodes FOR EACH ROW WHEN (OLD.boot <> NEW.boot) EXECUTE FUNCTION keep_slots();

-- The processes whose slots count: until two seconds after the lease of their node. Their requests have ended by then.
CREATE VIEW slot_processes_live AS
SELECT encode(boot, 'hex') AS process FROM nodes WHERE renewed + ttl / 1000 * interval '1 microsecond' + interval '2 seconds' > clock_timestamp()
UNION ALL SELECT process FROM slot_processes WHERE ends > clock_timestamp();
-- +goose StatementEnd
