-- +goose Up

-- Keys that a rotation without overlap has ended: they have expired, whatever a clock shows. That key.expired was
-- raised does not say so: a clock that was ahead may have raised it.

-- What runs meanwhile waits behind this migration while it waits for a lock: a tenth of the shortest lease at most,
-- also behind a pooler, which does not keep the settings of a session.
SELECT set_config('lock_timeout', greatest(1, least(1000, (SELECT min(ttl) FROM nodes WHERE state = 'live') / 10000000))::text, true);

ALTER TABLE keys ADD COLUMN ended boolean NOT NULL DEFAULT false;
UPDATE keys SET ended = true WHERE rotated_to IS NOT NULL AND expiry_told = expires_at AND phase < 2;
