-- +goose Up

-- The version of Keygate that has migrated the database to a schema, which an older one names when it
-- refuses the database. It says nothing of another schema than that.
CREATE TABLE schema_support (
    schema  INTEGER NOT NULL,
    version TEXT    NOT NULL                -- '' if unknown
) STRICT;
INSERT INTO schema_support VALUES (0, '');
