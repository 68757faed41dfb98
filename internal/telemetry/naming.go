package telemetry

import (
	"bytes"
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/keygate/keygate/internal/id"
)

// Which routes have series of their own (contract, section 7, Metrics).
//
// The lines of a scrape are a pool that accounts share by the rule of dynamic thresholds
// (Choudhury and Hahne), which switches use for their buffers: an account may take lines as long as
// it has at most routeShare times as many as are free. One busy account gets 8/9 of the pool, two
// get 8/17 each; some lines always remain for one more account.
//
// While an account is within its share, a route is named by its first request. Beyond its share,
// requests of further routes are counted by the gateway's series "other", or, if there is no room
// for this series either, by the series of gateway "other". For the routes that wait, the account
// has a Misra-Gries summary, which finds the busiest in bounded memory. When the names are settled,
// a waiting route replaces a named route that has much less traffic. A part of the lines is kept
// free for this, so that the waiting route need not wait until the other's series has disappeared.
//
// No counter of a series ever decreases while the series exists. A series that loses its name stops
// counting, remains for leavingFor so that everything that it counted is scraped, and then
// disappears. Only later requests are counted elsewhere. A route that gets its name back later
// begins at 0, as after a restart.

const (
	// reservedLines is for everything except the series of accounts: the other metrics of the
	// server, comments, the series of requests without a gateway, and the series of all other
	// gateways.
	reservedLines = 600

	routeShare   = 8  // limit for naming a route
	releaseShare = 9  // beyond it an account has to release lines
	gatewayShare = 24 // limit for naming the other routes of a gateway

	// settleEvery is the least time between two settlements. leavingFor is the longest interval
	// between two scrapes at which a scraper misses nothing.
	settleEvery = 30 * time.Second
	leavingFor  = 5 * time.Minute

	// A waiting route replaces a named route that since the last settlement had less than half of
	// its requests, and at least leastLead fewer. A settlement replaces at most one name in
	// replaceOneIn.
	leastLead    = 60
	replaceOneIn = 16
	// One line in replaceLines is only for routes that replace others, but at least the lines of one route.
	replaceLines = 16

	// maxNoted is the number of waiting routes that are noted for all accounts together, and
	// leastNoted the number for an account among many.
	maxNoted   = 8192
	leastNoted = 8
)

// tenant is the part of an account in the lines.
type tenant struct {
	account [16]byte
	lines   int  // of the series that count
	full    bool // routes wait until the next settlement
	// noted is the Misra-Gries summary of requests without a series of their own. overflowed says
	// that noted did not hold all of them.
	noted      map[seriesKey]uint64
	overflowed bool
}

// note counts a request of key in the summary of at most limit keys.
func (t *tenant) note(key seriesKey, limit int) {
	t.full = true
	if n, ok := t.noted[key]; ok || len(t.noted) < limit {
		t.noted[key] = n + 1
		return
	}
	t.overflowed = true
	for k, n := range t.noted {
		if n == 1 {
			delete(t.noted, k)
		} else {
			t.noted[k] = n - 1
		}
	}
}

func (r *Requests) noteLimit() int { return max(leastNoted, maxNoted/max(1, len(r.accounts))) }

// find returns the series that counts the requests of a route, and whether it is the route's
// own. It creates series while there is room.
func (r *Requests) find(at route) (s *series, own bool) {
	key := seriesKey{gateway: at.gateway, route: at.route}
	if s := r.series[key]; s != nil {
		return s, true
	}
	if at.gateway == ([16]byte{}) {
		return r.add(nil, key), true
	}
	t := r.accounts[at.account]
	if t == nil {
		t = &tenant{account: at.account, noted: map[seriesKey]uint64{}}
		r.accounts[at.account] = t
	}
	if !t.full && r.mayAdd(t, key, routeShare) {
		return r.add(t, key), true
	}
	t.note(key, r.noteLimit())
	key = seriesKey{gateway: at.gateway, other: true}
	if s := r.series[key]; s != nil {
		return s, false
	}
	if r.mayAdd(t, key, gatewayShare) {
		return r.add(t, key), false
	}
	t.note(key, r.noteLimit())
	return r.rest(), false
}

// rest returns the series of all gateways without a series of their own.
func (r *Requests) rest() *series {
	key := seriesKey{other: true}
	if s := r.series[key]; s != nil {
		return s
	}
	return r.add(nil, key)
}

// fits reports whether t may have n more lines.
func (r *Requests) fits(t *tenant, n, share int) bool {
	return t.lines+n <= share*(r.room-r.lines-n)
}

