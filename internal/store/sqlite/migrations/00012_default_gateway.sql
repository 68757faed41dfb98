-- +goose Up

-- The default gateway, which unknown hosts reach: at most one of all, and of the account
-- default. In a database from before, it is the oldest.
ALTER TABLE gateways ADD COLUMN is_default INTEGER NOT NULL DEFAULT 0;
UPDATE gateways SET is_default = 1 WHERE id = (
    SELECT g.id FROM gateways g JOIN accounts a ON a.id = g.account_id
    WHERE a.name = 'default' ORDER BY g.created_at, g.id LIMIT 1);
CREATE UNIQUE INDEX gateways_default ON gateways (is_default) WHERE is_default = 1;
