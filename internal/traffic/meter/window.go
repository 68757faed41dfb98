package meter

import (
	"bytes"
	"encoding/binary"
	"hash/maphash"
	"math/bits"
	"strings"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/fairslots"
	"github.com/keygate/keygate/internal/traffic"
	"github.com/keygate/keygate/internal/usage"
)

// identity is what the cells of a window are grouped by.
type identity struct {
	account, gateway, route, key [16]byte
	minute                       uint32 // since 1970
	status                       uint16
}

// cell is the counts of the requests with one identity.
type cell struct {
	identity
	traffic.Counts
	measured *measured
	used     *usage.Use // where the last request of the cell counts for usage records; nil if none did
	// The first and the last of the cell's arrivals, a linked list in their order:
	// indexes in window.arrivals, plus one.
	first, last uint32
	charges     uint32 // the first of a linked list in window.charges: its index, plus one
	sent        uint32 // where the last request of the cell was sent: an index in window.sent, plus one
}

// measured is the latencies of the cells that differ only in their keys.
type measured struct {
	latency, upstream traffic.Sketch
	traffic.Counts    // sum over these cells, set when they are encoded, as the next field
	amounts           traffic.Amounts
	methods           []methodCount // of requests with a route; nearly always one
}

// methodCount is the number of requests with a method.
type methodCount struct {
	method accesslog.Method
	count  uint32
}

// add counts a request.
func (m *measured) add(method accesslog.Method) {
	for i := range m.methods {
		if m.methods[i].method == method {
			m.methods[i].count++
			return
		}
	}
	m.methods = append(m.methods, methodCount{method, 1})
}

// arrival counts the requests that reached the limits in one second.
type arrival struct {
	next   uint32 // index in window.arrivals, plus one; 0 at the end
	second uint32 // of the minute
	count  uint32
}

// charge is what the requests of a cell were charged of a meter.
type charge struct {
	traffic.Amount
	next uint32 // index in window.charges, plus one; 0 at the end
}

// sent is the counts of the requests of a gateway that were sent to one destination and have one status. Its identity has
// no route and no key.
type sent struct {
	identity
	traffic.Counts
	to                traffic.Destination
	id                [16]byte // of to
	amounts           traffic.Amounts
	latency, upstream traffic.Sketch
}

// went reports whether a request was sent to the destination.
func (s *sent) went(e *accesslog.Entry) bool {
	return s.to.Target == e.Target && s.to.Upstream == e.UpstreamName && (s.to.Side != "") == e.Split
}

// window is the counts since the last flush. Its memory is reused.
type window struct {
	cells    []cell
	slots    []uint32 // a hash table: indexes in cells, plus one; its length is a power of two, at most half used
	arrivals []arrival
	charges  []charge
	told     map[[16]byte]*traffic.Meters // the meters of charges that are told apart, by account

	used map[[16]byte]*usage.Table // by account

	sent      []*sent
	sentSlots []uint32                           // a hash table as slots, of sent
	sentTo    map[[16]byte]*traffic.Destinations // those of sent that are told apart, by account
	spareSent []*sent
	seed      maphash.Seed

	subjects   map[bearer]*bySubject
	subjectsOf map[[16]byte]*traffic.Destinations // those of subjects that are told apart, by account

	// What accounts have of cells, of charges, of sent, of subjects, and of identities in used and meters of costs that they have.
	cellShares, chargeShares, sentShares, subjectShares, useShares fairslots.Shares[[16]byte]
	names                                                          map[string]string // of the meters of costs, so that each is in memory once

	byRoute map[identity]*measured // without keys
	spare   []*measured
}

func newWindow() *window {
	return &window{
		slots: make([]uint32, 1024), byRoute: map[identity]*measured{}, told: map[[16]byte]*traffic.Meters{}, used: map[[16]byte]*usage.Table{}, names: map[string]string{},
		sentSlots: make([]uint32, 64), sentTo: map[[16]byte]*traffic.Destinations{}, seed: maphash.MakeSeed(),
		subjects: map[bearer]*bySubject{}, subjectsOf: map[[16]byte]*traffic.Destinations{}, subjectShares: fairslots.NewShares[[16]byte](maxSubjects),
		cellShares: fairslots.NewShares[[16]byte](maxCells), chargeShares: fairslots.NewShares[[16]byte](maxCharges), sentShares: fairslots.NewShares[[16]byte](maxSent), useShares: fairslots.NewShares[[16]byte](maxUses),
	}
}

