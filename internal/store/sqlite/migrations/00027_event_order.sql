-- +goose Up

-- Lists of events are in the order of the commits, which is that of the rowids: each index ends with the rowid.
CREATE INDEX events_order      ON events (account_id)       WHERE listed = 1;
CREATE INDEX events_type_order ON events (account_id, type) WHERE listed = 1;
