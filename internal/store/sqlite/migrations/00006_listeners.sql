-- +goose Up

-- Who asked for what: an event steps through the lists of types that there are, and
-- not through all endpoints of its account.
CREATE INDEX webhooks_listeners ON webhooks (account_id, events, id) WHERE active = 1;
