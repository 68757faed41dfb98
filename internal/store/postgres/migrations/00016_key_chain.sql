-- +goose Up

-- The keys of a chain of rotations that share its rate limit, which a change of that writes: those that ended long ago
-- are passed over, however many there are.

-- What runs meanwhile waits behind this migration while it waits for a lock: a tenth of the shortest lease at most,
-- also behind a pooler, which does not keep the settings of a session.
SELECT set_config('lock_timeout', greatest(1, least(1000, (SELECT min(ttl) FROM nodes WHERE state = 'live') / 10000000))::text, true);

CREATE INDEX keys_chain ON keys (bucket_id, expires_at) WHERE bucket_id IS NOT NULL AND phase < 2 AND NOT ended;
