package cost_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/cost"
)

const (
	plainJSON = "application/json"
	events    = "text/event-stream"
)

// everything is rules with every kind of field. The names are those that drawBody uses.
const everything = `[
	{"meter":"plain","max":9007199254740991,"from":{"json":{"a":1,"u.b":0.25,"u.c?":-2}}},
	{"meter":"either","max":9007199254740991,"from":{"json":{"a|u.a|u.v.a":3,"b|c?":0.000001}}},
	{"meter":"priced","max":9007199254740991,"from":{"json":{"u.b":1},"by":"m","prices":{"x":{"a":1000000},"y":{"u.a":7,"a?":-1},"true":{"c":1},"1":{"c":2}}}},
	{"meter":"others","max":9007199254740991,"from":{"json":{"k/\"é":1},"by":"u.m|m","prices":{"é":{"a":2}}}}
]`

// programs returns everything, which has too many names for a filter of events, and rules with few.
func programs(t testing.TB) []*cost.Program {
	var list []*cost.Program
	for _, text := range []string{
		everything,
		`[{"meter":"c","max":1000,"from":{"json":{"u.b":1,"a?":2},"by":"m","prices":{"x":{"u.b":3},"y":{"a?":1},"text":{"a":0.5}}}}]`,
		`[{"meter":"c","max":1000,"from":{"json":{"k/\"é":1},"by":"u.m|m","prices":{"x":{"a":3},"é":{"u.a":1}}}}]`,
		`[{"meter":"c","max":1000,"from":{"json":{"a|u.a":1}}},{"meter":"d","max":1000,"from":{"json":{"u.v.a":1},"by":"m","prices":{"more":{"a":7}}}},{"meter":"e","max":1000,"from":{"json":{"u.a?":1},"by":"u.m","prices":{"x":{"a":7}}}}]`,
	} {
		list = append(list, cost.Compile(mustRead(t, text)))
	}
	return list
}

// readAll returns everything that a Reader finds.
func readAll(p *cost.Program, contentType, encoding string, pieces ...[]byte) string {
	r := p.Reader(contentType, encoding)
	defer r.Close()
	for _, b := range pieces {
		b = bytes.Clone(b)
		r.Write(b)
		clear(b) // the reader keeps nothing of it
	}
	var out strings.Builder
	for i := range p.Rules() {
		fmt.Fprintf(&out, "%+v %s\n", r.Figure(i), r.AppendRead(nil, i))
	}
	return out.String()
}

// cutAt cuts a body into pieces at the positions, which rise.
func cutAt(body []byte, positions ...int) (pieces [][]byte) {
	from := 0
	for _, at := range positions {
		pieces = append(pieces, body[from:at])
		from = at
	}
	return append(pieces, body[from:])
}

// cutAnywhere cuts a body into pieces of lengths that a seed gives, up to the longest.
func cutAnywhere(body []byte, seed uint64, longest int) (pieces [][]byte) {
	random := rand.New(rand.NewPCG(seed, 1))
	for len(body) > 0 {
		n := min(len(body), 1+random.IntN(longest))
		pieces = append(pieces, body[:n])
		body = body[n:]
	}
	return pieces
}

// packers are of *gzip.Writer, which are large.
var packers = sync.Pool{New: func() any {
	w, err := gzip.NewWriterLevel(nil, gzip.BestSpeed)
	if err != nil {
		panic(err)
	}
	return w
}}

// gzipped returns the pieces in gzip, flushed after each.
func gzipped(pieces ...[]byte) []byte {
	var out bytes.Buffer
	w := packers.Get().(*gzip.Writer)
	defer packers.Put(w)
	w.Reset(&out)
	for _, p := range pieces {
		w.Write(p)
		w.Flush()
	}
	w.Close()
	return out.Bytes()
}

