-- +goose Up
-- +goose StatementBegin
SELECT set_config('lock_timeout', greatest(1, least(1000, (SELECT min(ttl) FROM nodes WHERE state = 'live') / 10000000))::text, true);

ALTER TABLE keys
    ADD COLUMN holder_root       text COLLATE "C",    -- the key at which the rotations by holders began that made this one; NULL for a key that an operator made
    ADD COLUMN holder_rotated_at bigint;              -- when a holder last rotated a key of the chain, up to this key
-- +goose StatementEnd
