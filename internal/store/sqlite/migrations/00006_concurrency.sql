-- +goose Up
-- +goose StatementBegin

-- How many requests of the key may be in flight at once; NULL for any number.
ALTER TABLE keys ADD COLUMN concurrency INTEGER;
-- +goose StatementEnd
