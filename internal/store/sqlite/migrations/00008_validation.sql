-- +goose Up
-- +goose StatementBegin

-- What the requests of a gateway did otherwise than its OpenAPI document says.
CREATE TABLE validation_reports (
    gateway_id TEXT    NOT NULL PRIMARY KEY,
    account_id TEXT    NOT NULL,
    data       BLOB    NOT NULL,            -- JSON, see package validation
    updated_at INTEGER NOT NULL
) STRICT;
CREATE INDEX validation_reports_account ON validation_reports (account_id);
CREATE INDEX validation_reports_updated ON validation_reports (updated_at);
-- +goose StatementEnd
