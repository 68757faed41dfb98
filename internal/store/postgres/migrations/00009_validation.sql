-- +goose Up
-- +goose StatementBegin

-- What the requests of a gateway did otherwise than its OpenAPI document says.
CREATE TABLE validation_reports (
    gateway_id text   COLLATE "C" NOT NULL CONSTRAINT "validation_reports.gateway_id" PRIMARY KEY,
    account_id text   COLLATE "C" NOT NULL,
    data       bytea  NOT NULL,                -- JSON, see package validation
    updated_at bigint NOT NULL
);
CREATE INDEX validation_reports_account ON validation_reports (account_id);
CREATE INDEX validation_reports_updated ON validation_reports (updated_at);
-- +goose StatementEnd
