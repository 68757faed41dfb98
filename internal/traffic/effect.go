package traffic

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/ratelimit"
)

// The bounds of the memory of Effect, which takes about 200 MB at worst. Beyond one of them its error
// is fault.ValidationFailed with the field effect.
const (
	maxEffectKeys    = 1 << 20 // keys that used the routes
	maxEffectPairs   = 1 << 21 // pairs of a route and a key
	maxEffectBuckets = 1 << 20 // buckets of limits with per: key
	maxEffectPoints  = 1 << 21 // triples of a second, a route and a key, within one minute
)

// Side is one of the two configurations that Effect compares.
type Side int

// The sides.
const (
	Before Side = iota
	After
	sides
)

// Change is a change of a gateway's routes and limits.
type Change struct {
	Gateway [16]byte
	Routes  []ChangedRoute
	Limits  []ratelimit.Config // of routes; see ChangedRoute.Limits
	// Global are the global limits. If they are equal, neither is replayed. Otherwise Routes must
	// have every route of the gateway.
	Global [sides]ratelimit.Config
	// Buckets has the bucket of each key that shares its bucket with another key.
	Buckets map[[16]byte][16]byte
}

// ChangedRoute is a route that is in force, and what becomes of its requests.
type ChangedRoute struct {
	ID [16]byte
	// Limits are the limits that each request has to pass, by their indexes in Change.Limits. No
	// index may be on both sides. After a change there may be several, if a request can come to one
	// of several routes: no more requests pass all of their limits than would pass the limits of
	// the routes that they come to.
	Limits [sides][]int32
	// Lost is set if the change would refuse every request before any limit is checked.
	Lost bool
	// LostMethods are the methods whose requests it would refuse for that reason, unless these are all
	// methods; see MethodID.
	LostMethods [][16]byte
	// Keyless is set if callers need no key after the change, and so share one bucket.
	Keyless bool
}

// Effect is what a change would have done to recorded requests.
type Effect struct {
	Since  time.Time
	Routes []RouteEffect // of the Change, in its order

	pairs pairSet
	keys  int // numbers of keys are below it
}

// RouteEffect is the requests of one route.
type RouteEffect struct {
	Requests int64 // as in the traffic report
	Keys     int64 // distinct ones
	// Refused is how many of the requests each side refuses: as lost, or by a limit.
	Refused [sides]int64
	// Unknown is how many of Refused[After] had a method that was not recorded, by an earlier version.
	Unknown int64

	byMethod map[[16]byte]int64 // for a route with LostMethods
}

// Keys returns the number of distinct keys that used any of the routes, by their indexes, for which
// of returns true.
func (e *Effect) Keys(of func(route int) bool) (n int64) {
	seen := make([]bool, e.keys)
	for _, pair := range e.pairs.slots {
		if pair == 0 {
			continue
		}
		route, key := pairOf(pair)
		if !seen[key] && of(int(route)) {
			seen[key] = true
			n++
		}
	}
	return n
}

// ReplayEffect returns what a change would have done to the requests of the last 24 hours.
//
// Requests and keys are exact. Limits are replayed as in Simulate: each bucket is full at the
// start, and the requests of one second are evenly spread over it. The global limits get the
// requests that the limits of routes admit. Limits of keys are not replayed.
func ReplayEffect(ctx context.Context, store ChunkReader, accountID string, c Change, now time.Time) (*Effect, error) {
	begin := floor(now.Add(-SecondsKept).Unix(), 60)
	r := &effectReplay{
		Change: c, routes: make(map[[16]byte]int32, len(c.Routes)), numbers: map[[16]byte]uint32{}, begin: begin, global: c.Global[Before] != c.Global[After],
		out: &Effect{Since: time.Unix(begin, 0).UTC(), Routes: make([]RouteEffect, len(c.Routes))},
	}
	if len(c.Routes) == 0 {
		return r.out, nil
	}
	for i := range c.Routes {
		r.routes[c.Routes[i].ID] = int32(i)
	}
	r.start()
	q := ChunkQuery{AccountID: accountID, Part: Seconds, Tier: Minutes, From: begin, Before: now.Unix() + 1, Only: &c.Gateway}
	if err := r.read(ctx, store, q, r.arrivals); err != nil {
		return nil, err
	}
	if err := r.play(ctx); err != nil {
		return nil, err
	}
	// What is counted between the two reads has no arrivals yet. The other way round there could be
	// more refused requests than requests.
	q.Part, q.Only = Keys, nil
	if err := r.read(ctx, store, q, r.count); err != nil {
		return nil, err
	}
	if slices.ContainsFunc(c.Routes, func(route ChangedRoute) bool { return len(route.LostMethods) > 0 }) {
		q.Part, q.Only = Methods, &c.Gateway
		if err := r.read(ctx, store, q, r.countMethods); err != nil {
			return nil, err
		}
	}
	for i := range c.Routes {
		r.out.Routes[i].lose(&c.Routes[i])
	}
	r.out.keys = len(r.ids)
	return r.out, nil
}