// reset removes all counts and keeps the memory.
func (w *window) reset() {
	clear(w.charges) // their names are not kept
	w.cells, w.arrivals, w.charges = w.cells[:0], w.arrivals[:0], w.charges[:0]
	clear(w.slots)
	for _, m := range w.byRoute {
		m.latency.Reset()
		m.upstream.Reset()
		m.Counts, m.methods, m.amounts = traffic.Counts{}, m.methods[:0], m.amounts[:0]
		w.spare = append(w.spare, m)
	}
	clear(w.byRoute)
	w.cellShares.Reset()
	w.chargeShares.Reset()
	w.sentShares.Reset()
	w.resetSent()
	w.resetSubjects()
	w.useShares.Reset()
	if len(w.used) > keptTables {
		clear(w.used)
	}
	if len(w.told) > keptTables {
		clear(w.told)
	}
	for _, t := range w.told {
		t.Reset()
	}
	for _, t := range w.used {
		t.Clear()
	}
	if len(w.names) > keptNames {
		clear(w.names)
	}
}

const (
	keptTables = 64   // accounts whose tables of usage are kept for the next window
	keptNames  = 1024 // names of meters that are kept
)

// add counts a request. It reports whether what counts for usage records had room.
func (w *window) add(e *accesslog.Entry) bool {
	r := &e.Record
	second := max(r.Start, 0) / 1e6
	c := w.cell(&identity{account: r.Account, gateway: r.Gateway, route: r.Route, key: r.Key, minute: uint32(second / 60), status: r.Status})
	c.Requests++
	c.BytesIn += max(r.BytesIn, 0)
	c.BytesOut += max(r.BytesOut, 0)
	s := w.sentOf(c, e)
	s.Requests++
	s.BytesIn += max(r.BytesIn, 0)
	s.BytesOut += max(r.BytesOut, 0)
	if failedUpstream(r) {
		c.UpstreamErrors++
		s.UpstreamErrors++
	}
	var b *bySubject
	if e.Token != nil && e.Token.Subject != "" {
		b = w.bySubject(c, e)
	}
	c.measured.latency.Add(r.Duration)
	s.latency.Add(r.Duration)
	if r.Upstream >= 0 {
		c.measured.upstream.Add(r.Upstream)
		s.upstream.Add(r.Upstream)
	}
	if r.Route != [16]byte{} {
		c.measured.add(r.Method)
	}
	if cameToLimits(r) {
		w.arrive(c, uint32(second%60))
	}
	if e.Cost != "" {
		w.charge(c, b, e)
	}
	return r.PeriodEnd == 0 || r.Key == [16]byte{} || w.use(c, e)
}

// failedUpstream reports whether the upstream responded with 5xx, could not be reached, or timed out.
func failedUpstream(r *accesslog.Record) bool {
	return r.Result == accesslog.Unreachable || r.Result == accesslog.TimedOut || r.UpstreamStatus >= 500
}

// charge counts the costs of a request of a cell, and of a subject unless b is nil.
func (w *window) charge(c *cell, b *bySubject, e *accesslog.Entry) {
	told := w.told[e.Account]
	if told == nil {
		told = new(traffic.Meters)
		w.told[e.Account] = told
	}
	for one := range accesslog.Costs(e.Cost) {
		if one.Units <= 0 {
			continue
		}
		meter := told.Of(one.Meter)
		at := c.charges
		for at != 0 && w.charges[at-1].Meter != meter {
			at = w.charges[at-1].next
		}
		if at == 0 {
			w.chargeShares.Take(e.Account, 1)
			w.charges = append(w.charges, charge{traffic.Amount{Meter: meter}, c.charges})
			at = uint32(len(w.charges))
			c.charges = at
		}
		w.charges[at-1].Add(one.Units)
		w.sent[c.sent-1].amounts.Add(meter, one.Units)
		if b != nil {
			b.amounts.Add(meter, one.Units)
		}
	}
}

// amounts appends the charges of a cell to a.
func (w *window) amounts(c *cell, a traffic.Amounts) traffic.Amounts {
	for at := c.charges; at != 0; at = w.charges[at-1].next {
		a = append(a, w.charges[at-1].Amount)
	}
	return a
}

// use counts a request of a cell for usage records. It returns false if there is no room for its identity, or for one of its
// costs.
func (w *window) use(c *cell, e *accesslog.Entry) bool {
	u := c.used
	if u == nil || u.Owner != e.OwnerID || u.From != e.PeriodStart || u.Until != e.PeriodEnd {
		if u = w.useOf(e); u == nil {
			return false
		}
		c.used = u
	}
	u.Count(usage.BytesIn, e.BytesIn, 1)
	u.Count(usage.BytesOut, e.BytesOut, 1)
	requests, complete := int64(1), true
	for c := range accesslog.Costs(e.Cost) {
		switch {
		case c.Meter == usage.Requests:
			requests = c.Units
		case u.Has(c.Meter) || w.useShares.MayTake(e.Account, 1):
			w.useShares.Take(e.Account, u.Count(w.name(c.Meter), c.Units, 1))
		default:
			complete = complete && c.Units <= 0
		}
	}
	u.Count(usage.Requests, requests, 1)
	return complete
}

