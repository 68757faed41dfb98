-- +goose Up

-- The log of refused and failed requests has a partition for each day (UTC), which retention drops. There is
-- none for other days: add_request_days makes what is missing before a write. Partitions are named after their
-- day; that of the rows from before this migration, after its last one.

DROP INDEX requests_age, requests_left_out_age;
ALTER INDEX requests_key RENAME TO requests_old_key;
ALTER INDEX requests_route RENAME TO requests_old_route;
ALTER TABLE requests DROP CONSTRAINT requests_pkey;
ALTER TABLE requests RENAME TO requests_old;
ALTER TABLE requests_left_out DROP CONSTRAINT requests_left_out_pkey;
ALTER TABLE requests_left_out RENAME TO requests_left_out_old;

CREATE TABLE requests (
    LIKE requests_old INCLUDING DEFAULTS INCLUDING STORAGE,
    PRIMARY KEY (account_id, id, time)
) PARTITION BY RANGE (time);
CREATE INDEX requests_key   ON requests (account_id, key_id, id) WHERE key_id <> '';
CREATE INDEX requests_route ON requests (account_id, route_id, id) WHERE route_id <> '';

CREATE TABLE requests_left_out (
    LIKE requests_left_out_old INCLUDING DEFAULTS,
    PRIMARY KEY (account_id, second)
) PARTITION BY RANGE (second);

-- +goose StatementBegin
CREATE FUNCTION request_day_name(parent text, day bigint) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT parent || to_char(to_timestamp(day * 86400) AT TIME ZONE 'UTC', '_YYYYMMDD')
$$;
-- +goose StatementEnd

-- Makes the partitions of days since 1970 that do not exist. The partitions are attached, and not created in
-- place, which would lock out readers and writers.
-- +goose StatementBegin
CREATE FUNCTION add_request_days(first bigint, last bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    day    bigint;
    parent text;
    unit   bigint;
    name   text;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('keygate'), hashtext('request_days'));
    FOR day IN SELECT generate_series(first, last) LOOP
        FOR parent, unit IN VALUES ('requests', 1000000), ('requests_left_out', 1) LOOP
            name := request_day_name(parent, day);
            CONTINUE WHEN to_regclass(quote_ident(name)) IS NOT NULL;
            BEGIN
                EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING DEFAULTS INCLUDING STORAGE)', name, parent);
                EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%s) TO (%s)', parent, name, day * 86400 * unit, (day + 1) * 86400 * unit);
            EXCEPTION WHEN invalid_object_definition THEN
                NULL; -- the day is within the partition of the rows from before this migration
            END;
        END LOOP;
    END LOOP;
END $$;
-- +goose StatementEnd

-- Drops the partitions of up to max_days days that end before the given one, the oldest first, and returns the
-- number of days. A partition that is in use is left for the next call: what comes after a call that waits
-- for it would have to wait too.
-- +goose StatementBegin
CREATE FUNCTION drop_request_days(before bigint, max_days bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    dropped bigint := 0;
    suffix  text;
    name    text;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('keygate'), hashtext('request_days'));
    SET LOCAL lock_timeout = 200;
    FOR suffix IN
        SELECT DISTINCT right(c.relname, 9) FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
        WHERE i.inhparent IN ('requests'::regclass, 'requests_left_out'::regclass) AND c.relname ~ '_[0-9]{8}$'
            AND right(c.relname, 9) COLLATE "C" < request_day_name('', before)
        ORDER BY 1 LIMIT max_days
    LOOP
        FOREACH name IN ARRAY ARRAY['requests' || suffix, 'requests_left_out' || suffix] LOOP
            EXECUTE format('DROP TABLE IF EXISTS %I', name);
        END LOOP;
        dropped := dropped + 1;
    END LOOP;
    RETURN dropped;
EXCEPTION WHEN lock_not_available THEN
    RETURN 0;
END $$;
-- +goose StatementEnd

-- The rows that there are become the partition of all days up to today, or up to the last of a clock that is ahead.
-- +goose StatementBegin
DO $$
DECLARE
    today bigint := floor(extract(epoch FROM clock_timestamp()) / 86400);
    last  bigint;
    old   bigint;
    parent text;
    unit   bigint;
    key    text;
BEGIN
    last := today - 1;
    FOR parent, unit, key IN VALUES ('requests', 1000000, 'id, time'), ('requests_left_out', 1, 'second') LOOP
        -- A clock that was far ahead has left them. They would make a partition that never ends.
        EXECUTE format('DELETE FROM %I WHERE %I >= %s', parent || '_old', CASE unit WHEN 1 THEN 'second' ELSE 'time' END, (today + 8) * 86400 * unit);
        EXECUTE format('SELECT max(%I) FROM %I', CASE unit WHEN 1 THEN 'second' ELSE 'time' END, parent || '_old') INTO old;
        IF old IS NULL THEN
            EXECUTE format('DROP TABLE %I', parent || '_old');
            CONTINUE;
        END IF;
        old := greatest(today, old / (86400 * unit));
        EXECUTE format('ALTER TABLE %I ADD PRIMARY KEY (account_id, %s)', parent || '_old', key);
        EXECUTE format('ALTER TABLE %I RENAME TO %I', parent || '_old', request_day_name(parent, old));
        EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (MINVALUE) TO (%s)', parent, request_day_name(parent, old), (old + 1) * 86400 * unit);
        last := greatest(last, old);
    END LOOP;
    PERFORM add_request_days(today, greatest(today, last) + 7);
END $$;
-- +goose StatementEnd
