package meter

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/traffic"
	"github.com/keygate/keygate/internal/usage"
)

// sortedCell is the index of a cell, with the first half of its key for sorting.
type sortedCell struct {
	key  uint64 // the first half of the key
	cell uint32
}

// chunks encodes the counts of w as chunks.
func (w *window) chunks() (made []traffic.Chunk) {
	sorted := make([]sortedCell, len(w.cells))
	for n := range w.cells {
		c := &w.cells[n]
		sorted[n] = sortedCell{binary.BigEndian.Uint64(c.key[:]), uint32(n)}
		c.measured.Counts.Add(&c.Counts)
		for at := c.charges; at != 0; at = w.charges[at-1].next {
			c.measured.amounts.Add(w.charges[at-1].Meter, w.charges[at-1].Units)
		}
	}
	// Nearly always all cells are of one account and minute, and most keys differ
	// in their first halves.
	slices.SortFunc(sorted, func(a, b sortedCell) int {
		x, y := &w.cells[a.cell], &w.cells[b.cell]
		if order := cmp.Or(x.compareInterval(&y.identity), cmp.Compare(a.key, b.key)); order != 0 {
			return order
		}
		return bytes.Compare(x.key[8:], y.key[8:])
	})
	measured := make([]identity, 0, len(w.byRoute))
	for i := range w.byRoute {
		measured = append(measured, i)
	}
	slices.SortFunc(measured, func(a, b identity) int {
		return cmp.Or(a.compareInterval(&b), bytes.Compare(a.route[:], b.route[:]))
	})
	sent, subjects := w.sortedSent(), w.sortedSubjects()
	for len(sorted) > 0 {
		of := w.cells[sorted[0].cell].identity
		n := 1
		for n < len(sorted) && w.cells[sorted[n].cell].compareInterval(&of) == 0 {
			n++
		}
		m := 0
		for m < len(measured) && measured[m].compareInterval(&of) == 0 {
			m++
		}
		s := 0
		for s < len(sent) && sent[s].compareInterval(&of) == 0 {
			s++
		}
		b := 0
		for b < len(subjects) && subjects[b].compareInterval(&of) == 0 {
			b++
		}
		c := traffic.Chunk{AccountID: id.Format(id.Account, of.account), Tier: traffic.Minutes, State: traffic.Fresh, Start: int64(of.minute) * 60}
		made = append(made, w.byKey(c, sorted[:n])...)
		made = append(made, w.bySecond(c, sorted[:n])...)
		made = append(made, w.measuredChunks(c, measured[:m])...)
		made = append(made, w.byMethod(c, measured[:m])...)
		made = append(made, byTarget(c, sent[:s])...)
		made = append(made, subjectChunks(c, subjects[:b])...)
		sorted, measured, sent, subjects = sorted[n:], measured[m:], sent[s:], subjects[b:]
	}
	return append(made, w.usageChunks()...)
}

// usageChunks encodes what counts for usage records, as chunks of hours.
func (w *window) usageChunks() (made []traffic.Chunk) {
	for account, t := range w.used {
		if t.Len() > 0 {
			made = append(made, usageChunks(t, traffic.Chunk{AccountID: id.Format(id.Account, account), Part: traffic.Usage, Tier: traffic.Open, State: traffic.Fresh})...)
		}
	}
	return made
}

// usageChunks encodes a table as chunks like c, each of one hour.
func usageChunks(t *usage.Table, c traffic.Chunk) (made []traffic.Chunk) {
	uses := t.Sorted()
	slices.SortStableFunc(uses, func(a, b *usage.Use) int { return cmp.Compare(a.Hour(), b.Hour()) })
	for len(uses) > 0 {
		c.Start = uses[0].Hour()
		n := 1
		for n < len(uses) && uses[n].Hour() == c.Start {
			n++
		}
		for _, body := range usage.Encode(uses[:n]) {
			c.Body = body.Bytes
			made = append(made, c)
		}
		uses = uses[n:]
	}
	return made
}

// compareInterval orders by account and minute.
func (i *identity) compareInterval(o *identity) int {
	return cmp.Or(cmp.Compare(i.minute, o.minute), bytes.Compare(i.account[:], o.account[:]))
}

func (i *identity) entry() traffic.Identity {
	return traffic.Identity{Gateway: i.gateway, Route: i.route, Key: i.key, Status: i.status}
}

// byKey encodes cells that are sorted by key.
func (w *window) byKey(c traffic.Chunk, sorted []sortedCell) []traffic.Chunk {
	c.Part = traffic.Keys
	to := traffic.NewWriter(c)
	var amounts traffic.Amounts
	for _, p := range sorted {
		cell := &w.cells[p.cell]
		amounts = w.amounts(cell, amounts[:0])
		to.Entry(&traffic.Entry{Identity: cell.entry(), Counts: cell.Counts, Amounts: amounts})
	}
	return to.Chunks()
}

// bySecond encodes the arrivals of cells. It reorders sorted.
func (w *window) bySecond(c traffic.Chunk, sorted []sortedCell) []traffic.Chunk {
	c.Part = traffic.Seconds
	sorted = slices.DeleteFunc(sorted, func(p sortedCell) bool { return w.cells[p.cell].first == 0 })
	slices.SortStableFunc(sorted, func(a, b sortedCell) int {
		x, y := &w.cells[a.cell], &w.cells[b.cell]
		return bytes.Compare(x.gateway[:], y.gateway[:])
	})
	to := traffic.NewWriter(c)
	var seconds []traffic.SecondCount
	for _, p := range sorted {
		cell := &w.cells[p.cell]
		seconds = seconds[:0]
		inOrder := true
		for at := cell.first; at != 0; {
			a := &w.arrivals[at-1]
			inOrder = inOrder && (len(seconds) == 0 || uint32(seconds[len(seconds)-1].Second) < a.second)
			seconds = append(seconds, traffic.SecondCount{Second: uint8(a.second), Count: a.count})
			at = a.next
		}
		if !inOrder {
			slices.SortFunc(seconds, func(a, b traffic.SecondCount) int { return cmp.Compare(a.Second, b.Second) })
		}
		to.Arrivals(&traffic.Flow{Gateway: cell.gateway, Route: cell.route, Key: cell.key}, seconds)
	}
	return to.Chunks()
}

// byMethod encodes the requests of routes by method. identities are sorted by route.
func (w *window) byMethod(c traffic.Chunk, identities []identity) []traffic.Chunk {
	c.Part = traffic.Methods
	sum := traffic.NewArrivals()
	for _, i := range identities {
		for _, m := range w.byRoute[i].methods {
			sum.Add(traffic.Flow{Gateway: i.gateway, Route: i.route, Key: traffic.MethodID(m.method)}, 0, m.count)
		}
	}
	return sum.Chunks(c)
}

// measuredChunks encodes the counts and latencies by gateway and by route. identities are
// sorted by route.
func (w *window) measuredChunks(c traffic.Chunk, identities []identity) []traffic.Chunk {
	gateways := traffic.NewMerger(traffic.Gateways)
	c.Part = traffic.Routes
	to := traffic.NewWriter(c)
	for _, i := range identities {
		m := w.byRoute[i]
		e := &traffic.Entry{Identity: i.entry(), Counts: m.Counts, Amounts: m.amounts, Latency: &m.latency, Upstream: &m.upstream}
		to.Entry(e)
		gateways.Add(e)
	}
	return append(to.Chunks(), gateways.Chunks(c)...)
}
