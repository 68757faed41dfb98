package hpack

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/http2/hpack"
)

// responseHead is what a service behind the gateway sends with each response. The value of the last
// field differs each time.
func responseHead(i int) [][2]string {
	return [][2]string{
		{":status", "200"},
		{"server", "nginx/1.22.1"},
		{"date", "Mon, 23 Nov 2026 09:45:43 GMT"},
		{"content-type", "application/json"},
		{"content-length", "381"},
		{"x-ratelimit-limit", "1000000"},
		{"x-ratelimit-reset", "1795340743"},
		{"x-ratelimit-remaining", fmt.Sprint(999_999 - i)},
	}
}

// encodeBlock returns a header block with the fields.
func encodeBlock(e *Encoder, head [][2]string) []byte {
	block := e.Start(nil)
	for _, f := range head {
		block = e.Append(block, []byte(f[0]), []byte(f[1]), false)
	}
	return block
}

// lines returns the fields as decodeBlock does.
func lines(head [][2]string) (fields []string) {
	for _, f := range head {
		fields = append(fields, f[0]+": "+f[1])
	}
	return fields
}

// Guarantee: repeated fields take a byte each, and a field whose value differs each time neither
// displaces them nor repeats its name.
func TestRepeatedFieldsAreIndexed(t *testing.T) {
	e, d := NewEncoder(nil), NewDecoder(noLimits, nil)
	for i := range 1000 {
		head := responseHead(i)
		block := encodeBlock(e, head)
		if fields, err := decodeBlock(d, block); err != nil || !slices.Equal(fields, lines(head)) {
			t.Fatalf("block %d: got %q, error %v; want %q", i, fields, err, lines(head))
		}
		if last := len("remaining"); i > 1 && len(block) > len(head)+last {
			t.Fatalf("block %d has %d bytes, want at most a byte for each field and a number", i, len(block))
		}
	}
	if e.table.n != 7 {
		t.Errorf("got a table of %q, want each field but :status once", e.table.contents())
	}
}

// Guarantee: secrets are never indexed, are marked as such for the hops that follow, and
// leave nothing in the dynamic table, whatever the case of their names and however often
// they are sent.
func TestSecretsAreNeverIndexed(t *testing.T) {
	e, d := NewEncoder([]string{"x-api-key", "apikey"}), NewDecoder(noLimits, nil)
	secrets := [][2]string{
		{"authorization", "Bearer abc"}, {"Authorization", ""}, {"proxy-authorization", "Basic abc"}, {"Set-Cookie", "session=0123456789012345678901234567890123456789"},
		{"cookie", "pin=1234"}, {"x-api-key", "abc"}, {"X-API-Key", "abc"}, {"ApiKey", "abc"},
	}
	var want []string
	for _, s := range secrets {
		want = append(want, strings.ToLower(s[0])+": "+s[1]+"*")
	}
	for range 3 {
		if fields, err := decodeBlock(d, encodeBlock(e, secrets)); err != nil || !slices.Equal(fields, want) {
			t.Fatalf("got %q, error %v; want %q", fields, err, want)
		}
		block := e.Append(e.Start(nil), []byte("accept"), []byte("*/*"), true)
		if fields, err := decodeBlock(d, block); err != nil || !slices.Equal(fields, []string{"accept: */**"}) {
			t.Fatalf("a field that another hop marked: got %q, error %v; want it marked", fields, err)
		}
	}
	if e.table.n != 0 {
		t.Errorf("got a table of %q, want none", e.table.contents())
	}
	cookie := [][2]string{{"cookie", "session=0123456789012345678901234567890123456789"}}
	encodeBlock(e, cookie)
	encodeBlock(e, cookie)
	if block := encodeBlock(e, cookie); len(block) != 1 {
		t.Errorf("a long cookie, repeated: got %d bytes, want 1", len(block))
	}
	e = NewEncoder([]string{"cookie"})
	for range 3 {
		if block := encodeBlock(e, cookie); block[0]>>4 != 1 {
			t.Errorf("a long cookie, named as a secret: got block %x, want a literal that is never indexed", block)
		}
	}
}

