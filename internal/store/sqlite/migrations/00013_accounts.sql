-- +goose Up

-- A deleted account leaves its row behind, with its identifier for a name: the audit log stays
-- until its retention ends. In the state deleted its other records are being removed; in the
-- state removed they are gone.
ALTER TABLE accounts ADD COLUMN state TEXT NOT NULL DEFAULT 'active'; -- active, suspended, deleted, removed
ALTER TABLE accounts ADD COLUMN version INTEGER NOT NULL DEFAULT 1;
CREATE INDEX accounts_deleted ON accounts (id) WHERE state = 'deleted';