// effectReplay is the state of a ReplayEffect. Keys are numbered in the order of their first request.
type effectReplay struct {
	Change
	out    *Effect
	routes map[[16]byte]int32
	begin  int64 // Unix second
	global bool  // the global limits are replayed

	numbers map[[16]byte]uint32
	ids     [][16]byte // of keys, by number
	buckets []uint32   // of keys: the number of the key whose bucket it uses

	limits  []*ratelimit.Replay // by index in Change.Limits
	globals [sides]*ratelimit.Replay
	states  int // buckets of limits with per: key

	minute  int64 // Unix second of the start of the minute of points
	points  []effectPoint
	entries []entryOfLimit
	refused []int64 // of each point, on one side
	counts  []int64
	second  second
}

// effectPoint is the requests of one key on one route in one second.
type effectPoint struct {
	route  int32
	key    uint32
	count  uint32
	second uint8
}

// entryOfLimit is a point that a limit applies to. Entries with the same order are decided together:
// it has the second, the limit and the bucket, from the highest bits on.
type entryOfLimit struct {
	order uint64
	point uint32
}

const (
	bucketBits = 21
	limitBits  = 24
)

func (r *effectReplay) start() {
	r.limits = make([]*ratelimit.Replay, len(r.Limits))
	for i, c := range r.Limits {
		if !c.IsZero() {
			r.limits[i] = ratelimit.NewReplay(c)
		}
	}
	if !r.global {
		return
	}
	for side, c := range r.Global {
		if !c.IsZero() {
			r.globals[side] = ratelimit.NewReplay(c)
		}
	}
}

// read calls f for each chunk that q selects.
func (r *effectReplay) read(ctx context.Context, store ChunkReader, q ChunkQuery, f func(context.Context, *Chunk) error) error {
	return store.ReadTraffic(ctx, q, func(c *Chunk) error {
		if err := f(ctx, c); err != nil {
			return fmt.Errorf("read traffic chunk %d: %w", c.Seq, err)
		}
		return ctx.Err()
	})
}

// number returns the number of a key, and gives it one if it has none.
func (r *effectReplay) number(key [16]byte) (uint32, error) {
	if n, known := r.numbers[key]; known {
		return n, nil
	}
	if len(r.ids) >= maxEffectKeys {
		return 0, tooLarge("keys")
	}
	n := uint32(len(r.ids))
	r.numbers[key] = n
	r.ids, r.buckets = append(r.ids, key), append(r.buckets, n)
	if shared, ok := r.Buckets[key]; ok {
		of, err := r.number(shared)
		if err != nil {
			return 0, err
		}
		r.buckets[n] = of
	}
	return n, nil
}