func (r *Requests) mayAdd(t *tenant, key seriesKey, share int) bool {
	return r.leaving[key] == nil && r.fits(t, linesOfNew, share)
}

// add creates a series. t is nil for the two series that belong to no account, whose lines are
// reserved.
func (r *Requests) add(t *tenant, key seriesKey) *series {
	s := &series{key: key, since: r.cfg.Now(), gateway: text(id.Gateway, key.gateway), route: text(id.Route, key.route)}
	if key.other {
		s.route = otherLabel
		s.gateway = cmp.Or(s.gateway, otherLabel)
	}
	r.series[key] = s
	if t != nil {
		s.lines = linesOfNew
		r.join(t, s)
	}
	return s
}

func (r *Requests) join(t *tenant, s *series) {
	s.tenant = t
	t.lines += s.lines
	r.lines += s.lines
}

// leave makes s stop counting, and keeps it until it has been scraped.
func (r *Requests) leave(s *series, now time.Time) {
	delete(r.series, s.key)
	r.leaving[s.key] = s
	s.until = now.Add(leavingFor)
	s.tenant.lines -= s.lines
}

// remove removes a series at once. Requests that it has counted since the last scrape move to the
// series of the other routes.
func (r *Requests) remove(s *series) {
	if r.leaving[s.key] == s {
		delete(r.leaving, s.key)
	} else {
		delete(r.series, s.key)
		s.tenant.lines -= s.lines
	}
	r.lines -= s.lines
	to := r.series[seriesKey{gateway: s.key.gateway, other: true}]
	if to == nil {
		to = r.rest()
	}
	s.pending.moveTo(&to.pending)
}

// drop removes the series, with their counts, of gateways and routes that are not in routes. It
// brings the numbers of lines up to date.
func (r *Requests) drop(routes Routes) {
	r.lines = 0
	for _, t := range r.accounts {
		t.lines = 0
	}
	for _, list := range []map[seriesKey]*series{r.series, r.leaving} {
		for key, s := range list {
			switch {
			case !exists(routes, s):
				delete(list, key)
			case s.tenant != nil:
				s.lines = s.countLines()
				r.lines += s.lines
				if r.leaving[key] == nil {
					s.tenant.lines += s.lines
				}
			}
		}
	}
}

// settle decides from time to time which routes have names. The caller has called drop.
func (r *Requests) settle(routes Routes, now time.Time) {
	for _, s := range r.leaving {
		if !now.Before(s.until) {
			r.remove(s)
		}
	}
	if now.Sub(r.settled) >= settleEvery {
		r.settled = now
		for _, s := range r.series {
			s.rate, s.before = (s.rate+s.requests-s.before)/2, s.requests
		}
		r.release(now)
		r.nameBusiest(routes, now)
	}
	for r.lines > r.most { // lines of more statuses than expected
		r.remove(r.leastUseful())
	}
}

// release makes accounts with more than their share give up their series with the least
// traffic.
func (r *Requests) release(now time.Time) {
	free := r.room - r.lines
	for _, s := range r.leaving {
		free += s.lines
	}
	for {
		t := r.largest()
		if t == nil || t.lines <= releaseShare*free {
			return
		}
		s := r.leastBusy(t)
		free += s.lines
		r.leave(s, now)
	}
}

func (r *Requests) largest() *tenant {
	var most *tenant
	for _, t := range r.accounts {
		if t.lines > 0 && (most == nil || t.lines > most.lines || t.lines == most.lines && bytes.Compare(t.account[:], most.account[:]) > 0) {
			most = t
		}
	}
	return most
}

// leastBusy returns the series of t with the least traffic, or of all accounts if t is nil.
func (r *Requests) leastBusy(t *tenant) (least *series) {
	for _, s := range r.series {
		if s.tenant != nil && (t == nil || s.tenant == t) && (least == nil || s.busier(least) < 0) {
			least = s
		}
	}
	return least
}

// leastUseful returns the series to remove if there is no more room.
func (r *Requests) leastUseful() (s *series) {
	for _, l := range r.leaving {
		if s == nil || l.until.Before(s.until) {
			s = l
		}
	}
	if s == nil {
		s = r.leastBusy(r.largest())
	}
	return s
}

// busier compares the traffic of two series. If it is equal, the older series counts as busier.
func (s *series) busier(than *series) int {
	return cmp.Or(cmp.Compare(s.rate, than.rate), than.since.Compare(s.since), bytes.Compare(than.key.route[:], s.key.route[:]))
}

