package meter

import (
	"bytes"
	"cmp"
	"hash/maphash"
	"slices"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/traffic"
)

// sentOf returns what counts a request of a cell by where it was sent, and creates it if needed.
func (w *window) sentOf(c *cell, e *accesslog.Entry) *sent {
	if c.sent != 0 {
		if s := w.sent[c.sent-1]; s.went(e) {
			return s
		}
	}
	i := identity{account: c.account, gateway: c.gateway, minute: c.minute, status: c.status}
	to := traffic.Destination{Upstream: e.UpstreamName, Target: e.Target}
	if e.Split {
		to.Side = to.Upstream
	}
	at, known := w.findSent(&i, &to)
	if !known {
		at = w.newSent(&i, to)
	}
	c.sent = at + 1
	return w.sent[at]
}

// findSent returns the index in sent of a destination of an identity. If it is not known, at is where it belongs in
// sentSlots.
func (w *window) findSent(i *identity, to *traffic.Destination) (at uint32, known bool) {
	mask := uint64(len(w.sentSlots) - 1)
	slot := w.hashSent(i, to) & mask
	for w.sentSlots[slot] != 0 {
		at := w.sentSlots[slot] - 1
		if s := w.sent[at]; s.identity == *i && s.to == *to {
			return at, true
		}
		slot = (slot + 1) & mask
	}
	return uint32(slot), false
}

// hashSent is safe against addresses that an account chooses.
func (w *window) hashSent(i *identity, to *traffic.Destination) uint64 {
	return maphash.String(w.seed, to.Target) ^ i.hash() ^ uint64(len(to.Upstream))<<17 ^ uint64(len(to.Side))<<23
}

// newSent adds a destination of an identity that is not known, and returns its index in sent. Beyond the bounds, it is that of
// OtherDestination.
func (w *window) newSent(i *identity, to traffic.Destination) uint32 {
	told := w.sentTo[i.account]
	if told == nil {
		told = new(traffic.Destinations)
		w.sentTo[i.account] = told
	}
	if to.Target != "" && !w.sentShares.MayTake(i.account, 1) {
		to = traffic.Destination{Upstream: traffic.OtherDestination, Target: traffic.OtherDestination}
	}
	to, id := told.Of(to)
	slot, known := w.findSent(i, &to)
	if known {
		return slot
	}
	w.sentShares.Take(i.account, 1)
	s := new(sent)
	if last := len(w.spareSent) - 1; last >= 0 {
		s, w.spareSent = w.spareSent[last], w.spareSent[:last]
	}
	s.identity, s.to, s.id = *i, to, id
	w.sent = append(w.sent, s)
	w.sentSlots[slot] = uint32(len(w.sent))
	if 2*len(w.sent) > len(w.sentSlots) {
		w.growSent()
	}
	return uint32(len(w.sent) - 1)
}

func (w *window) growSent() {
	w.sentSlots = make([]uint32, 2*len(w.sentSlots))
	for n, s := range w.sent {
		slot, _ := w.findSent(&s.identity, &s.to)
		w.sentSlots[slot] = uint32(n + 1)
	}
}

// resetSent removes all counts by destination, and keeps the memory.
func (w *window) resetSent() {
	for _, s := range w.sent {
		s.latency.Reset()
		s.upstream.Reset()
		s.Counts, s.amounts, s.to = traffic.Counts{}, s.amounts[:0], traffic.Destination{}
	}
	w.spareSent = append(w.spareSent, w.sent...)
	clear(w.sent)
	w.sent = w.sent[:0]
	clear(w.sentSlots)
	if len(w.sentTo) > keptTables {
		clear(w.sentTo)
	}
	for _, t := range w.sentTo {
		t.Reset()
	}
}

// sortedSent returns what counts by destination, in the order of accounts and minutes, and then of part Targets.
func (w *window) sortedSent() []*sent {
	sorted := slices.Clone(w.sent)
	slices.SortFunc(sorted, func(a, b *sent) int {
		return cmp.Or(a.compareInterval(&b.identity), bytes.Compare(a.gateway[:], b.gateway[:]), bytes.Compare(a.id[:], b.id[:]), cmp.Compare(a.status, b.status))
	})
	return sorted
}

// byTarget encodes counts by destination.
func byTarget(c traffic.Chunk, sorted []*sent) []traffic.Chunk {
	c.Part, c.Tier = traffic.Targets, traffic.Targets.In(c.Tier)
	to := traffic.NewWriter(c)
	for _, s := range sorted {
		of := s.entry()
		of.Destination = s.id
		to.Entry(&traffic.Entry{Identity: of, Counts: s.Counts, To: s.to, Amounts: s.amounts, Latency: &s.latency, Upstream: &s.upstream})
	}
	return to.Chunks()
}
