package hpack

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/http2/hpack"
)

// browserHead is what a browser sends with each request of an application.
var browserHead = [][2]string{
	{":method", "GET"},
	{":authority", "api.example.com"},
	{":scheme", "https"},
	{":path", "/v1/orders/8472?expand=items"},
	{"sec-ch-ua", `"Chromium";v="142", "Google Chrome";v="142", "Not_A Brand";v="99"`},
	{"sec-ch-ua-mobile", "?0"},
	{"sec-ch-ua-platform", `"Linux"`},
	{"user-agent", "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Safari/537.36"},
	{"accept", "application/json, text/plain, */*"},
	{"authorization", "Bearer kg_0123456789abcdefghijklmnopqrst000000"},
	{"origin", "https://app.example.com"},
	{"sec-fetch-site", "same-site"},
	{"sec-fetch-mode", "cors"},
	{"sec-fetch-dest", "empty"},
	{"referer", "https://app.example.com/"},
	{"accept-encoding", "gzip, deflate, br, zstd"},
	{"accept-language", "en-GB,en;q=0.9,de;q=0.8"},
	{"priority", "u=1, i"},
}

// encodeTheirs returns a head as the encoder of x/net encodes it, the first time and
// again.
func encodeTheirs(head [][2]string) (first, again []byte) {
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	for _, block := range []*[]byte{&first, &again} {
		b.Reset()
		for _, f := range head {
			_ = e.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
		}
		*block = bytes.Clone(b.Bytes())
	}
	return first, again
}

// Guarantee: a decoder allocates nothing once its memory has grown: neither for repeated
// heads nor for heads with new values that go into the dynamic table.
func TestDecodeDoesNotAllocate(t *testing.T) {
	d := NewDecoder(Limits{Size: 64 << 10, Fields: 100}, NewTags(func(name, value []byte) uint16 { return uint16(len(name) + len(value)) }))
	first, again := encodeTheirs(browserHead)
	var scratch Scratch
	var f Field
	decode := func(block []byte) {
		d.Start(block, &scratch)
		for d.Next(&f) {
			if int(f.Tag) != len(f.Name)+len(f.Value) {
				t.Fatalf("field %s: %s has tag %d", f.Name, f.Value, f.Tag)
			}
		}
		if err := d.Finish(); err != nil {
			t.Fatal(err)
		}
	}
	decode(first)
	if allocs := testing.AllocsPerRun(100, func() { decode(again) }); allocs != 0 {
		t.Errorf("a repeated head: got %v allocations, want none", allocs)
	}
	var blocks [][]byte
	for i := range 500 {
		blocks = append(blocks, appendField(nil, 0x40, "x-id", fmt.Sprint(i), i%2 == 0))
	}
	i := 0
	if allocs := testing.AllocsPerRun(len(blocks)-1, func() { decode(blocks[i]); i++ }); allocs != 0 {
		t.Errorf("heads with new values: got %v allocations each, want none", allocs)
	}
}

// Guarantee: a literal that takes its name from an entry has that name even if the literal
// moves or evicts the entry.
func TestNameOfAnEntryThatMoves(t *testing.T) {
	for length := range 3900 {
		if length%23 != 0 && length < 3800 {
			continue
		}
		d := NewDecoder(noLimits, nil)
		for i := range 5 { // the first entry is evicted; the others take 3,900 bytes
			if _, err := decodeBlock(d, appendField(nil, 0x40, fmt.Sprint("name-of-entry-", i), strings.Repeat(fmt.Sprint(i), 900), false)); err != nil {
				t.Fatal(err)
			}
		}
		value := strings.Repeat("v", length)
		block := appendString(appendInteger(nil, 0x40, 6, staticLen+d.table.n), value, true) // the oldest
		want := "name-of-entry-1: " + value
		if fields, err := decodeBlock(d, block); err != nil || !slices.Equal(fields, []string{want}) {
			t.Fatalf("a value of %d bytes: got %q, error %v", length, fields, err)
		}
		if length+len("name-of-entry-1")+overhead <= TableSize && d.table.contents()[0] != want {
			t.Fatalf("a value of %d bytes: got entry %q", length, d.table.contents()[0])
		}
	}
}

// Guarantee: a field has the tag that the function of the Tags gives for it, whichever
// its representation: a field of either table, a literal with a name of either table, or a whole
// literal. The function is called once for a field that a client repeats.
func TestTags(t *testing.T) {
	calls := 0
	tags := NewTags(func(name, value []byte) uint16 {
		calls++
		return uint16(len(name))<<8 | uint16(len(value))
	})
	d := NewDecoder(noLimits, tags)
	block := []byte{0x82}                                      // :method GET
	block = append(block, 0x41, 1, 'h')                        // :authority
	block = appendField(block, 0x40, "name", "value", true)    // indexed
	block = append(block, 0xbe, 0xbf, 0x0f, 0x2f, 2, 'v', 'v') // both again; name with another value
	block = appendField(block, 0x10, "secret", "value", false)
	var f Field
	var scratch Scratch
	calls = 0
	d.Start(block, &scratch)
	for d.Next(&f) {
		if want := uint16(len(f.Name))<<8 | uint16(len(f.Value)); f.Tag != want {
			t.Errorf("field %s: %s: got tag %#x, want %#x", f.Name, f.Value, f.Tag, want)
		}
	}
	if err := d.Finish(); err != nil || calls != 4 {
		t.Errorf("got %d calls, error %v; want 4, one for each literal", calls, err)
	}
}

// BenchmarkDecode decodes the head of a browser, first and again, here and with x/net.
func BenchmarkDecode(b *testing.B) {
	first, again := encodeTheirs(browserHead)
	n := 0
	for _, c := range []struct {
		name  string
		block []byte
	}{{"first", first}, {"again", again}} {
		b.Run(c.name+"/keygate", func(b *testing.B) {
			b.ReportAllocs()
			d := NewDecoder(Limits{Size: 64 << 10, Fields: 100}, nil)
			var scratch Scratch
			var f Field
			decode := func(block []byte) {
				d.Start(block, &scratch)
				for d.Next(&f) {
					n += len(f.Value)
				}
				if err := d.Finish(); err != nil {
					b.Fatal(err)
				}
			}
			decode(first)
			for b.Loop() {
				decode(c.block)
			}
		})
		b.Run(c.name+"/xnet", func(b *testing.B) {
			b.ReportAllocs()
			d := hpack.NewDecoder(TableSize, func(f hpack.HeaderField) { n += len(f.Value) })
			decode := func(block []byte) {
				if _, err := d.Write(block); err != nil {
					b.Fatal(err)
				}
				if err := d.Close(); err != nil {
					b.Fatal(err)
				}
			}
			decode(first)
			for b.Loop() {
				decode(c.block)
			}
		})
	}
}
