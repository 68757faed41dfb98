-- +goose Up

-- What is due next, whichever endpoint it is for: a claim need not ask each of the
-- endpoints for which something waits.
CREATE INDEX deliveries_next ON deliveries (due_at, webhook_id) WHERE due_at IS NOT NULL;