// nameBusiest gives names to waiting routes, the busiest first, and first to accounts with few
// names. If there is no room, it takes it from the account with the most lines, or else from a
// route with less traffic.
func (r *Requests) nameBusiest(routes Routes, now time.Time) {
	coming := 0 // lines that become free, for which nobody waits yet
	for _, s := range r.leaving {
		if !s.replaced {
			coming += s.lines
		}
	}
	changes := max(1, len(r.series)/replaceOneIn)
	tenants := slices.SortedFunc(maps.Values(r.accounts), func(a, b *tenant) int {
		return cmp.Or(cmp.Compare(a.lines, b.lines), bytes.Compare(a.account[:], b.account[:]))
	})
	for _, t := range tenants {
		waits, promised := t.overflowed, 0 // lines
		for _, w := range t.waiting(routes) {
			share := routeShare
			if w.key.other {
				share = gatewayShare
				if w.requests = t.noted[w.key]; w.requests == 0 {
					continue // the routes that were counted there now have names
				}
			}
			switch s := r.leaving[w.key]; {
			case s != nil && coming >= s.lines && t.lines+s.lines <= share*(r.room-r.lines):
				coming -= s.lines
				delete(r.leaving, w.key)
				r.series[w.key], s.replaced = s, false
				r.lines -= s.lines // join counts them again
				r.join(t, s)
				t.named(w)
			case s == nil && r.fits(t, linesOfNew, share):
				s := r.add(t, w.key)
				s.rate = w.requests
				t.named(w)
			case coming >= linesOfNew:
				coming -= linesOfNew
				promised += linesOfNew
				waits = true
			case r.takesFrom(t, w, t.lines+promised, now):
				if r.series[w.key] == nil {
					promised += linesOfNew
				}
				waits = true
			default:
				waits = true
				if changes > 0 && r.replace(t, w, now) {
					changes--
				}
			}
		}
		t.full, t.overflowed = waits, false
		clear(t.noted)
		if t.lines == 0 && !waits {
			delete(r.accounts, t.account)
		}
	}
	r.forget()
}

// takesFrom makes room for a waiting route of t with the given number of lines, by taking lines
// from the account that has the most, if that account still has more afterwards.
func (r *Requests) takesFrom(t *tenant, w waiting, lines int, now time.Time) bool {
	most := r.largest()
	if most == nil || most.lines-linesOfNew < lines+linesOfNew {
		return false
	}
	r.exchange(r.leastBusy(most), t, w, now)
	return true
}

// named says that the requests of w are counted by its own series from now on.
func (t *tenant) named(w waiting) {
	other := seriesKey{gateway: w.key.gateway, other: true}
	if n, ok := t.noted[other]; ok && !w.key.other {
		t.noted[other] = n - min(n, w.requests)
	}
}

// replace makes room for a waiting route of t, if another route has much less traffic: a route of
// the same account or, if t has no series yet, of any other account.
func (r *Requests) replace(t *tenant, w waiting, now time.Time) bool {
	var least *series
	if t.lines > 0 {
		least = r.leastBusy(t)
	} else {
		least = r.leastBusy(nil)
	}
	if least == nil || w.requests <= 2*least.rate+leastLead {
		return false
	}
	r.exchange(least, t, w, now)
	return true
}

// exchange makes a series leave, and gives a name to a waiting route of t, at once if there is room for both.
func (r *Requests) exchange(from *series, t *tenant, w waiting, now time.Time) {
	r.leave(from, now)
	if r.leaving[w.key] != nil || r.lines+linesOfNew > r.most {
		return
	}
	from.replaced = true
	r.add(t, w.key).rate = w.requests
	t.named(w)
}

// waiting is a route, or the other routes of a gateway, whose requests were not counted by
// their own series.
type waiting struct {
	key      seriesKey
	requests uint64 // since the last settlement, at least
}

// waiting returns the routes that are in the summary and exist, the busiest first. A gateway's
// other routes come after a route that has as many requests.
func (t *tenant) waiting(routes Routes) []waiting {
	list := make([]waiting, 0, len(t.noted))
	for key, n := range t.noted {
		if exists(routes, &series{key: key, gateway: text(id.Gateway, key.gateway), route: text(id.Route, key.route)}) {
			list = append(list, waiting{key, n})
		}
	}
	slices.SortFunc(list, func(a, b waiting) int {
		if a.requests == b.requests && a.key.other != b.key.other {
			if a.key.other {
				return 1
			}
			return -1
		}
		return cmp.Or(cmp.Compare(b.requests, a.requests), bytes.Compare(a.key.gateway[:], b.key.gateway[:]), bytes.Compare(a.key.route[:], b.key.route[:]))
	})
	return list
}
