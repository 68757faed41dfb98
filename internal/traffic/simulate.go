package traffic

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"sort"
	"time"

	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/ratelimit"
)

// What asks what a limit would have done to the requests of a gateway.
type What struct {
	// Gateway, and Route or Key if the limit is of one: what the limit would
	// have applied to. Zero members do not filter.
	Caller
	Limit ratelimit.Config
	// Buckets names the bucket of each key that shares another one's, as after
	// a rotation.
	Buckets map[[16]byte][16]byte
}

// Simulated is what the limit would have done.
type Simulated struct {
	Requests, Refused int64
	Keys              []SimulatedKey // the most refused first
}

// SimulatedKey is a key that was refused at least once.
type SimulatedKey struct {
	KeyID   string // "" for callers without one
	Refused int64
	FirstAt time.Time // the second of the first refusal
}

// Simulate replays what came to the limits of a gateway within the last 24 hours
// through a limit that was full at their beginning.
//
// Only the second of a request is recorded. Those of one second are taken to have come
// evenly spread over it, which moves each by less than a second. So the limit admits
// no fewer of them than it would have admitted of the requests as they came
// if its burst were smaller by what two seconds refill, and no more than if it were greater by that.
func Simulate(ctx context.Context, store ChunkReader, accountID string, w What, now time.Time) (*Simulated, error) {
	r := &replay{What: w, limit: ratelimit.NewReplay(w.Limit), places: map[[16]byte]uint32{}, begin: now.Add(-SecondsKept).Unix()}
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

// replay is a simulation under way. Keys have numbers, in the order of their coming.
type replay struct {
	What
	limit    *ratelimit.Replay
	begin    int64 // the Unix second from which on requests count
	minute   int64 // the Unix second at which the minute begins that points are of
	points   []point
	places   map[[16]byte]uint32
	keys     []replayedKey
	requests int64
}

type replayedKey struct {
	key, bucket [16]byte
	refused     int64
	first       int64 // Unix second
}

// point is requests of one key in one second.
type point struct {
	second uint32
	key    uint32
	count  uint32
}

// of returns what takes a caller's requests, nil if the limit is not theirs.
func (r *replay) of(c *Caller) func(int, uint32) {
	var none [16]byte
	if c.Gateway != r.Gateway || r.Route != none && c.Route != r.Route {
		return nil
	}
	bucket := r.bucket(c.Key)
	if r.Key != none && bucket != r.bucket(r.Key) {
		return nil
	}
	place, known := r.places[c.Key]
	if !known {
		place = uint32(len(r.keys))
		r.places[c.Key] = place
		r.keys = append(r.keys, replayedKey{key: c.Key, bucket: bucket})
	}
	return func(second int, n uint32) {
		if n > 0 && r.minute+int64(second) >= r.begin {
			r.points = append(r.points, point{second: uint32(second), key: place, count: n})
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

// playTogether replays requests of one second that share a bucket.
func (r *replay) playTogether(points []point) {
	at := r.minute + int64(points[0].second)
	now := ratelimit.Instant{Wall: at * int64(time.Second), Mono: (at - r.begin) * int64(time.Second)}
	bucket, all := r.keys[points[0].key].bucket, int64(0)
	for _, p := range points {
		all += int64(p.count)
	}
	r.requests += all
	if r.limit.AdmitAll(now, all, int64(time.Second), bucket) {
		return
	}
	var refused spans
	for i := int64(0); i < all; i++ {
		offset := i * int64(time.Second) / all
		one := ratelimit.Instant{Wall: now.Wall + offset, Mono: now.Mono + offset}
		wait := r.limit.Wait(one, bucket)
		if wait == 0 && r.limit.Admit(one, bucket) {
			continue
		}
		next := all // the next that may be admitted; those between are refused
		if wait < int64(time.Second) {
			next = min(all, max(i+1, ((offset+wait)*all+int64(time.Second)-1)/int64(time.Second)))
		}
		refused.add(i, next)
		i = next - 1
	}
	r.blame(points, all, at, refused)
}

// spans is ranges of numbers, in order.
type spans struct {
	list  [][2]int64
	total int64
}

func (s *spans) add(from, to int64) {
	s.total += to - from
	if last := len(s.list) - 1; last >= 0 && s.list[last][1] == from {
		s.list[last][1] = to
		return
	}
	s.list = append(s.list, [2]int64{from, to})
}

// others returns the ranges between those of s, up to all.
func (s *spans) others(all int64) (o spans) {
	from := int64(0)
	for _, r := range s.list {
		if r[0] > from {
			o.add(from, r[0])
		}
		from = r[1]
	}
	if from < all {
		o.add(from, all)
	}
	return o
}

// blame tells the keys which of their requests were refused. The i-th request of the
// second is the (i×stride mod all)-th in the order of points, which mixes the keys
// evenly. The shorter of what was refused and what was admitted is gone through.
func (r *replay) blame(points []point, all, at int64, refused spans) {
	admitted := refused.others(all)
	gone, step := &refused, int64(1)
	counts := make([]int64, len(points))
	if admitted.total < refused.total {
		gone, step = &admitted, -1
		for i, p := range points {
			counts[i] = int64(p.count)
		}
	}
	if len(points) == 1 {
		counts[0] = refused.total
	} else {
		ends := make([]int64, len(points)) // of the requests of each point
		sum := int64(0)
		for i, p := range points {
			sum += int64(p.count)
			ends[i] = sum
		}
		stride := strideOf(all)
		for _, span := range gone.list {
			for i := span[0]; i < span[1]; i++ {
				place := i * stride % all
				counts[sort.Search(len(ends), func(k int) bool { return ends[k] > place })] += step
			}
		}
	}
	for i, p := range points {
		if counts[i] == 0 {
			continue
		}
		k := &r.keys[p.key]
		if k.refused == 0 {
			k.first = at
		}
		k.refused += counts[i]
	}
}

// strideOf returns a number near 0.618 n without a divisor in common with n.
func strideOf(n int64) int64 {
	s := max(1, n*618/1000)
	for gcd(s, n) != 1 {
		s++
	}
	return s
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
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
	slices.SortFunc(out.Keys, func(a, b SimulatedKey) int {
		return cmp.Or(cmp.Compare(b.Refused, a.Refused), cmp.Compare(a.KeyID, b.KeyID))
	})
	return out
}
