package cost_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/cost"
	"github.com/keygate/keygate/internal/keygatetest/leaktest"
)

// Guarantee: no coroutine outlives its reader.
func TestMain(m *testing.M) { leaktest.Main(m) }

const one = `[{"meter":"tokens","max":9000,"from":{"json":{"a":1}}}]`

// result returns what a body costs that has ended whole.
func result(p *cost.Program, contentType, encoding string, pieces ...[]byte) string {
	r := p.Reader(contentType, encoding)
	defer r.Close()
	for _, b := range pieces {
		r.Write(b)
	}
	units, reason := r.Result(0, cost.End{Status: 200, Whole: true})
	return fmt.Sprintf("%d %s", units, reason)
}

// Guarantee: the types of JSON, of lines of JSON and of events are read, whatever their case and parameters, and no others.
func TestContentTypes(t *testing.T) {
	p := cost.Compile(mustRead(t, one))
	for contentType, want := range map[string]string{
		"application/json": "7 ", "Application/JSON; charset=utf-8": "7 ", " application/json ;x": "7 ", "application/vnd.api+json": "7 ", "application/problem+JSON;a=b": "7 ",
		"application/x-ndjson": "7 ", "application/ndjson": "7 ", "application/jsonl": "7 ", "application/x-jsonlines": "7 ",
		"text/event-stream": "9000 missing", "": "9000 missing", "text/plain": "9000 missing", "text/html; x=+json": "9000 missing", "+json": "9000 missing", "application/jsonp": "9000 missing", "application/json, text/plain": "9000 missing",
	} {
		if got := result(p, contentType, "", []byte(`{"a":7}`)); got != want {
			t.Errorf("%q: got %q, want %q", contentType, got, want)
		}
	}
	if got := result(p, "Text/Event-Stream;charset=UTF-8", "identity", []byte("data: {\"a\":7}\n\n")); got != "7 " {
		t.Errorf("events: got %q, want 7", got)
	}
}

// Guarantee: gzip is read, cut anywhere, in several members too; damaged or cut gzip, and any other encoding, is unknown.
func TestEncodings(t *testing.T) {
	p := cost.Compile(mustRead(t, one))
	body := []byte(`{"b":"` + strings.Repeat("text ", 20_000) + `","a":7}`)
	packed := gzipped(body)
	damaged := bytes.Clone(packed)
	damaged[len(damaged)/2] ^= 0x55
	sum := bytes.Clone(packed)
	sum[len(sum)-6] ^= 1
	for _, tc := range []struct {
		name, encoding string
		body           []byte
		want           string
	}{
		{"identity", "identity", body, "7 "},
		{"identity, in capitals", " Identity", body, "7 "},
		{"gzip", "gzip", packed, "7 "},
		{"gzip, in capitals", "GZIP ", packed, "7 "},
		{"x-gzip", "x-gzip", packed, "7 "},
		{"two members", "gzip", append(gzipped([]byte(`{"a"`)), gzipped([]byte(`:7}`))...), "7 "},
		{"many blocks", "gzip", gzipped(cutAnywhere(body, 1, 40)...), "7 "},
		{"no body", "gzip", nil, "9000 missing"},
		{"an empty body in gzip", "gzip", gzipped(), "9000 missing"},
		{"gzip that is none", "gzip", body, "9000 encoding"},
		{"gzip that is damaged", "gzip", damaged, "9000 encoding"},
		{"gzip with a wrong sum", "gzip", sum, "9000 encoding"},
		{"gzip that is cut", "gzip", packed[:len(packed)-1], "9000 encoding"},
		{"gzip of no JSON", "gzip", gzipped([]byte("<html>")), "9000 invalid"},
		{"br", "br", body, "9000 encoding"},
		{"deflate", "deflate", body, "9000 encoding"},
		{"two encodings", "gzip, gzip", gzipped(packed), "9000 encoding"},
		{"unknown", "x", body, "9000 encoding"},
	} {
		for _, pieces := range [][][]byte{{tc.body}, cutAnywhere(tc.body, 1, 3)} {
			if got := result(p, plainJSON, tc.encoding, pieces...); got != tc.want {
				t.Errorf("%s in %d pieces: got %q, want %q", tc.name, len(pieces), got, tc.want)
			}
		}
	}
}

