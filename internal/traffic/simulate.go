package traffic

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/ratelimit"
)

// What names the limit to simulate, and the requests of a gateway on which to simulate it.
type What struct {
	// Gateway, and Route or Key if the limit is for one, select the requests that
	// the limit applies to. Zero fields do not filter.
	Flow
	Limit ratelimit.Config
	// Buckets has the bucket of each key that shares its bucket with another key, for example after
	// a rotation.
	Buckets map[[16]byte][16]byte
}

// Simulated is the result of a simulation.
type Simulated struct {
	Requests, Refused int64
	Keys              []SimulatedKey // the most refused first
}

// SimulatedKey is a key with at least one refused request.
type SimulatedKey struct {
	KeyID   string // "" for requests without a key
	Refused int64
	FirstAt time.Time // the second of the first refusal
}

// Simulate replays the requests of the last 24 hours that reached the limits of a gateway
// through a limit whose bucket is full at the start.
//
// Only the second of each request is stored. The requests of one second are replayed evenly spread
// over it, which moves each by less than a second. Therefore the number of admitted requests lies
// between two numbers: what the limit would really have admitted with a burst that is smaller by
// the refill of two seconds, and with a burst that is larger by it.
func Simulate(ctx context.Context, store ChunkReader, accountID string, w What, now time.Time) (*Simulated, error) {
	r := &replay{What: w, limit: ratelimit.NewReplay(w.Limit), numbers: map[[16]byte]uint32{}, begin: now.Add(-SecondsKept).Unix()}
	q := ChunkQuery{AccountID: accountID, Part: Seconds, Tier: Minutes, From: floor(r.begin, 60), Before: now.Unix() + 1, Only: &w.Gateway}
	err := store.ReadTraffic(ctx, q, func(c *Chunk) error {
		if c.Start != r.minute {
			r.play()
			r.minute = c.Start
		}
		if err := arrivals(c.Body, r.of); err != nil {
			return fmt.Errorf("read traffic chunk %d: %w", c.Seq, err)
		}
		return ctx.Err()
	})
	if err != nil {
		return nil, err
	}
	r.play()
	return r.result(), nil
}

// replay is the state of a simulation. Keys are numbered in the order of their first
// request.
type replay struct {
	What
	limit    *ratelimit.Replay
	begin    int64 // Unix second of the earliest request
	minute   int64 // Unix second of the start of the minute of points
	points   []point
	numbers  map[[16]byte]uint32
	keys     []replayedKey
	requests int64
	counts   []int64 // of the points of a second
	second   second
}

type replayedKey struct {
	key, bucket [16]byte
	refused     int64
	first       int64 // Unix second
}

// point is the requests of one key in one second.
type point struct {
	second uint32
	key    uint32
	count  uint32
}

// of returns the function for a flow's requests, or nil if the limit does not apply to
// them.
func (r *replay) of(c *Flow) func(int, uint32) {
	var none [16]byte
	if c.Gateway != r.Gateway || r.Route != none && c.Route != r.Route {
		return nil
	}
	bucket := r.bucket(c.Key)
	if r.Key != none && bucket != r.bucket(r.Key) {
		return nil
	}
	number, known := r.numbers[c.Key]
	if !known {
		number = uint32(len(r.keys))
		r.numbers[c.Key] = number
		r.keys = append(r.keys, replayedKey{key: c.Key, bucket: bucket})
	}
	return func(second int, n uint32) {
		if n > 0 && r.minute+int64(second) >= r.begin {
			r.points = append(r.points, point{second: uint32(second), key: number, count: n})
		}
	}
}

func (r *replay) bucket(key [16]byte) [16]byte {
	if b, shared := r.Buckets[key]; shared {
		return b
	}
	return key
}

// play replays the points of the minute.
func (r *replay) play() {
	perKey := r.Limit.Per == ratelimit.PerKey
	slices.SortFunc(r.points, func(a, b point) int {
		order := cmp.Compare(a.second, b.second)
		if perKey {
			order = cmp.Or(order, bytes.Compare(r.keys[a.key].bucket[:], r.keys[b.key].bucket[:]))
		}
		return cmp.Or(order, cmp.Compare(a.key, b.key))
	})
	for rest := r.points; len(rest) > 0; {
		n := 1
		for n < len(rest) && rest[n].second == rest[0].second && (!perKey || r.keys[rest[n].key].bucket == r.keys[rest[0].key].bucket) {
			n++
		}
		r.playTogether(rest[:n])
		rest = rest[n:]
	}
	r.points = r.points[:0]
}

// playTogether replays the requests of one second that share a bucket.
func (r *replay) playTogether(points []point) {
	at := r.minute + int64(points[0].second)
	r.counts = r.counts[:0]
	for _, p := range points {
		r.counts = append(r.counts, int64(p.count))
		r.requests += int64(p.count)
	}
	refused := r.second.play(r.limit, at, at-r.begin, r.keys[points[0].key].bucket, r.counts)
	for i, n := range refused {
		if n == 0 {
			continue
		}
		k := &r.keys[points[i].key]
		if k.refused == 0 {
			k.first = at
		}
		k.refused += n
	}
}

func (r *replay) result() *Simulated {
	out := &Simulated{Requests: r.requests}
	for _, k := range r.keys {
		if k.refused == 0 {
			continue
		}
		out.Refused += k.refused
		s := SimulatedKey{Refused: k.refused, FirstAt: time.Unix(k.first, 0).UTC()}
		if k.key != ([16]byte{}) {
			s.KeyID = id.Format(id.Key, k.key)
		}
		out.Keys = append(out.Keys, s)
	}
	sortRefused(out.Keys)
	return out
}