// check checks that a body is read alike in any pieces, with and without gzip, and as the reference reads it.
func check(t interface {
	Helper()
	Fatalf(string, ...any)
}, p *cost.Program, contentType string, body []byte, seed uint64,
) {
	t.Helper()
	whole := readAll(p, contentType, "", body)
	for _, longest := range []int{1, 7, 300} {
		if got := readAll(p, contentType, "", cutAnywhere(body, seed, longest)...); got != whole {
			t.Fatalf("%q in pieces of up to %d bytes: got\n%s\nwant, as in one piece,\n%s", body, longest, got, whole)
		}
	}
	for _, end := range []string{"\n\n", "\r\r", "\r\n\r\n"} { // an event at a time
		if got := readAll(p, contentType, "", bytes.SplitAfter(body, []byte(end))...); got != whole {
			t.Fatalf("%q in events: got\n%s\nwant, as in one piece,\n%s", body, got, whole)
		}
	}
	packed := gzipped(cutAnywhere(body, seed, 50)...)
	if got := readAll(p, contentType, "gzip", cutAnywhere(packed, seed, 20)...); got != whole && len(body) > 0 {
		t.Fatalf("%q with gzip: got\n%s\nwant\n%s", body, got, whole)
	}
	if !isComparable(body) {
		return
	}
	ref := refer(contentType, body)
	r := p.Reader(contentType, "")
	defer r.Close()
	r.Write(body)
	for i := range p.Rules() {
		got, want := r.Figure(i), ref.figure(&p.Rules()[i])
		switch {
		case ref.cut && got.Reason == cost.Invalid && !got.Known:
		case ref.invalid && got.Reason == cost.Invalid && !got.Known:
		case got != want:
			t.Fatalf("%q: got %+v for %s, want %+v", body, got, p.Rules()[i].Meter, want)
		}
	}
}

// Guarantee: a Reader finds what a decoder of whole bodies finds, however the body is cut: JSON, lines, arrays, events.
func TestReaderAgreesWithADecoder(t *testing.T) {
	list := programs(t)
	rapid.Check(t, func(t *rapid.T) {
		contentType := rapid.SampledFrom([]string{plainJSON, events}).Draw(t, "type")
		body, seed := drawBody(t, contentType), rapid.Uint64().Draw(t, "seed")
		for _, p := range list {
			check(t, p, contentType, body, seed)
		}
	})
}

// Guarantee: a stream of events that are alike is read as a decoder reads it, though most of them are passed over.
func TestStreamsAgreeWithADecoder(t *testing.T) {
	p := cost.Compile(mustRead(t, `[
		{"meter":"tokens","max":9007199254740991,"from":{"json":{"u.tokens":1,"u.more_tokens?":0.5},"by":"model","prices":{"b":{"u.tokens":1000},"c":{"u.tokens":1000000}}}}
	]`))
	rapid.Check(t, func(t *rapid.T) {
		mostly := func(usual string, others ...string) string {
			if i := rapid.IntRange(-4*len(others)-1, len(others)-1).Draw(t, "other"); i >= 0 {
				return others[i]
			}
			return usual
		}
		end := mostly("\n", "\r\n", "\r")
		texts := []string{"", "a", "tokens", "a word", `x\"tokens\":1`, `\u0041`, `\n`, `{\"model\":\"c\"}`, "k", "model", "é"}
		var list []string
		for range rapid.IntRange(5, 25).Draw(t, "events") {
			text := rapid.SampledFrom(texts).Draw(t, "text")
			event := `{"` + mostly("id", "model") + `":"` + mostly("chunk-0123456789-0123456789", "chunk-0123456789", "c") + `","` + mostly("model", `mode\u006c`, "name") + `":` + mostly(`"b"`, `"c"`, `"x"`, `null`, `"\u0063"`, `7`, `"b","model":"c"`) +
				mostly("", " ", ",\"e\":{}") + `,"` + mostly("c", text) + `":[{"t":"` + text + `"}],"u":` + mostly("null", `{"tokens":`+mostly("1", "2", `"3"`, "null", "x")+`}`, `{"more_tokens":4,"t\u006fkens":5}`, `{"`+text+`":6}`, `{"`+text+`" :7}`) + mostly("}", "", "}}")
			list = append(list, mostly(event, "[DONE]", strings.ReplaceAll(event, ",", ",\n"), "name "+event, "{}"))
		}
		check(t, p, events, []byte(sse(end, list...)+mostly("", "data: {\"u\":{\"tokens\":8}}", "data: {\"u\":{\"tokens\":9}")), rapid.Uint64().Draw(t, "seed"))
	})
}