// Guarantee: 16 MiB of a body are read, after gzip. What is beyond makes the cost unknown, and takes no time.
func TestMaxRead(t *testing.T) {
	p := cost.Compile(mustRead(t, one))
	const start, end = `{"a":7,"b":"`, `"}`
	fits := []byte(start + string(filler("xyzw", cost.MaxRead-len(start+end))) + end)
	for _, tc := range []struct {
		name string
		body []byte
		want string
	}{
		{"16 MiB", fits, "7 "},
		{"a byte more", append(bytes.Clone(fits), ' '), "9000 too_long"},
		{"a figure beyond", append(filler(" \n\t\r", cost.MaxRead), `{"a":7}`...), "9000 too_long"},
	} {
		if got := result(p, plainJSON, "", tc.body); got != tc.want {
			t.Errorf("%s: got %q, want %q", tc.name, got, tc.want)
		}
		if got := result(p, plainJSON, "", cutAnywhere(tc.body, 1, 64<<10)...); got != tc.want {
			t.Errorf("%s, in pieces: got %q, want %q", tc.name, got, tc.want)
		}
		if got := result(p, plainJSON, "gzip", gzipped(tc.body)); got != tc.want {
			t.Errorf("%s, in gzip: got %q, want %q", tc.name, got, tc.want)
		}
	}
	event := "data: {\"text\":\"" + strings.Repeat("x", 1000) + "\"}\n\n"
	long := []byte("data: {\"a\":7}\n\n" + strings.Repeat(event, cost.MaxRead/len(event)+1))
	if got := result(p, events, "", long[:cost.MaxRead]); got != "9000 invalid" { // the last event is cut
		t.Errorf("events: got %q", got)
	}
	if got := result(p, events, "", long); got != "9000 too_long" {
		t.Errorf("more events: got %q", got)
	}
}

// Guarantee: a compressed body that decodes to nothing, or to much less than it has itself, is not decoded for long.
func TestHollowBodies(t *testing.T) {
	p := cost.Compile(mustRead(t, `[{"meter":"t","max":9000,"from":{"json":{"a":1}}}]`))
	for name, unit := range map[string][]byte{"empty members": gzipped(nil), "empty blocks": {0, 0, 0, 0xff, 0xff}} {
		body := []byte{}
		if name == "empty blocks" {
			body = append(body, gzipped(nil)[:10]...) // the head of a member
		}
		for len(body) < 4<<20 {
			body = append(body, unit...)
		}
		r := p.Reader("application/json", "gzip")
		for len(body) > 0 {
			n := min(len(body), 16<<10)
			r.Write(body[:n])
			body = body[n:]
		}
		if units, reason := r.Result(0, cost.End{Status: 200, Whole: true}); units != 9000 || reason != cost.TooLong {
			t.Errorf("%s: got %d units, reason %q; want the maximum, since it is too long", name, units, reason)
		}
		r.Close()
	}
}

// Guarantee: reading a compressed body takes time for the bytes that it has, and not for those that it decodes to: a body that
// gzip has made a thousandth of its size is too long soon, and one of which it has left a thirtieth is read to its end.
func TestInflatedBodies(t *testing.T) {
	p := cost.Compile(mustRead(t, `[{"meter":"t","max":9000,"from":{"json":{"a":1}}}]`))
	line := []byte("{\"a\":1}\n")
	for _, tc := range []struct {
		name   string
		body   []byte
		reason cost.Reason
	}{
		{"256 KiB of one line", bytes.Repeat(line, 256<<10/len(line)), cost.None},
		{"8 MiB of one line", bytes.Repeat(line, 8<<20/len(line)), cost.TooLong},
		{"8 MiB that gzip makes a thirtieth", append([]byte(`{"a":1}`), filler(" \n\t\r", 8<<20)...), cost.None},
	} {
		body := gzipped(tc.body)
		if _, reason := resultOfGzip(p, body); reason != tc.reason {
			t.Errorf("%s in %d bytes: got reason %q, want %q", tc.name, len(body), reason, tc.reason)
		}
	}
}

// Guarantee: a stream is read in linear time, whichever line breaks it has: events of 9 bytes are no slower in a long piece.
// In time that grows with the square, this test would not end.
func TestManyShortEventsInOnePiece(t *testing.T) {
	p := cost.Compile(mustRead(t, everything)) // too many names for a filter, which would pass over them
	for _, end := range []string{"\r\r", "\n\n", "\r\n\r\n"} {
		event := "data:{}" + end
		body := strings.Repeat(event, cost.MaxRead/len(event)-10) + `data:{"a":7,"u":{"b":0}}` + end
		if got := result(p, "text/event-stream", "", []byte(body)); got != "7 " {
			t.Errorf("%q: got %q, want the last event", end, got)
		}
	}
}

// Guarantee: a reader that was used has nothing of the response before, whatever its form and its end.
func TestReadersAreReused(t *testing.T) {
	p := cost.Compile(mustRead(t, everything))
	bodies := []struct{ contentType, encoding, body string }{
		{plainJSON, "", `{"a":1,"u":{"b":2,"a":3},"m":"x","k/\"é":9`},
		{plainJSON, "", `{"u":{"b`},
		{plainJSON, "", `{"u":{"b":"`},
		{plainJSON, "", strings.Repeat(`{"x":[`, 100)},
		{events, "", "data: {\"a\":1,\"u\":{\"b\":2,\"m\":\"é\"}}\n\ndata: {\"id\":\"123456789012345678901234567890\"}\n\ndata: {\"id\":\"123456789012345678901234567890\"}\n\n"},
		{events, "", "\xef\xbb\xbfdata: {\"a\":1,\"u\":{\"b\""},
		{events, "", "\xef"},
		{events, "", "data: {\"u\":{}}\r"},
		{events, "", "\ndata: {\"u\":{\"b\":5}}"},
		{plainJSON, "gzip", string(gzipped([]byte(`{"a":1}`)))},
		{plainJSON, "gzip", string(gzipped([]byte(`{"a":1}`))[:15])},
		{plainJSON, "br", `{"a":1}`},
		{"text/plain", "", `{"a":1}`},
	}
	for _, first := range bodies {
		for _, then := range bodies {
			want := readAll(cost.Compile(p.Rules()), then.contentType, then.encoding, []byte(then.body))
			readAll(p, first.contentType, first.encoding, []byte(first.body))
			if got := readAll(p, then.contentType, then.encoding, []byte(then.body)); got != want {
				t.Errorf("%q after %q: got %s, want %s", then.body, first.body, got, want)
			}
		}
	}
}

