-- +goose Up

-- The events that have more deliveries than the transaction of the event wrote. They are written later, some in
-- each transaction. n is in the order of the commits.
CREATE TABLE fan_outs (
    n          INTEGER PRIMARY KEY AUTOINCREMENT,
    event_id   TEXT NOT NULL,
    account_id TEXT NOT NULL,
    type       TEXT NOT NULL,
    after      TEXT NOT NULL                -- the endpoint up to which deliveries are written; '' for none
) STRICT;
CREATE INDEX fan_outs_account ON fan_outs (account_id, n);

-- An event is for the endpoints that were subscribed to it when it was raised: those whose subscription began
-- after fewer fan-outs, and had not ended. since is the newest fan_outs.n when the present subscription began. Those
-- that ended are kept as long as a fan-out may need them.
ALTER TABLE webhooks ADD COLUMN since INTEGER NOT NULL DEFAULT 0;
CREATE TABLE former_subscriptions (
    n          INTEGER PRIMARY KEY,
    account_id TEXT    NOT NULL,
    webhook_id TEXT    NOT NULL,
    events     TEXT    NOT NULL,
    since      INTEGER NOT NULL,
    until      INTEGER NOT NULL             -- the newest fan_outs.n when it ended
) STRICT;
CREATE INDEX former_subscriptions_list ON former_subscriptions (account_id, webhook_id);
CREATE INDEX former_subscriptions_end  ON former_subscriptions (account_id, until);

-- +goose StatementBegin
CREATE TRIGGER webhooks_subscribe AFTER INSERT ON webhooks BEGIN
    UPDATE webhooks SET since = coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'fan_outs'), 0) WHERE id = new.id;
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER webhooks_resubscribe AFTER UPDATE OF events, active ON webhooks WHEN old.events <> new.events OR old.active <> new.active BEGIN
    INSERT INTO former_subscriptions (account_id, webhook_id, events, since, until)
    SELECT old.account_id, old.id, old.events, old.since, seq FROM sqlite_sequence
    WHERE name = 'fan_outs' AND old.active = 1 AND EXISTS (SELECT 1 FROM fan_outs WHERE account_id = old.account_id);
    UPDATE webhooks SET since = coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'fan_outs'), 0) WHERE id = new.id;
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER webhooks_unsubscribe AFTER DELETE ON webhooks WHEN old.active = 1 BEGIN
    INSERT INTO former_subscriptions (account_id, webhook_id, events, since, until)
    SELECT old.account_id, old.id, old.events, old.since, seq FROM sqlite_sequence
    WHERE name = 'fan_outs' AND EXISTS (SELECT 1 FROM fan_outs WHERE account_id = old.account_id);
END;
-- +goose StatementEnd
