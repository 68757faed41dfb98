-- +goose Up

-- The digest of the key that an entry revokes, so that nodes can refuse the key without reading it.
ALTER TABLE changes ADD COLUMN revoked bytea;
