-- +goose Up

-- The keys of a chain of rotations that share its rate limit, which a change of that writes: those that ended long ago
-- are passed over, however many there are.
CREATE INDEX keys_chain ON keys (bucket_id, expires_at) WHERE bucket_id IS NOT NULL AND phase < 2 AND ended = 0;
