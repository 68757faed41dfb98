-- +goose Up

-- The deliveries of one event, newest first: its endpoints', and every redelivery.
CREATE INDEX deliveries_of_event ON deliveries (event_id, id);
