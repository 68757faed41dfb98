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

-- Tokens of users, which command lines have in place of keys (package user). Each use is checked against the present state and
-- role of the user.
CREATE TABLE user_tokens (
    id         TEXT    NOT NULL PRIMARY KEY,
    account_id TEXT    NOT NULL REFERENCES accounts (id),
    user_id    TEXT    NOT NULL,
    digest     BLOB    NOT NULL,            -- SHA-256 of the token
    prefix     TEXT    NOT NULL,
    machine    TEXT    NOT NULL,
    address    TEXT    NOT NULL,
    auth_time  INTEGER,                     -- when the user has authenticated; NULL if that is not known
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    used_at    INTEGER
) STRICT;
CREATE UNIQUE INDEX user_tokens_digest ON user_tokens (digest);
CREATE INDEX user_tokens_user ON user_tokens (user_id, id);
CREATE INDEX user_tokens_account ON user_tokens (account_id, id);
CREATE INDEX user_tokens_expiry ON user_tokens (expires_at);

-- Sign-ins of command lines that have no token yet.
CREATE TABLE logins (
    digest       BLOB    NOT NULL PRIMARY KEY, -- SHA-256 of the device code or the code
    account_id   TEXT    NOT NULL REFERENCES accounts (id),
    user_code    TEXT,                         -- of a device; NULL for one through a browser
    challenge    TEXT    NOT NULL,
    redirect_uri TEXT    NOT NULL,
    network      TEXT    NOT NULL,
    address      TEXT    NOT NULL,
    machine      TEXT    NOT NULL,
    state        TEXT    NOT NULL,             -- pending, approved, denied
    user_id      TEXT,                         -- who has approved or denied it
    auth_time    INTEGER,
    pace         INTEGER NOT NULL,             -- microseconds between two questions of a device
    polled_at    INTEGER,
    created_at   INTEGER NOT NULL,
    expires_at   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX logins_user_code ON logins (user_code);
CREATE INDEX logins_account ON logins (account_id, state, network);
CREATE INDEX logins_user ON logins (user_id, created_at);
CREATE INDEX logins_expiry ON logins (expires_at);
-- +goose StatementEnd
