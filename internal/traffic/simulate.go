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

// What is the limit to simulate, and the requests of a gateway to simulate it on.
type What struct {
	// Gateway, and Route or Key if the limit is for one, select the requests that
	// the limit applies to. Zero fields do not filter.
	Caller
	Limit ratelimit.Config
	// Buckets has the bucket of each key that shares that of another key, for
	// example after a rotation.
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
// Only the second of each request is stored. The requests of one second are replayed
// evenly spread over it, which moves each by less than a second. Therefore the number of
// admitted requests is between those that the limit would really have admitted with a
// burst that is smaller, and larger, by the refill of two seconds.
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

// of returns the function for a caller's requests, or nil if the limit does not apply to
// them.
func (r *replay) of(c *Caller) func(int, uint32) {
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
		next := all // the next one that may be admitted; those between are refused
		if wait < int64(time.Second) {
			next = min(all, max(i+1, ((offset+wait)*all+int64(time.Second)-1)/int64(time.Second)))
		}
		refused.add(i, next)
		i = next - 1
	}
	r.blame(points, all, at, refused)
}

// spans is an ordered list of ranges of numbers.
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

// others returns the numbers from 0 up to all that are not in s.
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

// blame assigns the refused requests to their keys. Request i of the second is request
// i×stride mod all in the order of points, which mixes the keys evenly. It iterates over
// the refused or the admitted requests, whichever are fewer.
func (r *replay) blame(points []point, all, at int64, refused spans) {
	admitted := refused.others(all)
	fewer, step := &refused, int64(1)
	counts := make([]int64, len(points))
	if admitted.total < refused.total {
		fewer, step = &admitted, -1
		for i, p := range points {
			counts[i] = int64(p.count)
		}
	}
	if len(points) == 1 {
		counts[0] = refused.total
	} else {
		ends := make([]int64, len(points)) // index after the last request of each point
		sum := int64(0)
		for i, p := range points {
			sum += int64(p.count)
			ends[i] = sum
		}
		stride := strideOf(all)
		for _, span := range fewer.list {
			for i := span[0]; i < span[1]; i++ {
				number := i * stride % all
				counts[sort.Search(len(ends), func(k int) bool { return ends[k] > number })] += step
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

// strideOf returns a number near 0.618 n that is coprime to n.
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
