package traffic

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/ratelimit"
)

// The bounds of SimulatePlan. Beyond MaxPlanOwners keys, the owners of the others are not known. Beyond maxPlanKeys its
// error is fault.ValidationFailed with the field plan.
const (
	MaxPlanOwners = 10_000  // keys whose owners are asked for
	maxPlanKeys   = 1 << 20 // keys that used the gateway
	maxPlanPoints = 1 << 21 // triples of a second, a route and a key, within one minute
)

// PlanWhat names the limits of a plan to simulate, and the requests to simulate them on: those with a key.
type PlanWhat struct {
	Gateway [16]byte    // through which the requests came; zeros for all gateways of the account
	Limits  []PlanLimit // at most 16. Those of one side have no effect on those of the other
	// Buckets has the bucket of each key that shares its bucket with another key.
	Buckets map[[16]byte][16]byte
	// Callers returns whose the keys are, at most MaxPlanOwners. A key of which that is not known is not in the map. It is
	// called once, if a limit is PerOwner, or if there is OnlyUsers.
	Callers func(ctx context.Context, keys [][16]byte) (map[[16]byte]Caller, error)
	// OnlyUsers leaves out the requests to which the limits do not apply, by what Callers says. Otherwise the plan is
	// simulated as if it were that of every key and owner.
	OnlyUsers bool
	Defaults  map[[16]byte]bool // the gateways whose default plan it is; for OnlyUsers
}

// Caller is whose a key is, and which limits of the plan apply to its requests.
type Caller struct {
	Owner            [16]byte // zeros if it has none
	PerKey, PerOwner PlanUse
}

// PlanUse is whether a plan's limits of one kind apply to the requests of a key.
type PlanUse uint8

// The uses.
const (
	OtherPlan   PlanUse = iota // no: another plan comes first
	ThisPlan                   // yes
	DefaultPlan                // through the gateways whose default it is
)

// applies reports whether a limit of the plan applies to requests through a gateway.
func (c *Caller) applies(perOwner, isDefault bool) bool {
	use := c.PerKey
	if perOwner {
		use = c.PerOwner
	}
	return use == ThisPlan || use == DefaultPlan && isDefault
}

// PlanLimit is one limit of a plan: a rate, or a quota.
type PlanLimit struct {
	Limit    ratelimit.Config
	Quota    *QuotaLimit // in place of Limit
	PerOwner bool        // the keys of an owner share a bucket
	// NotRequests says that the limit counts something else, which is not known of single requests.
	NotRequests bool
	Gateway     [16]byte // through which it applies; zeros for all
	// Routes are the routes that the limit applies to; nil for all.
	Routes map[[16]byte]bool
	Side   Side // of a comparison; Before for all limits of a simulation
}

// SimulatedPlan is the result of a simulation of a plan.
type SimulatedPlan struct {
	Simulated                  // of the side Before
	Since     time.Time        // requests from then on count
	Limits    []SimulatedLimit // of PlanWhat, in its order
	Users     int64            // distinct keys of Requests
	// Unknown is how many requests are left out because it is not known whether the limits apply; for OnlyUsers.
	Unknown int64
}

// SimulatedLimit is what one limit of a plan refused of what the limits before it in the plan admitted.
type SimulatedLimit struct {
	Refused int64
	// Unknown is how many requests it might have refused: those to which it was not applied because it is not known whose
	// they are, those of which it counts something else than the request, and those that a quota admitted in a window that
	// began before the last 24 hours.
	Unknown int64
}

// SimulatePlan replays the requests of the last 24 hours that reached the limits of gateways through the limits of a
// plan, as Simulate does for one limit. A request that several limits refuse counts for the first of them.
func SimulatePlan(ctx context.Context, store ChunkReader, accountID string, w PlanWhat, now time.Time) (*SimulatedPlan, error) {
	r := &planReplay{
		PlanWhat: w, limits: make([]limitReplay, len(w.Limits)), numbers: map[[16]byte]uint32{}, begin: now.Add(-SecondsKept).Unix(),
	}
	r.out = &SimulatedPlan{Since: time.Unix(r.begin, 0).UTC(), Limits: make([]SimulatedLimit, len(w.Limits))}
	ask := w.OnlyUsers
	for i, l := range w.Limits {
		r.limits[i] = r.newLimit(l)
		ask = ask || l.PerOwner
	}
	q := ChunkQuery{AccountID: accountID, Part: Seconds, Tier: Minutes, From: floor(r.begin, 60), Before: now.Unix() + 1}
	if w.Gateway != ([16]byte{}) {
		q.Only = &w.Gateway
	}
	if ask {
		if err := r.findCallers(ctx, store, q); err != nil {
			return nil, err
		}
	}
	if err := r.read(ctx, store, q, r.of); err != nil {
		return nil, err
	}
	if err := r.play(ctx); err != nil {
		return nil, err
	}
	return r.result(), nil
}

