package snapshot

import (
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/keygate/keygate/internal/balance"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/id"
)

// Split says which requests of a route, or of a gateway, go to which upstream (targets.md, section 7). It is immutable, except
// for the number of requests. Nil splits nothing.
type Split struct {
	*splitRules               // nil splits nothing either: the route does not use the split of its gateway
	requests    *atomic.Int64 // that it has decided, if callers do not stay on their sides; otherwise nil
}

// splitRules are the entries of a split, which routes share.
type splitRules struct {
	whens    []splitWhen
	weighted *weightedSide // nil without one
}

// splitWhen is an entry with a condition.
type splitWhen struct {
	upstream string
	fallback bool

	header, value string // "" if the condition is another one
	keys          map[[16]byte]struct{}
	owners        map[string]struct{}

	why sideReasons
}

// weightedSide is the entry with a weight.
type weightedSide struct {
	upstream string
	balance.Split
	// Of the requests of this side, and of the others: by the key and by the address of the caller.
	weighted, others [2]sideReasons
}

// sideReasons say in words why a request goes to a side.
type sideReasons struct {
	own   string
	other string // it belongs to the other side, of which no target takes part
}

// Side is what a split has decided about a request.
type Side struct {
	Upstream *Upstream
	Why      string // in words; "" if there is no split
}

// SplitRequest is what a split needs of a request.
type SplitRequest struct {
	Caller *Caller
	Client netip.Addr
	// Header returns the first value of a header, and how many there are. It may be nil.
	Header interface {
		HeaderValue(name string) (value string, count int)
	}
	Now time.Duration // by the monotonic clock
	// Small is set if the request may be the only one at a half-open target, as in balance.Attempts.
	Small bool
	// Bound is the upstream to which the client's connection is bound, by name, or "". Without stickiness, such a request stays
	// there.
	Bound string
}

// hasFallback reports whether a side may serve in place of another one.
func (s *Split) hasFallback() bool {
	return s != nil && s.splitRules != nil &&
		(s.weighted != nil && s.weighted.Fallback || slices.ContainsFunc(s.whens, func(w splitWhen) bool { return w.fallback }))
}

// adopt goes on to count where was, which may be nil, has stopped.
func (s *Split) adopt(was *Split) {
	if s != nil && was != nil && s.requests != nil && was.requests != nil {
		s.requests = was.requests
	}
}

// SplitOf returns the split of a route, its own or that of the gateway; nil for none.
func (s *Settings) SplitOf(r *Route) *Split {
	split := r.split
	if split == nil {
		split = s.split
	}
	if split == nil || split.splitRules == nil {
		return nil
	}
	return split
}

// SideOf returns where a request goes. It does not allocate.
func (s *Settings) SideOf(split *Split, r *Route, req *SplitRequest) Side {
	other := s.UpstreamOf(r)
	for i := range split.whens {
		w := &split.whens[i]
		if !w.holds(req) {
			continue
		}
		u := s.named(w.upstream)
		if w.fallback && !u.serves(req) && other.takesPart(req.Now) {
			return Side{other, w.why.other}
		}
		return Side{u, w.why.own}
	}
	if split.weighted == nil {
		return Side{other, noCondition}
	}
	return s.weigh(split, other, req)
}

const noCondition = "no condition of the split holds"

// weigh decides about a request by the weight.
func (s *Settings) weigh(split *Split, other *Upstream, req *SplitRequest) Side {
	w := split.weighted
	u := s.named(w.upstream)
	var caller, n uint64
	by := 0
	if w.Sticky {
		caller, by = req.sharer()
	} else {
		switch req.Bound {
		case "":
		case u.Name:
			return Side{u, bound}
		case other.Name:
			return Side{other, bound}
		}
		n = uint64(split.requests.Add(1))
	}
	belongs := w.Weighted(caller, n)
	weighted := belongs
	if w.Fallback {
		if belongs {
			weighted = w.Serving(true, u.serves(req), other.takesPart(req.Now))
		} else {
			weighted = w.Serving(false, u.takesPart(req.Now), other.serves(req))
		}
	}
	why, to := &w.others[by], other
	if belongs {
		why = &w.weighted[by]
	}
	if weighted {
		to = u
	}
	if weighted != belongs {
		return Side{to, why.other}
	}
	return Side{to, why.own}
}

const bound = "the client's connection is bound to it"

func (w *splitWhen) holds(req *SplitRequest) bool {
	switch {
	case w.header != "":
		if req.Header == nil {
			return false
		}
		value, n := req.Header.HeaderValue(w.header)
		return n == 1 && value == w.value
	case req.Caller == nil:
		return false
	case w.keys != nil:
		if _, is := w.keys[req.Caller.BucketID()]; is {
			return true
		}
		_, is := w.keys[req.Caller.UUID()]
		return is
	}
	_, is := w.owners[req.Caller.Owner()]
	return is
}

// named returns the upstream of a name. It has no target if the gateway does not have it, which management does not allow.
func (s *Settings) named(name string) *Upstream {
	if name == gateway.DefaultUpstream {
		return s.Upstream
	}
	if u := s.others[name]; u != nil {
		return u
	}
	return &Upstream{Name: name}
}

