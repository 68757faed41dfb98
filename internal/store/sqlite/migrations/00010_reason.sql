-- +goose Up

-- Why an upstream could not be reached (accesslog.Reason), and the text of that error.
ALTER TABLE requests ADD COLUMN reason INTEGER NOT NULL DEFAULT 0;
ALTER TABLE requests ADD COLUMN detail TEXT NOT NULL DEFAULT '';
