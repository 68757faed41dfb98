package audit_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/keygatetest/proctest"
)

// mixed generates the traffic of a busy installation: 2,000 requests a second with 1,000
// keys that are used very unevenly, from 1,500 addresses, on four gateways. Half of the
// paths contain a number that is not repeated, and one request in twelve is refused.
type mixed struct {
	random  *rand.Rand
	keys    *rand.Zipf
	clients *rand.Zipf
	now     int64
}

func newMixed() *mixed {
	r := rand.New(rand.NewPCG(1, 2))
	return &mixed{random: r, keys: rand.NewZipf(r, 1.1, 10, 999), clients: rand.NewZipf(r, 1.1, 20, 1499), now: 1_800_000_000_000_000}
}

// next sets e to the next event.
func (m *mixed) next(e *audit.Event) {
	m.now += int64(m.random.ExpFloat64() * 500)
	k := m.keys.Uint64()
	*e = audit.Event{Time: m.now, Request: id.NewFastAt(m.now / 1000), Outcome: audit.Success, Method: "GET"}
	e.Key = [16]byte{6: 0x70, 8: 0x80, 14: byte(k >> 8), 15: byte(k)}
	e.Gateway = [16]byte{6: 0x70, 8: 0x80, 15: byte(k % 4)}
	copy(e.Prefix[:], fmt.Sprintf("kg_%06d", k))
	ip := m.clients.Uint64() * 2654435761
	copy(e.Client[10:], []byte{0xff, 0xff, byte(ip >> 24), byte(ip >> 16), byte(ip >> 8), byte(ip)})
	switch m.random.IntN(12) {
	case 0:
		e.Outcome = audit.KeyInvalid
		e.Key = [16]byte{}
	case 1, 2, 3:
		e.Method, e.Path = "POST", "/v1/orders"
		return
	}
	if m.random.IntN(2) == 0 {
		e.Path = fmt.Sprintf("/v1/orders/%d", m.random.IntN(10_000_000))
	} else {
		e.Path = fmt.Sprintf("/v1/catalogue/items/%d/price", m.random.IntN(300))
	}
}

// fill adds n events to t.
func (m *mixed) fill(t *audit.Table, n int) {
	var e audit.Event
	for range n {
		m.next(&e)
		t.AddEvent(&e)
	}
}

// perRecord reports the processor time since start for each of n records.
func perRecord(b *testing.B, start time.Duration, n int) {
	b.ReportMetric(float64(proctest.CPUTime(b)-start)/float64(b.N)/float64(n), "cpu-ns/record")
}

// BenchmarkTake, BenchmarkChunks and BenchmarkSeal measure the three steps of a record from
// the request path to its block: taking it, writing it to the open end, and sealing it. They
// should take at most 400 ns together.
func BenchmarkTake(b *testing.B) {
	events := make([]audit.Event, audit.RunRecords)
	m := newMixed()
	for i := range events {
		m.next(&events[i])
	}
	var table audit.Table
	b.ReportAllocs()
	start := proctest.CPUTime(b)
	for b.Loop() {
		table.Reset()
		for i := range events {
			table.AddEvent(&events[i])
		}
	}
	perRecord(b, start, len(events))
}

// BenchmarkSort sorts records of several shards. They arrive shard by shard, each in order.
func BenchmarkSort(b *testing.B) {
	const shards = 8
	events := make([]audit.Event, audit.RunRecords)
	m := newMixed()
	for i := range events {
		m.next(&events[(i%shards)*len(events)/shards+i/shards])
	}
	var table audit.Table
	start, filling := proctest.CPUTime(b), time.Duration(0)
	for b.Loop() {
		table.Reset()
		before := proctest.CPUTime(b)
		for i := range events {
			table.AddEvent(&events[i])
		}
		filling += proctest.CPUTime(b) - before
		table.Sort()
	}
	perRecord(b, start+filling, len(events))
}

func BenchmarkChunks(b *testing.B) {
	var table audit.Table
	newMixed().fill(&table, audit.RunRecords)
	b.ReportAllocs()
	start, size := proctest.CPUTime(b), 0
	for b.Loop() {
		table.Sort()
		chunks, err := table.Chunks("")
		if err != nil {
			b.Fatal(err)
		}
		size = len(chunks[0].Content) + len(chunks[1].Content)
	}
	perRecord(b, start, audit.RunRecords)
	b.ReportMetric(float64(size)/audit.RunRecords, "bytes/record")
}

// BenchmarkSeal also reports the size of a record of mixed traffic in its block. It should be
// at most 24 bytes, including the summary, by which searches skip the block.
func BenchmarkSeal(b *testing.B) {
	c := newCodec(b)
	var table audit.Table
	newMixed().fill(&table, audit.RunRecords)
	table.Sort()
	chunks, err := table.Chunks("")
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	size := 0
	var t audit.Table
	start := proctest.CPUTime(b)
	for b.Loop() {
		t.Reset()
		if _, err := c.Gather(&t, &audit.Open{Chunks: chunks}); err != nil {
			b.Fatal(err)
		}
		content, err := t.Encode(c)
		if err != nil {
			b.Fatal(err)
		}
		block := audit.Block{Content: content}
		block.Seal()
		size = len(content) + len(t.Summary(1).Marshal())
	}
	perRecord(b, start, audit.RunRecords)
	b.ReportMetric(float64(size)/audit.RunRecords, "bytes/record")
}

// BenchmarkOpen measures opening a block for a search, and decoding it wholly.
func BenchmarkOpen(b *testing.B) {
	c := newCodec(b)
	var table audit.Table
	newMixed().fill(&table, audit.RunRecords)
	table.Sort()
	content, err := table.Encode(c)
	if err != nil {
		b.Fatal(err)
	}
	for _, whole := range []bool{false, true} {
		b.Run(map[bool]string{false: "filters", true: "whole"}[whole], func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				v, err := c.Open(content)
				if err == nil && whole {
					err = v.All()
				}
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
