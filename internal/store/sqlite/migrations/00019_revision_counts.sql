-- +goose Up

-- How many bytes the revisions of an account take, so that old ones can be removed. A revision does
-- not refer to its gateway any more: it is removed some time after that, with others, in small steps.
CREATE TABLE revisions_kept (
    id         TEXT    NOT NULL PRIMARY KEY,
    gateway_id TEXT    NOT NULL,
    number     INTEGER NOT NULL,
    source     TEXT    NOT NULL,
    kind       TEXT    NOT NULL,
    author     TEXT    NOT NULL,
    commit_id  TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    added      INTEGER NOT NULL,
    removed    INTEGER NOT NULL,
    changed    INTEGER NOT NULL,
    bytes      INTEGER NOT NULL,            -- of this row and the parts
    content    BLOB    NOT NULL,            -- packed, see pack.go; empty if it is in parts
    routes     BLOB    NOT NULL,            -- JSON array, packed; empty if it is in parts
    UNIQUE (gateway_id, number)
) STRICT;

INSERT INTO revisions_kept
SELECT id, gateway_id, number, source, kind, author, commit_id, created_at, added, removed, changed,
    512 + length(content) + length(routes) + coalesce((SELECT sum(length(p.content)) FROM revision_parts p WHERE p.revision_id = r.id), 0),
    content, routes
FROM revisions r ORDER BY gateway_id, number;

DROP TABLE revisions;
ALTER TABLE revisions_kept RENAME TO revisions;

-- +goose StatementBegin
CREATE TRIGGER revisions_deleted AFTER DELETE ON revisions BEGIN
    INSERT OR IGNORE INTO revisions_gone VALUES (old.id);
END;
-- +goose StatementEnd

-- The revisions of each gateway that has any, kept by triggers.
CREATE TABLE revision_counts (
    gateway_id   TEXT    NOT NULL PRIMARY KEY,
    account_id   TEXT    NOT NULL,
    revisions    INTEGER NOT NULL,
    newest       INTEGER NOT NULL,           -- number of the newest
    newest_bytes INTEGER NOT NULL,
    older_bytes  INTEGER NOT NULL,           -- of all but the newest
    oldest_at    INTEGER NOT NULL,           -- when the oldest was created
    gone         INTEGER NOT NULL DEFAULT 0  -- 1: the gateway is deleted, and the revisions are to be removed
) STRICT, WITHOUT ROWID;
CREATE INDEX revision_counts_older ON revision_counts (account_id, older_bytes);
CREATE INDEX revision_counts_oldest ON revision_counts (revisions, oldest_at);
CREATE INDEX revision_counts_gone ON revision_counts (gone) WHERE gone = 1;

INSERT INTO revision_counts (gateway_id, account_id, revisions, newest, newest_bytes, older_bytes, oldest_at)
SELECT r.gateway_id, g.account_id, r.revisions, r.newest, n.bytes, r.bytes - n.bytes, o.created_at
FROM (SELECT gateway_id, count(*) AS revisions, max(number) AS newest, min(number) AS oldest, sum(bytes) AS bytes FROM revisions GROUP BY gateway_id) AS r
JOIN gateways g ON g.id = r.gateway_id
JOIN revisions n ON n.gateway_id = r.gateway_id AND n.number = r.newest
JOIN revisions o ON o.gateway_id = r.gateway_id AND o.number = r.oldest;

ALTER TABLE account_counts ADD COLUMN revision_bytes INTEGER NOT NULL DEFAULT 0;
INSERT INTO account_counts (account_id, revision_bytes)
SELECT account_id, sum(newest_bytes + older_bytes) FROM revision_counts WHERE true GROUP BY account_id
ON CONFLICT (account_id) DO UPDATE SET revision_bytes = excluded.revision_bytes;
CREATE INDEX account_counts_revisions ON account_counts (revision_bytes);

-- +goose StatementBegin
CREATE TRIGGER revisions_counted AFTER INSERT ON revisions BEGIN
    INSERT INTO revision_counts (gateway_id, account_id, revisions, newest, newest_bytes, older_bytes, oldest_at)
    VALUES (new.gateway_id, (SELECT account_id FROM gateways WHERE id = new.gateway_id), 1, new.number, new.bytes, 0, new.created_at)
    ON CONFLICT (gateway_id) DO UPDATE SET revisions = revisions + 1, newest = excluded.newest,
        newest_bytes = excluded.newest_bytes, older_bytes = older_bytes + newest_bytes;
    INSERT INTO account_counts (account_id, revision_bytes)
    VALUES ((SELECT account_id FROM revision_counts WHERE gateway_id = new.gateway_id), new.bytes)
    ON CONFLICT (account_id) DO UPDATE SET revision_bytes = revision_bytes + excluded.revision_bytes;
END;
-- +goose StatementEnd

-- The newest revision is removed only with all others, after its gateway.
-- +goose StatementBegin
CREATE TRIGGER revisions_uncounted AFTER DELETE ON revisions BEGIN
    UPDATE account_counts SET revision_bytes = revision_bytes - old.bytes
    WHERE account_id = (SELECT account_id FROM revision_counts WHERE gateway_id = old.gateway_id);
    UPDATE revision_counts SET revisions = revisions - 1,
        newest_bytes = iif(newest = old.number, 0, newest_bytes),
        older_bytes = older_bytes - iif(newest = old.number, 0, old.bytes),
        oldest_at = coalesce((SELECT created_at FROM revisions WHERE gateway_id = old.gateway_id ORDER BY number LIMIT 1), 0)
    WHERE gateway_id = old.gateway_id;
    DELETE FROM revision_counts WHERE gateway_id = old.gateway_id AND revisions = 0;
END;
-- +goose StatementEnd
