-- +goose Up

-- The search index of keys: an inverted index whose documents are keys, by keys.n, and whose
-- terms are made in keyindex.go. It has no copy of the texts.
CREATE VIRTUAL TABLE key_terms USING fts5 (terms, content = '', contentless_delete = 1, detail = none, tokenize = 'ascii');

-- The keys that are not in the search index as they are now, which searches read one by one.
-- Maintenance indexes them and removes them here. A key that is backdated has a lower
-- identifier than one that was there before, so that keys.n does not order it as lists do; it
-- stays here for good.
CREATE TABLE keys_unindexed (
    account_id TEXT    NOT NULL,
    key_id     TEXT    NOT NULL,
    n          INTEGER NOT NULL,            -- keys.n
    backdated  INTEGER NOT NULL,
    PRIMARY KEY (account_id, key_id)
) STRICT, WITHOUT ROWID;

-- Maintenance indexes the keys that are already in the database, too.
INSERT INTO keys_unindexed (account_id, key_id, n, backdated)
SELECT account_id, id, n, coalesce(n > min(n) OVER (
    PARTITION BY account_id ORDER BY id DESC ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0)
FROM keys INDEXED BY keys_list ORDER BY account_id, id;

CREATE INDEX keys_to_index ON keys_unindexed (n) WHERE backdated = 0;

-- +goose StatementBegin
CREATE TRIGGER keys_inserted AFTER INSERT ON keys BEGIN
    INSERT INTO keys_unindexed (account_id, key_id, n, backdated) SELECT new.account_id, new.id, new.n,
        EXISTS (SELECT 1 FROM keys INDEXED BY keys_list WHERE account_id = new.account_id AND id > new.id);
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER keys_updated AFTER UPDATE OF name, level, phase, gateway_id, owner ON keys
WHEN old.name <> new.name OR old.level <> new.level OR old.phase <> new.phase OR old.gateway_id IS NOT new.gateway_id OR old.owner IS NOT new.owner BEGIN
    INSERT INTO keys_unindexed (account_id, key_id, n, backdated) VALUES (new.account_id, new.id, new.n, 0) ON CONFLICT DO NOTHING;
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER keys_deleted AFTER DELETE ON keys BEGIN
    DELETE FROM keys_unindexed WHERE account_id = old.account_id AND key_id = old.id;
    DELETE FROM key_terms WHERE rowid = old.n;
END;
-- +goose StatementEnd
