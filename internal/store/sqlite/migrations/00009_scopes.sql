-- +goose Up

-- The scopes of a key after the first, as users write them; NULL if there are none. The
-- columns word and resource hold the first one.
ALTER TABLE keys ADD COLUMN more_scopes TEXT;
