-- +goose Up

-- How many keys and stored responses an account has, kept by triggers, so that their bounds are
-- cheap to check. An account that never had any may have no row.
CREATE TABLE account_counts (
    account_id     TEXT    NOT NULL PRIMARY KEY,
    keys           INTEGER NOT NULL DEFAULT 0, -- in any state
    live_keys      INTEGER NOT NULL DEFAULT 0, -- not revoked
    responses      INTEGER NOT NULL DEFAULT 0, -- in answers
    response_bytes INTEGER NOT NULL DEFAULT 0  -- of their bodies and headers
) STRICT, WITHOUT ROWID;

INSERT INTO account_counts (account_id, keys, live_keys)
SELECT account_id, count(*), count(*) FILTER (WHERE phase < 2) FROM keys INDEXED BY keys_state GROUP BY account_id;

UPDATE account_counts SET (responses, response_bytes) = (r.responses, r.bytes)
FROM (
    SELECT keys.account_id, count(*) AS responses, sum(coalesce(length(answers.body), 0) + coalesce(octet_length(answers.header), 0)) AS bytes
    FROM answers CROSS JOIN keys ON keys.id = answers.key_id GROUP BY keys.account_id
) AS r WHERE r.account_id = account_counts.account_id;

-- +goose StatementBegin
CREATE TRIGGER keys_counted AFTER INSERT ON keys BEGIN
    INSERT INTO account_counts (account_id, keys, live_keys) VALUES (new.account_id, 1, new.phase < 2)
    ON CONFLICT (account_id) DO UPDATE SET keys = keys + 1, live_keys = live_keys + excluded.live_keys;
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER keys_recounted AFTER UPDATE OF phase ON keys WHEN (old.phase < 2) <> (new.phase < 2) BEGIN
    UPDATE account_counts SET live_keys = live_keys + (new.phase < 2) - (old.phase < 2) WHERE account_id = new.account_id;
END;
-- +goose StatementEnd

-- A response belongs to the account of its key, so it does not outlive the key.
-- +goose StatementBegin
CREATE TRIGGER keys_uncounted BEFORE DELETE ON keys BEGIN
    DELETE FROM answers WHERE key_id = old.id;
    UPDATE account_counts SET keys = keys - 1, live_keys = live_keys - (old.phase < 2) WHERE account_id = old.account_id;
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER answers_counted AFTER INSERT ON answers BEGIN
    UPDATE account_counts SET responses = responses + 1,
        response_bytes = response_bytes + coalesce(length(new.body), 0) + coalesce(octet_length(new.header), 0)
    WHERE account_id = (SELECT account_id FROM keys WHERE id = new.key_id);
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER answers_recounted AFTER UPDATE OF body, header ON answers BEGIN
    UPDATE account_counts SET response_bytes = response_bytes
        + coalesce(length(new.body), 0) + coalesce(octet_length(new.header), 0)
        - coalesce(length(old.body), 0) - coalesce(octet_length(old.header), 0)
    WHERE account_id = (SELECT account_id FROM keys WHERE id = new.key_id);
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER answers_uncounted AFTER DELETE ON answers BEGIN
    UPDATE account_counts SET responses = responses - 1,
        response_bytes = response_bytes - coalesce(length(old.body), 0) - coalesce(octet_length(old.header), 0)
    WHERE account_id = (SELECT account_id FROM keys WHERE id = old.key_id);
END;
-- +goose StatementEnd