// Guarantee: the other side's table size is honoured. The next block announces a new size. If the
// size was lowered and raised since the last block, it announces 0 first, which x/net accepts. A
// size above ours changes nothing.
func TestTableSizeIsSignalled(t *testing.T) {
	entry := [][2]string{{"name", "value"}}
	for _, c := range []struct {
		sizes []uint32
		want  string
		n     int // entries left
	}{
		{[]uint32{4096}, "", 1},
		{[]uint32{65536}, "", 1},
		{[]uint32{0}, "20", 0},
		{[]uint32{100}, "3f 45", 1},
		{[]uint32{40}, "3f 09", 0},
		{[]uint32{100, 60}, "3f 1d", 1},
		{[]uint32{0, 4096}, "20 3f e1 1f", 0},
		{[]uint32{100, 65536}, "20 3f e1 1f", 0},
		{[]uint32{0, 4096, 40}, "20 3f 09", 0},
	} {
		e, ours, reference := NewEncoder(nil), NewDecoder(noLimits, nil), newTheirs()
		decode := func(block []byte) {
			t.Helper()
			fields, err := decodeBlock(ours, block)
			theirs, theirErr := reference.decode(block)
			if err != nil || theirErr != nil || !slices.Equal(fields, lines(entry)) || !slices.Equal(theirs, fields) {
				t.Errorf("sizes %v: got %q, error %v; x/net got %q, error %v; want %q", c.sizes, fields, err, theirs, theirErr, lines(entry))
			}
		}
		decode(encodeBlock(e, entry))
		for _, size := range c.sizes {
			e.SetTableSize(size)
			reference.d.SetAllowedMaxDynamicTableSize(size)
		}
		if e.table.n != c.n {
			t.Errorf("sizes %v: got %d entries, want %d", c.sizes, e.table.n, c.n)
		}
		block := encodeBlock(e, entry)
		if want := fromHex(t, c.want); !bytes.HasPrefix(block, want) || block[len(want)]>>5 == 1 {
			t.Errorf("sizes %v: got block %x, want it to begin with %x", c.sizes, block, want)
		}
		decode(block)
		if block := encodeBlock(e, entry); block[0]>>5 == 1 {
			t.Errorf("sizes %v: got block %x, want the size only once", c.sizes, block)
		}
	}
}

// Guarantee: a string is Huffman-coded only if that is shorter.
func TestStringsTakeTheShorterForm(t *testing.T) {
	for s, want := range map[string]string{
		"":           "00",
		"302":        "82 64 02",
		"no-cache":   "86 a8 eb 10 64 9c bf",
		"a":          "01 61",
		"~~\x00\x00": "04 7e 7e 00 00",
		"{}{}{}{}{}": "0a 7b 7d 7b 7d 7b 7d 7b 7d 7b 7d",
	} {
		if got := appendText(nil, []byte(s)); !bytes.Equal(got, fromHex(t, want)) {
			t.Errorf("%q: got %x, want %s", s, got, want)
		}
	}
}

// Guarantee: the index finds each entry of the table, the newest of those that are equal,
// and nothing that has been evicted, as the table grows and entries come and go.
func TestIndexFindsEveryEntry(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	e := NewEncoder(nil)
	for range 5000 {
		name, value := fmt.Sprint("n", r.IntN(200)), fmt.Sprint(r.IntN(3))
		e.Append(nil, []byte(name), []byte(value), false)
		contents := e.table.contents()
		probe := contents[r.IntN(len(contents))]
		if r.IntN(4) == 0 {
			probe = fmt.Sprintf("n%d: %d", r.IntN(200), r.IntN(3))
		}
		name, value, _ = strings.Cut(probe, ": ")
		nameHash := hashOf(0, []byte(name))
		if got, want := e.index.find(&e.table, hashOf(nameHash, []byte(value)), []byte(name), []byte(value), true), slices.Index(contents, probe); got != want {
			t.Fatalf("field %q in %q: got index %d, want %d", probe, contents, got, want)
		}
		want := slices.IndexFunc(contents, func(s string) bool { return strings.HasPrefix(s, name+": ") })
		if got := e.index.find(&e.table, nameHash, []byte(name), nil, false); got != want {
			t.Fatalf("name %q in %q: got index %d, want %d", name, contents, got, want)
		}
	}
}