// planReplay is the state of a SimulatePlan. Keys are numbered in the order of their first request.
type planReplay struct {
	PlanWhat
	out     *SimulatedPlan
	limits  []limitReplay
	begin   int64 // Unix second of the earliest request
	minute  int64 // Unix second of the start of the minute of points
	points  []planPoint
	entries []planEntry // the points that a limit applies to
	numbers map[[16]byte]uint32
	keys    []planKey
	full    bool // there are more keys than maxPlanKeys
	counts  []int64
	second  second
}

// limitReplay replays requests through a limit, as second.play does. unknown is how many of those that it did not refuse
// it might have refused.
type limitReplay func(at int64, bucket [16]byte, counts []int64) (refused []int64, unknown int64)

func (r *planReplay) newLimit(l PlanLimit) limitReplay {
	if l.NotRequests {
		return func(_ int64, _ [16]byte, counts []int64) (refused []int64, unknown int64) {
			for _, n := range counts {
				unknown += n
			}
			return make([]int64, len(counts)), unknown
		}
	}
	if l.Quota != nil {
		q := &quotaReplay{QuotaLimit: *l.Quota, begin: r.begin}
		return func(at int64, bucket [16]byte, counts []int64) ([]int64, int64) {
			return q.play(&r.second, at, bucket, counts)
		}
	}
	l.Limit.Per = ratelimit.PerKey
	limit := ratelimit.NewReplay(l.Limit)
	return func(at int64, bucket [16]byte, counts []int64) ([]int64, int64) {
		return r.second.play(limit, at, at-r.begin, bucket, counts), 0
	}
}

type planKey struct {
	replayedKey
	caller  Caller
	owner   [16]byte // the bucket of limits with PerOwner
	unknown bool     // whose key it is
	used    bool     // it has points
}

// planPoint is the requests of one key on one route in one second.
type planPoint struct {
	key     uint32
	count   [sides]uint32 // what the limits so far have admitted
	second  uint8
	applies uint16 // a bit for each limit
}

type planEntry struct {
	bucket [16]byte
	point  *planPoint
}

// read calls of for each flow of each chunk, and replays each minute when it is read.
func (r *planReplay) read(ctx context.Context, store ChunkReader, q ChunkQuery, of func(c *Flow) func(int, uint32)) error {
	return store.ReadTraffic(ctx, q, func(c *Chunk) error {
		if c.Start != r.minute {
			if err := r.play(ctx); err != nil {
				return err
			}
			r.minute = c.Start
		}
		if err := arrivals(c.Body, of); err != nil {
			return fmt.Errorf("read traffic chunk %d: %w", c.Seq, err)
		}
		if r.full || len(r.points) > maxPlanPoints {
			return fault.Invalid("plan", "cannot be simulated: too many keys were used in the last 24 hours")
		}
		return ctx.Err()
	})
}

// findCallers numbers the keys that were used, and finds out whose they are.
func (r *planReplay) findCallers(ctx context.Context, store ChunkReader, q ChunkQuery) error {
	err := r.read(ctx, store, q, func(c *Flow) func(int, uint32) {
		if r.isOf(c) && c.Key != ([16]byte{}) && r.covering(c) != 0 {
			r.number(c.Key)
		}
		return nil
	})
	if err != nil {
		return err
	}
	asked := make([][16]byte, min(len(r.keys), MaxPlanOwners))
	for i := range asked {
		asked[i] = r.keys[i].key
	}
	callers, err := r.Callers(ctx, asked)
	if err != nil {
		return err
	}
	for i := range r.keys {
		k := &r.keys[i]
		caller, known := callers[k.key]
		k.caller, k.unknown = caller, !known
		if caller.Owner != ([16]byte{}) {
			k.owner = caller.Owner
		}
	}
	return nil
}

// number returns the number of a key, and gives it one if it has none.
func (r *planReplay) number(key [16]byte) uint32 {
	n, known := r.numbers[key]
	if known {
		return n
	}
	if n = uint32(len(r.keys)); n >= maxPlanKeys {
		r.full = true
		return 0
	}
	bucket := key
	if b, shared := r.Buckets[key]; shared {
		bucket = b
	}
	r.numbers[key] = n
	// A key that came only now has been created since the owners were asked for.
	r.keys = append(r.keys, planKey{replayedKey: replayedKey{key: key, bucket: bucket}, owner: bucket, unknown: true})
	return n
}

// isOf reports whether requests are replayed for their gateway.
func (r *planReplay) isOf(c *Flow) bool {
	return c.Gateway == r.Gateway || r.Gateway == [16]byte{}
}

