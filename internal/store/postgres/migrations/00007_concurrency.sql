-- +goose Up
-- +goose StatementBegin
SELECT set_config('lock_timeout', greatest(1, least(1000, (SELECT min(ttl) FROM nodes WHERE state = 'live') / 10000000))::text, true);

ALTER TABLE keys ADD COLUMN concurrency bigint; -- how many requests of the key may be in flight at once; NULL for any number
-- +goose StatementEnd