// Guarantee: an encoder keeps a bounded amount of memory, whatever it encodes.
func TestEncoderIsBounded(t *testing.T) {
	e, d := NewEncoder(nil), NewDecoder(noLimits, nil)
	for i := 0; i < 2000; i += 9 {
		head := [][2]string{{fmt.Sprintf("N%s%d", strings.Repeat("n", i), i), ""}, {fmt.Sprint(i), strings.Repeat("v", i)}, {fmt.Sprint("x", i), ""}}
		want := lines(head)
		want[0] = strings.ToLower(want[0])
		if fields, err := decodeBlock(d, encodeBlock(e, head)); err != nil || !slices.Equal(fields, want) {
			t.Fatalf("got %q, error %v; want %q", fields, err, want)
		}
	}
	if len(e.table.buf) > 2*TableSize || len(e.table.ring) > TableSize/overhead || len(e.index) > TableSize/overhead {
		t.Errorf("got a table of %d bytes and %d entries, links of %d", len(e.table.buf), len(e.table.ring), len(e.index))
	}
}

// Guarantee: an encoder allocates nothing once its memory has grown: neither for repeated
// heads nor for heads with new names, which go into the dynamic table, in upper case too.
func TestEncodeDoesNotAllocate(t *testing.T) {
	e := NewEncoder([]string{"x-api-key"})
	var heads [][][2][]byte
	for i := range 700 {
		var head [][2][]byte
		for _, f := range append(responseHead(i), [2]string{fmt.Sprint("X-Name-", i), "value"}, [2]string{"set-cookie", "a"}) {
			head = append(head, [2][]byte{[]byte(f[0]), []byte(f[1])})
		}
		heads = append(heads, head)
	}
	dst := make([]byte, 0, 4096)
	encode := func(head [][2][]byte) {
		dst = e.Start(dst[:0])
		for _, f := range head {
			dst = e.Append(dst, f[0], f[1], false)
		}
	}
	i := 0
	next := func() { encode(heads[i]); i++ }
	for range 300 {
		next()
	}
	if allocs := testing.AllocsPerRun(300, next); allocs != 0 {
		t.Errorf("got %v allocations for each head, want none", allocs)
	}
}

// BenchmarkEncode encodes the head of a response, here and with x/net: the same each
// time, and with one value that changes.
func BenchmarkEncode(b *testing.B) {
	for _, c := range []struct {
		name  string
		heads int
	}{{"again", 1}, {"one new value", 4096}} {
		var heads [][][2]string
		for i := range c.heads {
			heads = append(heads, responseHead(i))
		}
		b.Run(c.name+"/keygate", func(b *testing.B) {
			b.ReportAllocs()
			e := NewEncoder([]string{"x-api-key"})
			bytesOf := make([][][2][]byte, len(heads))
			for i, head := range heads {
				for _, f := range head {
					bytesOf[i] = append(bytesOf[i], [2][]byte{[]byte(f[0]), []byte(f[1])})
				}
			}
			var dst []byte
			i, n := 0, 0
			for b.Loop() {
				dst = e.Start(dst[:0])
				for _, f := range bytesOf[i%len(heads)] {
					dst = e.Append(dst, f[0], f[1], false)
				}
				i++
				n += len(dst)
			}
			b.ReportMetric(float64(n)/float64(i), "B/block")
		})
		b.Run(c.name+"/xnet", func(b *testing.B) {
			b.ReportAllocs()
			var w bytes.Buffer
			e := hpack.NewEncoder(&w)
			i, n := 0, 0
			for b.Loop() {
				w.Reset()
				for _, f := range heads[i%len(heads)] {
					_ = e.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
				}
				i++
				n += w.Len()
			}
			b.ReportMetric(float64(n)/float64(i), "B/block")
		})
	}
}
