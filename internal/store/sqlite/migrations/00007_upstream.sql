-- +goose Up

-- What a gateway's connections to its upstream are made of. An empty text and 0 stand
-- for what is not set.
ALTER TABLE gateways ADD COLUMN upstream_client_certificate TEXT NOT NULL DEFAULT ''; -- PEM
ALTER TABLE gateways ADD COLUMN upstream_client_key BLOB;                             -- PEM, sealed
ALTER TABLE gateways ADD COLUMN upstream_connect_timeout TEXT NOT NULL DEFAULT '';
ALTER TABLE gateways ADD COLUMN upstream_idle_timeout TEXT NOT NULL DEFAULT '';
ALTER TABLE gateways ADD COLUMN upstream_max_connections INTEGER NOT NULL DEFAULT 0;
