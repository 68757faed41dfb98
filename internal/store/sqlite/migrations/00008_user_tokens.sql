-- +goose Up
-- +goose StatementBegin

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