// drawBody draws a body that is JSON, or nearly so.
func drawBody(t *rapid.T, contentType string) []byte {
	var b bytes.Buffer
	if rapid.IntRange(0, 9).Draw(t, "mark") == 0 {
		b.WriteString("\xef\xbb\xbf")
	}
	end := rapid.SampledFrom([]string{"\n", "\r", "\r\n"}).Draw(t, "end")
	line := func(s string) { b.WriteString(s + end) }
	shared := drawObject(t, 0) // most events of a stream are alike
	if rapid.Bool().Draw(t, "chunks") {
		shared = rapid.SampledFrom([]string{
			`{"id":"chunk-1234","object":"a chunk","m":"x","choices":[{"text":"text"}],"u":null}`,
			`{"id":"chunk-1234","object":"a chunk","choices":[{"text":"text"}],"m" : "text","v":0}`,
			`{"id":"chunk-1234","object":"a chunk of a long response","choices":[{"text":"text"}],"u":{"a":5,"m":"text"}}`,
		}).Draw(t, "shared")
	}
	for range rapid.IntRange(0, 12).Draw(t, "units") {
		text := drawObject(t, 0)
		switch rapid.IntRange(0, 9).Draw(t, "unit") {
		case 0, 1, 2, 5, 6, 7:
			text = strings.ReplaceAll(shared, "text", rapid.SampledFrom([]string{"text", "more", "n\\n", "\\u0041", "k", "x", "y"}).Draw(t, "text"))
		case 3:
			text = drawValue(t, 0)
		case 4:
			text = "[" + drawObject(t, 1) + ", " + drawValue(t, 1) + "," + drawObject(t, 1) + "]"
		}
		if rapid.IntRange(0, 30).Draw(t, "damage") == 0 {
			at := rapid.IntRange(0, len(text)).Draw(t, "at")
			text = text[:at] + rapid.SampledFrom([]string{"", "}", "x", "\"", "\x00", "\\"}).Draw(t, "by") + text[min(len(text), at+1):]
		}
		if contentType != events {
			line(text)
			continue
		}
		switch rapid.IntRange(0, 12).Draw(t, "line") {
		case 0:
			line("event: a \"name\"")
		case 1:
			line(": data: {\"a\":1}")
		case 2:
			line("data")
		case 3:
			line("data: [DONE]")
			line("")
		case 4:
			line("dat")
		case 5:
			line("")
		}
		for part := range strings.SplitSeq(text, "\n") {
			line(rapid.SampledFrom([]string{"data: ", "data:", "data:  "}).Draw(t, "data") + part)
		}
		line("")
	}
	body := b.Bytes()
	if rapid.IntRange(0, 3).Draw(t, "cut") == 0 {
		body = body[:rapid.IntRange(0, len(body)).Draw(t, "at")]
	}
	return body
}

func drawObject(t *rapid.T, depth int) string {
	var b strings.Builder
	space := func() { b.WriteString(rapid.SampledFrom([]string{"", "", "", " ", "\n", "\t "}).Draw(t, "space")) }
	b.WriteByte('{')
	space()
	for i := range rapid.IntRange(0, 5).Draw(t, "members") {
		if i > 0 {
			b.WriteByte(',')
			space()
		}
		name := rapid.SampledFrom([]string{"a", "b", "c", "u", "u", "v", "m", "m", "other", `k\/\"é`, `k/\"\u00E9`, `\u0061`, `\u0075`, "", "d😀", `\ud83d\ude00`}).Draw(t, "name")
		b.WriteString(`"` + name + `"`)
		space()
		b.WriteByte(':')
		space()
		if (name == "u" || name == "v") && rapid.IntRange(0, 5).Draw(t, "object") > 0 && depth < 5 {
			b.WriteString(drawObject(t, depth+1))
		} else {
			b.WriteString(drawValue(t, depth))
		}
		space()
	}
	b.WriteByte('}')
	return b.String()
}

