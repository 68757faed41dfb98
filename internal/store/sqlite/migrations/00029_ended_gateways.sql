-- +goose Up

-- Deleted gateways whose keys are not all revoked yet, or whose routes are not all in the audit log. Whatever reads
-- keys takes those restricted to such a gateway for revoked when it was deleted.
CREATE TABLE ended_gateways (
    id         TEXT    NOT NULL PRIMARY KEY,
    account_id TEXT    NOT NULL,
    table_id   INTEGER NOT NULL,            -- of its routes; 0 for none
    after      TEXT    NOT NULL,            -- the route up to which they are in the audit log; '' for none
    at         INTEGER NOT NULL,            -- when it was deleted
    call       TEXT    NOT NULL             -- that deleted it: JSON object
) STRICT;
CREATE INDEX ended_gateways_account ON ended_gateways (account_id);
