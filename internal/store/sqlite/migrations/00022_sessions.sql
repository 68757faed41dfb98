-- +goose Up

-- The sessions of browsers. The value of the cookie is not stored. Each use is checked against the
-- present state of the key, so a session ends with its key whether its row is removed or not.
CREATE TABLE sessions (
    digest     BLOB    NOT NULL PRIMARY KEY, -- SHA-256 of the value of the cookie
    account_id TEXT    NOT NULL REFERENCES accounts (id),
    key_id     TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX sessions_key ON sessions (key_id, created_at);
CREATE INDEX sessions_account ON sessions (account_id, created_at);
CREATE INDEX sessions_expiry ON sessions (expires_at);