func drawValue(t *rapid.T, depth int) string {
	kind := rapid.IntRange(0, 9).Draw(t, "kind")
	switch {
	case kind == 0 && depth < 5:
		return drawObject(t, depth+1)
	case kind == 1 && depth < 5:
		return "[" + drawValue(t, depth+1) + " ," + drawObject(t, depth+1) + "]"
	case kind == 2:
		return rapid.SampledFrom([]string{"null", "true", "false", "[]", "{}"}).Draw(t, "literal")
	case kind == 3:
		return rapid.SampledFrom([]string{`"x"`, `"y"`, `"é"`, `"\u00e9"`, `"\u0078"`, `"text"`, `"a \"a\":1 text"`, `"\ud83d\ude00"`, `"\ud83d"`, `"\ude00\ud83dx"`, `""`, `"\\"`}).Draw(t, "string")
	case kind == 4:
		return rapid.SampledFrom([]string{`"12"`, `"1.5"`, `" 1"`, `"0x1"`, `"-1"`, `"1e2"`, `"1\u0030"`, `"9007199254740992"`}).Draw(t, "number in a string")
	case kind == 5:
		return rapid.SampledFrom([]string{"1e400", "1e-400", "9007199254740991", "9007199254740992", "0.0000000001", "1.000000000000001", "-0", "-3", "0", "1E+2", "0.5e1", "1e99999999999", "1e-99999999999"}).Draw(t, "odd number")
	}
	return rapid.StringMatching(`(0|[1-9][0-9]{0,6})(\.[0-9]{1,3})?`).Draw(t, "number")
}

// Guarantee: whatever the bytes are and however they are cut, reading ends, is the same, and agrees with a decoder.
func FuzzReader(f *testing.F) {
	list := programs(f)
	for _, body := range []string{
		`{"a":1,"u":{"b":2.5,"c":"3"},"m":"x"}`, "{\"a\":1}\n{\"u\":{\"a\":2}}\n", `[{"a":1},{"a":2,"m":"y"},3]`, `{"a":1,"a":null}`, `{"u":{"b":1},"u":{}}`, `{"\u0061":1e3,"k\/\"\u00e9":2}`, `{"a":12`,
		"data: {\"a\":1,\"m\":\"x\"}\n\ndata: {\"text\":\"k\",\"m\":\"x\"}\n\ndata: {\"text\":\"l\",\"m\":\"x\"}\n\ndata: [DONE]\n\n", "data: {\"a\":\ndata: 1}\r\n\r\n", "event: x\rdata:{\"a\":1}\r\r", "\xef\xbb\xbfdata: {\"a\":1}",
		strings.Repeat(`{"u":`, 70), strings.Repeat("[", 70) + `{"a":1}` + strings.Repeat("]", 70),
	} {
		f.Add([]byte(body), false, uint64(1))
		f.Add([]byte(body), true, uint64(2))
	}
	f.Fuzz(func(t *testing.T, body []byte, isEvents bool, seed uint64) {
		contentType := plainJSON
		if isEvents {
			contentType = events
		}
		for _, p := range list {
			check(t, p, contentType, body, seed)
		}
	})
}

// Guarantee: gzip that is damaged or of another kind never ends the reading in another way than by a reason.
func FuzzGzip(f *testing.F) {
	p := cost.Compile(mustRead(f, everything))
	f.Add(gzipped([]byte(`{"a":1,"u":{"b":1}}`)), uint64(1))
	f.Add(append(gzipped([]byte(`{"a":1,`)), gzipped([]byte(`"u":{"b":1}}`))...), uint64(1))
	f.Add([]byte("\x1f\x8b\x08\x00"), uint64(2))
	f.Fuzz(func(t *testing.T, body []byte, seed uint64) {
		whole := readAll(p, plainJSON, "gzip", body)
		if got := readAll(p, plainJSON, "gzip", cutAnywhere(body, seed, 5)...); got != whole {
			t.Fatalf("%q in pieces: got\n%s\nwant\n%s", body, got, whole)
		}
	})
}
