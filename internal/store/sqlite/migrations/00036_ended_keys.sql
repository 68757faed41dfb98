-- +goose Up

-- Keys that a rotation without overlap has ended: they have expired, whatever a clock shows. That key.expired was
-- raised does not say so: a clock that was ahead may have raised it.
ALTER TABLE keys ADD COLUMN ended INTEGER NOT NULL DEFAULT 0 CHECK (ended IN (0, 1));
UPDATE keys SET ended = 1 WHERE rotated_to IS NOT NULL AND expiry_told = expires_at AND phase < 2;