// arrivals adds the points of a chunk of part Seconds, and replays the points of the minute before.
func (r *effectReplay) arrivals(ctx context.Context, c *Chunk) error {
	if c.Start != r.minute {
		if err := r.play(ctx); err != nil {
			return err
		}
		r.minute = c.Start
	}
	var full error
	err := arrivals(c.Body, func(c *Flow) func(int, uint32) {
		route, tracked := r.routes[c.Route]
		if c.Gateway != r.Gateway || !tracked || !r.isLimited(route) || full != nil {
			return nil
		}
		key, err := r.number(c.Key)
		if err != nil {
			full = err
			return nil
		}
		return func(second int, n uint32) {
			if n > 0 {
				r.points = append(r.points, effectPoint{route: route, key: key, count: n, second: uint8(second)})
			}
		}
	})
	if err == nil && full == nil && len(r.points) > maxEffectPoints {
		full = tooLarge("requests in one minute")
	}
	return cmp.Or(err, full)
}

// isLimited reports whether a replayed limit applies to a route's requests.
func (r *effectReplay) isLimited(route int32) bool {
	return r.global || len(r.Routes[route].Limits[Before])+len(r.Routes[route].Limits[After]) > 0
}

// count adds the requests and keys of a chunk of part Keys.
func (r *effectReplay) count(_ context.Context, c *Chunk) error {
	return rows(Keys, c.Body, func(e *row) error {
		route, tracked := r.routes[e.Route]
		if e.Gateway != r.Gateway || !tracked {
			return nil
		}
		to := &r.out.Routes[route]
		to.Requests += e.Requests
		if e.Key == ([16]byte{}) {
			return nil
		}
		key, err := r.number(e.Key)
		if err != nil {
			return err
		}
		if r.out.pairs.add(route, key) {
			to.Keys++
		}
		if r.out.pairs.size > maxEffectPairs {
			return tooLarge("keys of all routes together")
		}
		return nil
	})
}

// countMethods adds the requests of a chunk of part Methods.
func (r *effectReplay) countMethods(_ context.Context, c *Chunk) error {
	return arrivals(c.Body, func(c *Flow) func(int, uint32) {
		route, tracked := r.routes[c.Route]
		if c.Gateway != r.Gateway || !tracked || len(r.Routes[route].LostMethods) == 0 {
			return nil
		}
		to := &r.out.Routes[route]
		if to.byMethod == nil {
			to.byMethod = map[[16]byte]int64{}
		}
		return func(_ int, n uint32) { to.byMethod[c.Key] += int64(n) }
	})
}

// lose adds the requests that the change refuses before any limit.
func (e *RouteEffect) lose(c *ChangedRoute) {
	switch {
	case c.Lost:
		e.Refused[After] = e.Requests
	case len(c.LostMethods) > 0:
		e.Unknown = e.Requests
		for _, n := range e.byMethod {
			e.Unknown -= n
		}
		e.Unknown = max(0, e.Unknown)
		lost := e.Unknown
		for _, method := range c.LostMethods {
			lost += e.byMethod[method]
		}
		e.Refused[After] = min(e.Requests, e.Refused[After]+lost)
	}
}

// play replays the points of the minute on both sides.
func (r *effectReplay) play(ctx context.Context) error {
	for side := range sides {
		r.refused = append(r.refused[:0], make([]int64, len(r.points))...)
		if err := r.playRoutes(ctx, side); err != nil {
			return err
		}
		if err := r.playGlobal(ctx, side); err != nil {
			return err
		}
		for i, n := range r.refused {
			r.out.Routes[r.points[i].route].Refused[side] += n
		}
	}
	r.points = r.points[:0]
	return nil
}

// playRoutes replays the limits of routes.
func (r *effectReplay) playRoutes(ctx context.Context, side Side) error {
	r.entries = r.entries[:0]
	for i := range r.points {
		p := &r.points[i]
		route := &r.Routes[p.route]
		if side == After && route.Lost {
			continue
		}
		for _, limit := range route.Limits[side] {
			bucket := uint64(0)
			if r.Limits[limit].Per == ratelimit.PerKey && !(side == After && route.Keyless) {
				bucket = uint64(r.buckets[p.key]) + 1
			}
			r.entries = append(r.entries, entryOfLimit{uint64(p.second)<<(limitBits+bucketBits) | uint64(limit)<<bucketBits | bucket, uint32(i)})
		}
	}
	return r.each(ctx, func(order uint64, at int64, points []entryOfLimit) error {
		var bucket [16]byte
		if n := order & (1<<bucketBits - 1); n > 0 {
			bucket = r.ids[n-1]
		}
		limit := r.limits[order>>bucketBits&(1<<limitBits-1)]
		if limit == nil {
			return nil
		}
		before := limit.Keys()
		r.send(limit, at, bucket, points)
		if r.states += limit.Keys() - before; r.states > maxEffectBuckets {
			return tooLarge("keys with a limit of their own")
		}
		return nil
	})
}