// Guarantee: the memory of a reader is bounded by what its rules name, at most 50 KiB for any rules.
func TestMemoryOfReaders(t *testing.T) {
	rules := make([]string, cost.MaxRules)
	for i := range rules {
		var fields, paths []string
		for j := range cost.MaxFields {
			fields = append(fields, fmt.Sprintf(`"f%d.%d.x|g%d.%d.x|h%d.%d.x":1`, i, j, i, j, i, j))
		}
		for j := range cost.MaxPaths {
			paths = append(paths, fmt.Sprintf("m%d.%d", i, j))
		}
		rules[i] = fmt.Sprintf(`{"meter":"m%d","max":1,"from":{"json":{%s},"by":%q,"prices":{"x":{"a":1}}}}`, i, strings.Join(fields, ","), strings.Join(paths, "|"))
	}
	p := cost.Compile(mustRead(t, `[`+strings.Join(rules, ",")+`]`))
	const n = 64
	readers := make([]*cost.Reader, n)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for i := range readers {
		readers[i] = p.Reader(plainJSON, "")
	}
	runtime.ReadMemStats(&after)
	if got := (after.TotalAlloc - before.TotalAlloc) / n; got > 50<<10 {
		t.Errorf("a reader has %d bytes, want at most 50 KiB", got)
	}
	runtime.KeepAlive(readers)
}

// Guarantee: what was read is shown with names of the rule, numbers and values of prices alone, in 256 bytes.
func TestExplained(t *testing.T) {
	long := strings.Repeat("n", 200)
	for _, tc := range []struct{ name, from, body, want string }{
		{"all", `"json":{"u.a":1,"u.b":4}`, `{"u":{"a":1204567,"b":51}}`, "a 1,204,567 × 1, b 51 × 4"},
		{"decimals", `"json":{"a":0.25,"b?":-0.5}`, `{"a":12.50,"b":"0.0000000001"}`, "a 12.5 × 0.25, b 0 × -0.5"},
		{"missing", `"json":{"u.a":1,"u.b?":4}`, `{}`, "a missing, b 0 × 4"},
		{"not numbers", `"json":{"a":1,"b":2,"c":3,"d":4}`, `{"a":"secret","b":-5,"c":1e99,"d":"` + strings.Repeat("1", 2000) + `"}`, "a not_a_number, b negative, c too_large, d too_long"},
		{"names that end alike", `"json":{"in.n":1,"out.n":4,"out.m|x":5}`, `{"in":{"n":1},"out":{"n":2},"x":3}`, "in.n 1 × 1, out.n 2 × 4, x 3 × 5"},
		{"a price", `"json":{"a":1},"by":"m","prices":{"large":{"a":3}}`, `{"a":1,"m":"large"}`, "large: a 1 × 3"},
		{"another value", `"json":{"a":1},"by":"m","prices":{"large":{"a":3}}`, `{"a":1,"m":"secret"}`, "a 1 × 1"},
		{"a long value", `"json":{"a":1},"by":"m","prices":{"` + long + `":{"a":3}}`, `{"a":1,"m":"` + long + `"}`, long[:64] + "…: a 1 × 3"},
		{"long names", `"json":{"a` + long + `":1,"b` + long + `":2}`, `{"a` + long + `":1}`, "a" + long + " 1 × 1, …"},
		{"a longer name", `"json":{"a` + long + `.` + long[:50] + `":1,"b.` + long[:50] + `":2}`, `{}`, "…"},
	} {
		p := cost.Compile(mustRead(t, `[{"meter":"tokens","max":9000,"from":{`+tc.from+`}}]`))
		r := p.Reader(plainJSON, "")
		r.Write([]byte(tc.body))
		got := string(r.AppendRead([]byte("before "), 0))
		r.Close()
		if got != "before "+tc.want || len(tc.want) > 256 {
			t.Errorf("%s: got %q, want %q", tc.name, got, tc.want)
		}
	}
}

func resultOfGzip(p *cost.Program, body []byte) (units int64, reason cost.Reason) {
	r := p.Reader(plainJSON, "gzip")
	defer r.Close()
	r.Write(body)
	return r.Result(0, cost.End{Status: 200, Whole: true})
}

// filler returns n of the four characters, of which gzip leaves about a thirtieth.
func filler(characters string, n int) []byte {
	b := bytes.Repeat([]byte{characters[0]}, n)
	random := rand.New(rand.NewPCG(1, 2))
	for i := 0; i < n; i += 40 + random.IntN(20) {
		b[i] = characters[1+random.IntN(3)]
	}
	return b
}
