package traffic

import (
	"maps"
	"slices"
)

// Merger sums entries of one account, part and interval.
type Merger struct {
	part    Part
	entries map[Identity]*Entry
	meters  Meters
	amounts int // of all entries
	to      Destinations
}

// NewMerger returns an empty Merger for part Gateways, Routes, Keys, Targets or Subjects.
func NewMerger(p Part) *Merger { return &Merger{part: p, entries: map[Identity]*Entry{}} }

// Len returns the number of entries and of their amounts.
func (m *Merger) Len() int { return len(m.entries) + m.amounts }

// at returns the entry of an identity, and creates it if needed. Parts with destinations need the destination.
func (m *Merger) at(i Identity, to *Destination) *Entry {
	var sent Destination
	if i = i.of(m.part); m.part.hasDestinations() {
		sent, i.Destination = m.to.Of(*to)
	}
	e := m.entries[i]
	if e == nil {
		e = &Entry{Identity: i, To: sent}
		if m.part.hasLatencies() {
			e.Latency, e.Upstream = new(Sketch), new(Sketch)
		}
		m.entries[i] = e
	}
	return e
}

// Add adds e to the entry of its identity in the Merger's part.
func (m *Merger) Add(e *Entry) {
	to := m.at(e.Identity, &e.To)
	to.Counts.Add(&e.Counts)
	m.addAmounts(to, e.Amounts)
	if m.part.hasLatencies() && e.Latency != nil {
		to.Latency.Merge(e.Latency)
		to.Upstream.Merge(e.Upstream)
	}
}

func (m *Merger) addAmounts(to *Entry, amounts Amounts) {
	for _, a := range amounts {
		if to.Amounts.Add(m.meters.Of(a.Meter), a.Units) {
			m.amounts++
		}
	}
}

// AddBody adds the entries of the body of a chunk with the Merger's part.
func (m *Merger) AddBody(body []byte) error {
	return rows(m.part, body, func(e *row) error {
		to := m.at(e.Identity, e.to)
		to.Counts.Add(&e.Counts)
		m.addAmounts(to, e.Amounts)
		if !m.part.hasLatencies() {
			return nil
		}
		if err := to.Latency.MergeBytes(e.latency); err != nil {
			return err
		}
		return to.Upstream.MergeBytes(e.upstream)
	})
}

// Chunks returns the sums as chunks. They are copies of c with their own First, Last and
// Body.
func (m *Merger) Chunks(c Chunk) []Chunk {
	sorted := slices.SortedFunc(maps.Values(m.entries), func(a, b *Entry) int { return a.compare(m.part, &b.Identity) })
	c.Part = m.part
	w := NewWriter(c)
	for _, e := range sorted {
		w.Entry(e)
	}
	return w.Chunks()
}