// playGlobal replays the global limit with the requests that the limits of routes admitted.
func (r *effectReplay) playGlobal(ctx context.Context, side Side) error {
	if r.globals[side] == nil {
		return nil
	}
	r.entries = r.entries[:0]
	for i := range r.points {
		if side == After && r.Routes[r.points[i].route].Lost {
			continue
		}
		r.entries = append(r.entries, entryOfLimit{uint64(r.points[i].second) << (limitBits + bucketBits), uint32(i)})
	}
	return r.each(ctx, func(_ uint64, at int64, points []entryOfLimit) error {
		r.send(r.globals[side], at, [16]byte{}, points)
		return nil
	})
}

// each sorts the entries, and calls f once for each second, limit and bucket, with its entries. at
// is the Unix second.
func (r *effectReplay) each(ctx context.Context, f func(order uint64, at int64, points []entryOfLimit) error) error {
	slices.SortFunc(r.entries, func(a, b entryOfLimit) int {
		if a.order != b.order {
			return cmp.Compare(a.order, b.order)
		}
		x, y := &r.points[a.point], &r.points[b.point]
		return cmp.Or(cmp.Compare(x.key, y.key), cmp.Compare(x.route, y.route), cmp.Compare(a.point, b.point))
	})
	for rest := r.entries; len(rest) > 0; {
		order, n := rest[0].order, 1
		for n < len(rest) && rest[n].order == order {
			n++
		}
		if err := f(order, r.minute+int64(order>>(limitBits+bucketBits)), rest[:n]); err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		rest = rest[n:]
	}
	return nil
}

// send sends the remaining requests of points through a limit, and adds the refused ones to r.refused.
func (r *effectReplay) send(limit *ratelimit.Replay, at int64, bucket [16]byte, points []entryOfLimit) {
	r.counts = r.counts[:0]
	for _, e := range points {
		r.counts = append(r.counts, int64(r.points[e.point].count)-r.refused[e.point])
	}
	for i, n := range r.second.play(limit, at, at-r.begin, bucket, r.counts) {
		r.refused[points[i].point] += n
	}
}

// tooLarge returns the error for an effect that exceeds a bound. The message says which number is
// too large.
func tooLarge(what string) error {
	return fault.Invalid("effect", "cannot be computed for this gateway: the last 24 hours have too many %s; repeat the call without it", what)
}

// pairSet is a set of pairs of a route and a key, by their numbers: a hash table with open
// addressing. The zero value is empty.
type pairSet struct {
	slots []uint64 // 0 is free; the length is a power of two, and at most half are used
	size  int
}

func pairOf(slot uint64) (route int32, key uint32) { return int32(slot>>32) - 1, uint32(slot) }

// add adds a pair, and reports whether it is new.
func (s *pairSet) add(route int32, key uint32) bool {
	if 2*s.size >= len(s.slots) {
		old := s.slots
		s.slots = make([]uint64, max(1024, 2*len(old)))
		for _, pair := range old {
			if pair != 0 {
				s.slots[s.find(pair)] = pair
			}
		}
	}
	pair := uint64(route+1)<<32 | uint64(key)
	at := s.find(pair)
	if s.slots[at] == pair {
		return false
	}
	s.slots[at] = pair
	s.size++
	return true
}

// find returns the slot of a pair, or the free one where it belongs.
func (s *pairSet) find(pair uint64) uint64 {
	mask := uint64(len(s.slots) - 1)
	h := pair * 0x9e3779b97f4a7c15
	at := (h ^ h>>32) & mask
	for s.slots[at] != 0 && s.slots[at] != pair {
		at = (at + 1) & mask
	}
	return at
}
