package traffic

import (
	"context"
	"fmt"
	"time"
)

// KeyCounts is how many requests a key has made.
type KeyCounts struct {
	Requests int64
	// Bad is how many failed at the upstream: an upstream's 5xx, or 502 or 504 of the gateway.
	Bad int64
}

// KeysQuery selects requests.
type KeysQuery struct {
	AccountID string
	Gateway   [16]byte
	Routes    map[[16]byte]struct{}
	// From and Until select requests by when they began: in the minute of From or later, and before the minute of Until.
	From, Until time.Time
}

// maxKeys is how many keys KeysOf tells apart. Further ones are left out.
const maxKeys = 250_000

// KeysOf returns the keys that made the requests of a query. Requests without a key are left out: reports do not tell
// their callers apart. Call Sync of the meter before.
func KeysOf(ctx context.Context, store ChunkReader, q *KeysQuery) (map[[16]byte]KeyCounts, error) {
	const minute = 60
	chunks := ChunkQuery{AccountID: q.AccountID, Part: Keys, Tier: Minutes, From: floor(q.From.Unix(), minute), Before: floor(q.Until.Unix(), minute)}
	keys := map[[16]byte]KeyCounts{}
	err := store.ReadTraffic(ctx, chunks, func(c *Chunk) error {
		err := rows(c.Part, c.Body, func(e *row) error {
			if e.Gateway != q.Gateway || e.Key == [16]byte{} {
				return nil
			}
			if _, is := q.Routes[e.Route]; !is {
				return nil
			}
			of, is := keys[e.Key]
			if !is && len(keys) == maxKeys {
				return nil
			}
			of.Requests += e.Requests
			of.Bad += e.UpstreamErrors
			keys[e.Key] = of
			return nil
		})
		if err != nil {
			return fmt.Errorf("read traffic chunk %d: %w", c.Seq, err)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read who made requests: %w", err)
	}
	return keys, nil
}
