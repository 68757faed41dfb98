-- +goose Up
-- +goose StatementBegin
SELECT set_config('lock_timeout', greatest(1, least(1000, (SELECT min(ttl) FROM nodes WHERE state = 'live') / 10000000))::text, true);

-- Certificates by ACME (package acme), one for each hostname of a gateway that asks for one.
CREATE TABLE certificates (
    id         text   COLLATE "C" NOT NULL CONSTRAINT "certificates.id" PRIMARY KEY,
    account_id text   COLLATE "C" NOT NULL REFERENCES accounts (id),
    gateway_id text   COLLATE "C" NOT NULL REFERENCES gateways (id),
    hostname   text   COLLATE "C" NOT NULL,
    key        bytea,                          -- encrypted
    progress   text   COLLATE "C" NOT NULL,    -- JSON object: the certificate, and what orders have come to
    due_at     bigint NOT NULL,
    created_at bigint NOT NULL,
    version    bigint NOT NULL,
    CONSTRAINT "certificates.gateway_id" UNIQUE (gateway_id)
);
CREATE INDEX certificates_list ON certificates (account_id, id);
CREATE INDEX certificates_due ON certificates (due_at);

-- New hostnames of the last week, and renewals that were asked for, for their bounds.
CREATE TABLE certificate_names (
    account_id text    COLLATE "C" NOT NULL,
    hostname   text    COLLATE "C" NOT NULL,
    renewal    boolean NOT NULL,
    at         bigint  NOT NULL,
    domain     text    COLLATE "C" NOT NULL,   -- the registered domain of the hostname
    PRIMARY KEY (account_id, hostname, renewal, at)
);
CREATE INDEX certificate_names_domain ON certificate_names (domain, at);

-- The account with each CA.
CREATE TABLE certificate_accounts (
    directory text  COLLATE "C" NOT NULL CONSTRAINT "certificate_accounts.directory" PRIMARY KEY,
    key       bytea NOT NULL,                  -- encrypted
    location  text  COLLATE "C" NOT NULL
);

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
