-- +goose Up

-- What runs meanwhile waits behind this migration while it waits for a lock: a tenth of the shortest lease at most,
-- also behind a pooler, which does not keep the settings of a session.
SELECT set_config('lock_timeout', greatest(1, least(1000, (SELECT min(ttl) FROM nodes WHERE state = 'live') / 10000000))::text, true);

LOCK TABLE webhooks IN ACCESS EXCLUSIVE MODE;

-- The events that have more deliveries than the transaction of the event wrote. They are written later, some in
-- each transaction. Older nodes write all deliveries of an event at once, and nothing here.
CREATE TABLE fan_outs (
    n          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    event_id   text   COLLATE "C" NOT NULL,
    account_id text   COLLATE "C" NOT NULL,
    type       text   COLLATE "C" NOT NULL,
    after      text   COLLATE "C" NOT NULL   -- the endpoint up to which deliveries are written; '' for none
);
CREATE INDEX fan_outs_account ON fan_outs (account_id, n);
-- The last value of a sequence that was never used is one that it has not given out.
SELECT nextval(pg_get_serial_sequence('fan_outs', 'n'));

-- An event is for the endpoints that were subscribed to it when it was raised: those whose subscription began
-- after fewer numbers of fan-outs were given out, and had not ended. since is the last number given out when the
-- present subscription began. Those that ended are kept as long as a fan-out may need them, also one that is not
-- committed yet. Triggers write them, because endpoints are changed by older nodes too.
ALTER TABLE webhooks ADD COLUMN since bigint NOT NULL DEFAULT 0;
CREATE TABLE former_subscriptions (
    n          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    account_id text   COLLATE "C" NOT NULL,
    webhook_id text   COLLATE "C" NOT NULL,
    events     text   COLLATE "C" NOT NULL,
    since      bigint NOT NULL,
    until      bigint NOT NULL,              -- the last number given out when it ended
    ended      timestamptz DEFAULT clock_timestamp()
);
CREATE INDEX former_subscriptions_list ON former_subscriptions (account_id, webhook_id);
CREATE INDEX former_subscriptions_end  ON former_subscriptions (account_id, ended);

-- +goose StatementBegin
CREATE FUNCTION begin_subscription() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    SELECT last_value INTO STRICT new.since FROM fan_outs_n_seq;
    RETURN new;
END
$$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE FUNCTION end_subscription() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF old.active THEN
        INSERT INTO former_subscriptions (account_id, webhook_id, events, since, until)
        SELECT old.account_id, old.id, old.events, old.since, last_value FROM fan_outs_n_seq;
    END IF;
    RETURN NULL;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER webhooks_subscribe BEFORE INSERT ON webhooks FOR EACH ROW EXECUTE FUNCTION begin_subscription();
CREATE TRIGGER webhooks_resubscribe BEFORE UPDATE OF events, active ON webhooks FOR EACH ROW
    WHEN (old.events <> new.events OR old.active <> new.active) EXECUTE FUNCTION begin_subscription();
CREATE TRIGGER webhooks_end_former AFTER UPDATE OF events, active ON webhooks FOR EACH ROW
    WHEN (old.events <> new.events OR old.active <> new.active) EXECUTE FUNCTION end_subscription();
CREATE TRIGGER webhooks_unsubscribe AFTER DELETE ON webhooks FOR EACH ROW EXECUTE FUNCTION end_subscription();
