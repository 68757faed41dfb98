-- +goose Up
-- +goose StatementBegin

-- The key at which the rotations by holders began that made this one; NULL for a key that an operator made.
ALTER TABLE keys ADD COLUMN holder_root TEXT;
-- When a holder last rotated a key of the chain, up to this key.
ALTER TABLE keys ADD COLUMN holder_rotated_at INTEGER;
-- +goose StatementEnd
