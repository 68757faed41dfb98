-- +goose Up

-- In the order of changes, which hold the head first.
LOCK TABLE change_head IN ACCESS EXCLUSIVE MODE;

-- The digest of the key that an entry revokes, so that nodes can refuse the key without reading it.
ALTER TABLE changes ADD COLUMN revoked bytea;

-- The format that a node must read to put an entry in force. The head has the newest one ever written, also
-- after the entry was trimmed: a node that does not read it must not join.
ALTER TABLE changes ADD COLUMN format int NOT NULL DEFAULT 1;
ALTER TABLE change_head ADD COLUMN format int NOT NULL DEFAULT 1;
ALTER TABLE nodes ADD COLUMN format int NOT NULL DEFAULT 1; -- the newest one that the node reads

-- The oldest schema whose binaries may start on this database. A migration that an older binary cannot live with
-- sets it to its own number. Binaries that run already go on.
CREATE TABLE schema_support (
    oldest  bigint NOT NULL,
    version text   COLLATE "C" NOT NULL         -- of the binary that has migrated the database; '' if unknown
);
INSERT INTO schema_support VALUES (4, '');
