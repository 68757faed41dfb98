-- +goose Up

-- How a gateway reads requests: a JSON object without the settings that have their default.
ALTER TABLE gateways ADD COLUMN requests TEXT NOT NULL DEFAULT '{}';
