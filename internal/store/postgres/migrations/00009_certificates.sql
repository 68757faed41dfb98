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

-- Tokens of users, which command lines have in place of keys (package user). Each use is checked against the present state and
-- role of the user.
CREATE TABLE user_tokens (
    id         text   COLLATE "C" NOT NULL CONSTRAINT "user_tokens.id" PRIMARY KEY,
    account_id text   COLLATE "C" NOT NULL REFERENCES accounts (id),
    user_id    text   COLLATE "C" NOT NULL,
    digest     bytea  NOT NULL CONSTRAINT "user_tokens.digest" UNIQUE, -- SHA-256 of the token
    prefix     text   COLLATE "C" NOT NULL,
    machine    text   COLLATE "C" NOT NULL,
    address    text   COLLATE "C" NOT NULL,
    auth_time  bigint,                         -- when the user has authenticated; NULL if that is not known
    created_at bigint NOT NULL,
    expires_at bigint NOT NULL,
    used_at    bigint
) WITH (fillfactor = 80);
CREATE INDEX user_tokens_user ON user_tokens (user_id, id);
CREATE INDEX user_tokens_account ON user_tokens (account_id, id);
CREATE INDEX user_tokens_expiry ON user_tokens (expires_at);

-- Sign-ins of command lines that have no token yet.
CREATE TABLE logins (
    digest       bytea  NOT NULL CONSTRAINT "logins.digest" PRIMARY KEY, -- SHA-256 of the device code or the code
    account_id   text   COLLATE "C" NOT NULL REFERENCES accounts (id),
    user_code    text   COLLATE "C" CONSTRAINT "logins.user_code" UNIQUE, -- of a device; NULL for one through a browser
    challenge    text   COLLATE "C" NOT NULL,
    redirect_uri text   COLLATE "C" NOT NULL,
    network      text   COLLATE "C" NOT NULL,
    address      text   COLLATE "C" NOT NULL,
    machine      text   COLLATE "C" NOT NULL,
    state        text   COLLATE "C" NOT NULL,  -- pending, approved, denied
    user_id      text   COLLATE "C",           -- who has approved or denied it
    auth_time    bigint,
    pace         bigint NOT NULL,              -- microseconds between two questions of a device
    polled_at    bigint,
    created_at   bigint NOT NULL,
    expires_at   bigint NOT NULL
) WITH (fillfactor = 80);
CREATE INDEX logins_account ON logins (account_id, state, network);
CREATE INDEX logins_user ON logins (user_id, created_at);
CREATE INDEX logins_expiry ON logins (expires_at);
-- +goose StatementEnd
