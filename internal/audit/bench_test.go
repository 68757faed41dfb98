package audit_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/id"
)

// mixed makes traffic as a busy gateway has it: 2,000 requests a second of 1,000
// keys that are used very unevenly, from 1,500 addresses, on four gateways; of
// the paths half have a number in them that does not come again; one in twelve
// is refused.
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

func (m *mixed) next(e *audit.Event) {
	m.now += int64(m.random.ExpFloat64() * 500)
	k := m.keys.Uint64()
	*e = audit.Event{Time: m.now, Request: id.At(m.now / 1000), Outcome: audit.Success, Method: "GET"}
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

func (m *mixed) fill(t *audit.Table, n int) {
	var e audit.Event
	for range n {
		m.next(&e)
		t.AddEvent(&e)
	}
}

// The bar: at most 24 bytes for each record of mixed traffic, filters included.
func BenchmarkEncode(b *testing.B) {
	c := newCodec(b)
	var table audit.Table
	newMixed().fill(&table, audit.MaxRecords)
	table.Sort()
	b.ReportAllocs()
	var content []byte
	for b.Loop() {
		var err error
		if content, err = table.Encode(c); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed())/float64(b.N)/audit.MaxRecords, "ns/record")
	b.ReportMetric(float64(len(content))/audit.MaxRecords, "bytes/record")
}
