-- +goose Up

-- The readings of the clock of retention, as JSON (package retention).
CREATE TABLE retention (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    state TEXT NOT NULL
) STRICT;