// of returns the function for a flow's requests, or nil if no limit applies to them.
func (r *planReplay) of(c *Flow) func(int, uint32) {
	if !r.isOf(c) || c.Key == ([16]byte{}) {
		return nil
	}
	applies := r.covering(c)
	if applies == 0 {
		return nil
	}
	number := r.number(c.Key)
	if r.full {
		return nil
	}
	if k := &r.keys[number]; r.OnlyUsers && !k.unknown {
		if applies &= r.usedBy(&k.caller, r.Defaults[c.Gateway]); applies == 0 {
			return nil
		}
	}
	return func(second int, n uint32) {
		if n == 0 || r.minute+int64(second) < r.begin {
			return
		}
		if k := &r.keys[number]; r.OnlyUsers && k.unknown {
			r.out.Unknown += int64(n)
			return
		} else if !k.used {
			k.used = true
			r.out.Users++
		}
		r.points = append(r.points, planPoint{second: uint8(second), key: number, count: [sides]uint32{n, n}, applies: applies})
		r.out.Requests += int64(n)
	}
}

// covering returns the limits that apply on the route of a flow, as bits.
func (r *planReplay) covering(c *Flow) (limits uint16) {
	for i := range r.Limits {
		l := &r.Limits[i]
		if (l.Routes == nil || l.Routes[c.Route]) && (l.Gateway == c.Gateway || l.Gateway == [16]byte{}) {
			limits |= 1 << i
		}
	}
	return limits
}

// usedBy returns the limits that apply to a caller, as bits.
func (r *planReplay) usedBy(c *Caller, isDefault bool) (limits uint16) {
	for i := range r.Limits {
		if c.applies(r.Limits[i].PerOwner, isDefault) {
			limits |= 1 << i
		}
	}
	return limits
}

// play replays the points of the minute through one limit after the other, unless ctx ends: a limit may take seconds.
func (r *planReplay) play(ctx context.Context) error {
	for i := range r.limits {
		if err := ctx.Err(); err != nil {
			return err
		}
		r.gather(i)
		for rest := r.entries; len(rest) > 0; {
			n := 1
			for n < len(rest) && rest[n].point.second == rest[0].point.second && rest[n].bucket == rest[0].bucket {
				n++
			}
			r.playTogether(i, rest[:n])
			rest = rest[n:]
		}
	}
	r.points = r.points[:0]
	return nil
}

// gather sets the entries of a limit, in the order of their seconds and buckets.
func (r *planReplay) gather(limit int) {
	r.entries = r.entries[:0]
	side := r.Limits[limit].Side
	for i := range r.points {
		p := &r.points[i]
		k := &r.keys[p.key]
		switch {
		case p.applies&(1<<limit) == 0 || p.count[side] == 0:
		case !r.Limits[limit].PerOwner:
			r.entries = append(r.entries, planEntry{k.bucket, p})
		case k.unknown:
			r.out.Limits[limit].Unknown += int64(p.count[side])
		default:
			r.entries = append(r.entries, planEntry{k.owner, p})
		}
	}
	slices.SortStableFunc(r.entries, func(a, b planEntry) int {
		return cmp.Or(cmp.Compare(a.point.second, b.point.second), bytes.Compare(a.bucket[:], b.bucket[:]), cmp.Compare(a.point.key, b.point.key))
	})
}

// playTogether replays the requests of one second that share a bucket of a limit.
func (r *planReplay) playTogether(limit int, entries []planEntry) {
	at, side := r.minute+int64(entries[0].point.second), r.Limits[limit].Side
	r.counts = r.counts[:0]
	for _, e := range entries {
		r.counts = append(r.counts, int64(e.point.count[side]))
	}
	refused, unknown := r.limits[limit](at, entries[0].bucket, r.counts)
	r.out.Limits[limit].Unknown += unknown
	for i, n := range refused {
		if n == 0 {
			continue
		}
		p := entries[i].point
		p.count[side] -= uint32(n)
		r.out.Limits[limit].Refused += n
		if side != Before {
			continue
		}
		k := &r.keys[p.key]
		if k.refused == 0 || at < k.first {
			k.first = at
		}
		k.refused += n
	}
}

func (r *planReplay) result() *SimulatedPlan {
	for i := range r.keys {
		k := &r.keys[i]
		if k.refused == 0 {
			continue
		}
		r.out.Refused += k.refused
		r.out.Keys = append(r.out.Keys, SimulatedKey{KeyID: id.Format(id.Key, k.key), Refused: k.refused, FirstAt: time.Unix(k.first, 0).UTC()})
	}
	sortRefused(r.out.Keys)
	return r.out
}

// sortRefused puts the keys with the most refused requests first.
func sortRefused(keys []SimulatedKey) {
	slices.SortFunc(keys, func(a, b SimulatedKey) int {
		return cmp.Or(cmp.Compare(b.Refused, a.Refused), cmp.Compare(a.KeyID, b.KeyID))
	})
}
