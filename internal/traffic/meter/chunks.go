package meter

import (
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/traffic"
)

// chunks returns what w counts, as chunks to be stored.
func (w *window) chunks() (made []traffic.Chunk) {
	type interval struct {
		account [16]byte
		minute  uint32
	}
	type sums struct {
		parts    [3]*traffic.Merger
		arrivals *traffic.Arrivals
	}
	intervals := map[interval]*sums{}
	of := func(i *identity) *sums {
		at := interval{i.account, i.minute}
		s := intervals[at]
		if s == nil {
			s = &sums{arrivals: traffic.NewArrivals()}
			for _, p := range []traffic.Part{traffic.Gateways, traffic.Routes, traffic.Keys} {
				s.parts[p] = traffic.NewMerger(p)
			}
			intervals[at] = s
		}
		return s
	}
	for n := range w.cells {
		c := &w.cells[n]
		s := of(&c.identity)
		e := &traffic.Entry{Identity: c.entry(), Counts: c.Counts}
		for _, m := range s.parts {
			m.Add(e)
		}
		w.arrivalsOf(c, s.arrivals)
	}
	for i, m := range w.byRoute {
		e := &traffic.Entry{Identity: i.entry(), Latency: &m.latency, Upstream: &m.upstream}
		s := of(&i)
		s.parts[traffic.Gateways].Add(e)
		s.parts[traffic.Routes].Add(e)
	}
	for at, s := range intervals {
		c := traffic.Chunk{AccountID: id.Format(id.Account, at.account), Tier: traffic.Minutes, State: traffic.Fresh, Start: int64(at.minute) * 60}
		for _, m := range s.parts {
			made = append(made, m.Chunks(c)...)
		}
		made = append(made, s.arrivals.Chunks(c)...)
	}
	return made
}

func (i *identity) entry() traffic.Identity {
	return traffic.Identity{Gateway: i.gateway, Route: i.route, Key: i.key, Status: i.status}
}

// arrivalsOf adds the arrivals of a cell.
func (w *window) arrivalsOf(c *cell, to *traffic.Arrivals) {
	caller := traffic.Caller{Gateway: c.gateway, Route: c.route, Key: c.key}
	for place := c.first; place != 0; {
		a := &w.arrivals[place-1]
		to.Add(caller, int(a.second), a.count)
		place = a.next
	}
}
