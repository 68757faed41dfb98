-- +goose Up

-- What each process has claimed of a daily cap. daily_counts has the sums, and what was counted
-- before there were claims.
CREATE TABLE daily_claims (
    day      INTEGER NOT NULL,              -- UTC days since 1970
    limit_id TEXT    NOT NULL,
    key_id   TEXT    NOT NULL,
    node     TEXT    NOT NULL,              -- name of the process
    used     INTEGER NOT NULL,
    lost     INTEGER NOT NULL,              -- how many of these have not passed, at most
    PRIMARY KEY (day, limit_id, key_id, node)
) STRICT, WITHOUT ROWID;
