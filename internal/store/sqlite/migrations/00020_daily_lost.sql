-- +goose Up

-- How many of the requests in "used" have not passed, at most. An earlier version did not say: what it
-- had reserved counts as used.
ALTER TABLE daily_counts ADD COLUMN lost INTEGER NOT NULL DEFAULT 0;
