-- +goose Up

-- The number of routes of each gateway, so that the bound for an account is cheap to check.
ALTER TABLE gateways ADD COLUMN route_count INTEGER NOT NULL DEFAULT 0;
UPDATE gateways SET route_count = (SELECT count(*) FROM routes WHERE gateway_id = gateways.id);
CREATE INDEX gateways_routes ON gateways (account_id, route_count);
