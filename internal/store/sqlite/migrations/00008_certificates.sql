-- +goose Up
-- +goose StatementBegin

-- Certificates by ACME (package acme), one for each hostname of a gateway that asks for one.
CREATE TABLE certificates (
    id         TEXT    NOT NULL PRIMARY KEY,
    account_id TEXT    NOT NULL REFERENCES accounts (id),
    gateway_id TEXT    NOT NULL REFERENCES gateways (id),
    hostname   TEXT    NOT NULL,
    key        BLOB,                        -- encrypted
    progress   TEXT    NOT NULL,            -- JSON object: the certificate, and what orders have come to
    due_at     INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    version    INTEGER NOT NULL
) STRICT;
CREATE INDEX certificates_list ON certificates (account_id, id);
CREATE UNIQUE INDEX certificates_gateway ON certificates (gateway_id);
CREATE INDEX certificates_due ON certificates (due_at);

-- New hostnames of the last week, and renewals that were asked for, for their bounds.
CREATE TABLE certificate_names (
    account_id TEXT    NOT NULL,
    hostname   TEXT    NOT NULL,
    renewal    INTEGER NOT NULL,
    at         INTEGER NOT NULL,
    domain     TEXT    NOT NULL,            -- the registered domain of the hostname
    PRIMARY KEY (account_id, hostname, renewal, at)
) STRICT, WITHOUT ROWID;
CREATE INDEX certificate_names_domain ON certificate_names (domain, at);

-- The account with each CA.
CREATE TABLE certificate_accounts (
    directory TEXT NOT NULL PRIMARY KEY,
    key       BLOB NOT NULL,                -- encrypted
    location  TEXT NOT NULL
) STRICT, WITHOUT ROWID;

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