// name returns the name of a meter in memory that is not that of a request.
func (w *window) name(meter string) string {
	name, known := w.names[meter]
	if !known {
		name = strings.Clone(meter)
		w.names[name] = name
	}
	return name
}

// useOf returns where a request counts for usage records; nil if there is no room for its identity.
func (w *window) useOf(e *accesslog.Entry) *usage.Use {
	t := w.used[e.Account]
	if t == nil {
		t = new(usage.Table)
		w.used[e.Account] = t
	}
	i := usage.Identity{Owner: e.OwnerID, Key: e.Key, Gateway: e.Gateway, Route: e.Route, From: e.PeriodStart, Until: e.PeriodEnd}
	if !w.useShares.MayTake(e.Account, 1) && !t.Has(&i) {
		return nil
	}
	u, isNew := t.Of(&i)
	if isNew {
		w.useShares.Take(e.Account, 1)
		u.Texts = usage.Texts{ExternalID: e.Owner, Plan: e.Plan, Prefix: string(bytes.TrimRight(e.Prefix[:], "\x00"))}
	}
	return u
}

// cameToLimits reports whether the request reached the rate limits of its route.
func cameToLimits(r *accesslog.Record) bool {
	switch r.Result {
	case accesslog.Forwarded, accesslog.Unreachable, accesslog.TimedOut, accesslog.Limited, accesslog.Abandoned:
		return r.Route != [16]byte{}
	default:
		return false
	}
}

func (w *window) arrive(c *cell, second uint32) {
	if c.last != 0 {
		if a := &w.arrivals[c.last-1]; a.second == second {
			a.count++
			return
		}
	}
	w.arrivals = append(w.arrivals, arrival{second: second, count: 1})
	index := uint32(len(w.arrivals))
	if c.last == 0 {
		c.first = index
	} else {
		w.arrivals[c.last-1].next = index
	}
	c.last = index
}

// cell returns the cell of an identity, and creates it if needed.
func (w *window) cell(i *identity) *cell {
	mask := uint64(len(w.slots) - 1)
	at := i.hash() & mask
	for w.slots[at] != 0 {
		if c := &w.cells[w.slots[at]-1]; c.identity == *i {
			return c
		}
		at = (at + 1) & mask
	}
	w.cellShares.Take(i.account, 1)
	w.cells = append(w.cells, cell{identity: *i, measured: w.measured(*i)})
	w.slots[at] = uint32(len(w.cells))
	if 2*len(w.cells) > len(w.slots) {
		w.grow()
	}
	return &w.cells[len(w.cells)-1]
}

func (w *window) grow() {
	w.slots = make([]uint32, 2*len(w.slots))
	mask := uint64(len(w.slots) - 1)
	for n := range w.cells {
		at := w.cells[n].hash() & mask
		for w.slots[at] != 0 {
			at = (at + 1) & mask
		}
		w.slots[at] = uint32(n + 1)
	}
}

// measured returns the latencies for the cell of an identity, and creates them if needed.
func (w *window) measured(i identity) *measured {
	i.key = [16]byte{}
	m := w.byRoute[i]
	if m != nil {
		return m
	}
	if last := len(w.spare) - 1; last >= 0 {
		m, w.spare = w.spare[last], w.spare[:last]
	} else {
		m = new(measured)
	}
	w.byRoute[i] = m
	return m
}

// hash returns a hash of the identity. Identifiers differ in their last eight bytes, which
// are random.
func (i *identity) hash() uint64 {
	const odd1, odd2, odd3 = 0x9e3779b97f4a7c15, 0xd6e8feb86659fd93, 0xa0761d6478bd642f
	h := fold(&i.key)*odd1 ^ fold(&i.route)*odd2 ^ fold(&i.gateway)
	h ^= h >> 32
	h = (h ^ uint64(i.minute)<<16 ^ uint64(i.status)) * odd3
	return h ^ h>>29
}

func fold(u *[16]byte) uint64 {
	return bits.RotateLeft64(binary.LittleEndian.Uint64(u[:8]), 29) ^ binary.LittleEndian.Uint64(u[8:])
}