// takesPart reports whether a target takes part.
func (u *Upstream) takesPart(now time.Duration) bool {
	if u.Balance != nil {
		return u.Balance.Serves(now)
	}
	return slices.ContainsFunc(u.Targets, func(t *Target) bool { return !t.Drain })
}

// serves reports whether a target takes part, or is half-open and may be tried with the request.
func (u *Upstream) serves(req *SplitRequest) bool {
	return u.takesPart(req.Now) || req.Small && u.Balance != nil && u.Balance.Tries(req.Now)
}

// compileSplit returns the compiled form of a split; nil for nil. shared has the rules of other routes.
func compileSplit(s gateway.Split, shared *sharedSplits) *Split {
	if s == nil {
		return nil
	}
	c := &Split{}
	if c.splitRules = shared.of(s); c.splitRules != nil && c.weighted != nil && !c.weighted.Sticky {
		c.requests = &atomic.Int64{}
	}
	return c
}

func compileRules(s gateway.Split) *splitRules {
	c := &splitRules{}
	for i := range s {
		e := &s[i]
		if e.When == nil {
			c.weighted = compileWeight(e)
		} else {
			c.whens = append(c.whens, compileWhen(e))
		}
	}
	return c
}

func compileWeight(e *gateway.SplitEntry) *weightedSide {
	share := *e.Weight
	w := &weightedSide{upstream: e.Upstream, Split: balance.Split{Share: balance.Share(share), Sticky: !e.Random, Fallback: e.Fallback}}
	for by, of := range sharers {
		if e.Random {
			of = "requests, whoever makes them"
		}
		own, rest := sharesOf(of, share)
		w.weighted[by], w.others[by] = reasonsOf(own, e.Upstream), reasonsOf(rest, "the upstream of the route")
	}
	return w
}

// sharers are of whom a sticky weight is a share, by the index that SplitRequest.sharer returns.
var sharers = [...]string{"callers, by the key", "callers, by the address"} //nolint:gochecknoglobals // a table

// sharer returns the hash of the caller, and an index in sharers.
func (r *SplitRequest) sharer() (caller uint64, by int) {
	caller, isAddress := r.Caller.PrincipalHash(r.Client)
	if isAddress {
		by = 1
	}
	return caller, by
}

// sharesOf returns, in words, a share of the callers or requests that sharers names, and the rest of them.
func sharesOf(sharers string, share gateway.Percent) (own, rest string) {
	return share.String() + " % of " + sharers, (gateway.Percent(balance.MaxShare) - share).String() + " % of " + sharers
}

func compileWhen(e *gateway.SplitEntry) splitWhen {
	w := splitWhen{upstream: e.Upstream, fallback: e.Fallback}
	for w.header, w.value = range e.When.Header {
		w.why = reasonsOf("because of the header "+w.header, e.Upstream)
		return w
	}
	if e.When.Owner != nil {
		w.owners = make(map[string]struct{}, len(e.When.Owner))
		for _, externalID := range e.When.Owner {
			w.owners[externalID] = struct{}{}
		}
		w.why = reasonsOf("because of the owner of the key", e.Upstream)
		return w
	}
	w.keys = make(map[[16]byte]struct{}, len(e.When.Key))
	for _, keyID := range slices.Concat(e.When.Key, e.When.Buckets) {
		if u, ok := id.Parse(id.Key, keyID); ok {
			w.keys[u] = struct{}{}
		}
	}
	w.why = reasonsOf("because of the key", e.Upstream)
	return w
}

func reasonsOf(why, side string) sideReasons {
	return sideReasons{own: why, other: why + "; no target of " + side + " takes part"}
}

// sharedSplits has the rules of equal splits once, as long as a route has them. It is safe for concurrent use.
type sharedSplits struct {
	mu    sync.Mutex
	rules map[string]weak.Pointer[splitRules] // by the split as JSON

	// What was asked for last: routes of one page that have equal splits share them.
	last   *gateway.SplitEntry
	lastly *splitRules
}

// of returns the rules of a split, which must not change any more; nil for an empty one.
func (s *sharedSplits) of(split gateway.Split) *splitRules {
	if len(split) == 0 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last == &split[0] {
		return s.lastly
	}
	text := string(split.AppendJSON(nil))
	r := s.rules[text].Value()
	if r == nil {
		if s.rules == nil {
			s.rules = map[string]weak.Pointer[splitRules]{}
		}
		r = compileRules(split)
		s.rules[text] = weak.Make(r)
		runtime.AddCleanup(r, s.drop, text)
	}
	s.last, s.lastly = &split[0], r
	return r
}

// sharedParts are parts of routes that many of them have.
type sharedParts struct {
	costs     sharedCosts
	splits    sharedSplits
	handlings sharedHandlings
}

// forget lets go of what was asked for last.
func (s *sharedParts) forget() {
	s.costs.forget()
	s.splits.forget()
	s.handlings.forget()
}

// forget lets go of what was asked for last.
func (s *sharedSplits) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last, s.lastly = nil, nil
}

// drop removes rules that no route has any more, unless there are newer ones.
func (s *sharedSplits) drop(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rules[text].Value() == nil {
		delete(s.rules, text)
	}
}
