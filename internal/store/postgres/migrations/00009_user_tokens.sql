-- +goose Up
-- +goose StatementBegin
SELECT set_config('lock_timeout', greatest(1, least(1000, (SELECT min(ttl) FROM nodes WHERE state = 'live') / 10000000))::text, true);

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
