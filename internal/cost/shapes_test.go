package cost_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/cost"
)

// sse returns the events of a stream in one of the forms that text/event-stream allows.
func sse(end string, list ...string) string {
	var b strings.Builder
	for _, e := range list {
		name, data, found := strings.Cut(e, " ")
		if !found || strings.HasPrefix(name, "{") || strings.HasPrefix(name, "[") {
			name, data = "", e
		}
		if name != "" {
			b.WriteString("event: " + name + end)
		}
		for line := range strings.SplitSeq(data, "\n") {
			b.WriteString("data: " + line + end)
		}
		b.WriteString(end)
	}
	return b.String()
}

// shape is a response as providers of language models send it.
type shape struct {
	name, contentType, body string
	rule                    string // from, unknown
	units                   int64
	read                    string
	partly                  []int64 // what it costs if it ends early without being cut, beside max
}

func shapes() []shape {
	const (
		chat      = `"from":{"json":{"usage.prompt_tokens":1,"usage.completion_tokens":4,"usage.prompt_tokens_details.cached_tokens?":-0.5},"by":"model","prices":{"large-1":{"usage.prompt_tokens":5,"usage.completion_tokens":15}}}`
		responses = `"from":{"json":{"usage.input_tokens|response.usage.input_tokens":1,"usage.output_tokens|response.usage.output_tokens":4}}`
		messages  = `"from":{"json":{"message.usage.input_tokens|usage.input_tokens":3,"usage.output_tokens|message.usage.output_tokens":15,"message.usage.cache_read_input_tokens|usage.cache_read_input_tokens?":0.3}}`
		generate  = `"from":{"json":{"usageMetadata.promptTokenCount":1,"usageMetadata.candidatesTokenCount":2,"usageMetadata.thoughtsTokenCount?":2}}`
		local     = `"from":{"json":{"prompt_eval_count":1,"eval_count":1}}`
	)
	chunk := func(content, usage string) string {
		return `{"id":"c-1","object":"chat.completion.chunk","model":"small-1","choices":[{"index":0,"delta":{"content":"` + content + `"},"finish_reason":null}],"usage":` + usage + `}`
	}
	usage := `{"prompt_tokens":1000,"completion_tokens":51,"total_tokens":1051,"prompt_tokens_details":{"cached_tokens":101}}`
	chatEvents := []string{chunk("Hel", "null"), chunk(`lo \"usage\":{\"prompt_tokens\":7}`, "null"), chunk("\\n", "null"), `{"id":"c-1","object":"chat.completion.chunk","model":"small-1","choices":[],"usage":` + usage + `}`, "[DONE]"}
	messageEvents := []string{
		`message_start {"type":"message_start","message":{"id":"m-1","role":"assistant","model":"m","content":[],"usage":{"input_tokens":25,"cache_read_input_tokens":10,"output_tokens":1}}}`,
		`content_block_start {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`,
		`ping {"type": "ping"}`,
		`content_block_delta {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hello"}}`,
		`content_block_delta {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"!"}}`,
		`content_block_stop {"type":"content_block_stop","index":0}`,
		`message_delta {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":15}}`,
		`message_stop {"type":"message_stop"}`,
	}
	responseEvents := []string{
		`response.created {"type":"response.created","sequence_number":0,"response":{"id":"r-1","status":"in_progress","usage":null}}`,
		`response.output_text.delta {"type":"response.output_text.delta","sequence_number":1,"delta":"Hi"}`,
		`response.output_text.delta {"type":"response.output_text.delta","sequence_number":2,"delta":" you"}`,
		`response.completed {"type":"response.completed","sequence_number":3,"response":{"id":"r-1","status":"completed","output":[{"type":"message","content":[{"text":"Hi you"}]}],"usage":{"input_tokens":36,"input_tokens_details":{"cached_tokens":0},"output_tokens":87,"total_tokens":123}}}`,
	}
	part := func(text string, out int) string {
		return fmt.Sprintf(`{"candidates":[{"content":{"parts":[{"text":%q}],"role":"model"},"index":0}],"usageMetadata":{"promptTokenCount":8,"candidatesTokenCount":%d,"totalTokenCount":%d},"modelVersion":"g-1"}`, text, out, 8+out)
	}
	list := []shape{
		{"chat completion", plainJSON, `{"id":"c-1","object":"chat.completion","model":"small-1","choices":[{"index":0,"message":{"role":"assistant","content":"Hello"}}],"usage":` + usage + `}`, chat, 1000 + 204 - 50, "prompt_tokens 1,000 × 1, completion_tokens 51 × 4, cached_tokens 101 × -0.5", nil},
		{"chat completion of a large model", plainJSON, `{"model":"large-1","usage":` + usage + `}`, chat, 5000 + 765, "large-1: prompt_tokens 1,000 × 5, completion_tokens 51 × 15", nil},
		{"message", plainJSON, "{\n  \"model\": \"m\",\n  \"usage\": {\n    \"input_tokens\": 25,\n    \"output_tokens\": 15\n  }\n}\n", messages, 300, "usage.input_tokens 25 × 3, usage.output_tokens 15 × 15, message.usage.cache_read_input_tokens 0 × 0.3", nil},
		{"generate content", plainJSON, part("Hi", 5), generate, 18, "promptTokenCount 8 × 1, candidatesTokenCount 5 × 2, thoughtsTokenCount 0 × 2", nil},
		{"stream of generate content, an array", plainJSON, "[" + part("Hi", 1) + "\n,\r\n" + part(" you", 3) + "\n]", generate, 14, "promptTokenCount 8 × 1, candidatesTokenCount 3 × 2, thoughtsTokenCount 0 × 2", nil},
		{"lines of a local model", "application/x-ndjson", `{"response":"Hi","done":false}` + "\n" + `{"response":"","done":true,"prompt_eval_count":26,"eval_count":290}` + "\n", local, 316, "prompt_eval_count 26 × 1, eval_count 290 × 1", nil},
	}
	for _, end := range []string{"\n", "\r\n", "\r"} {
		list = append(list,
			shape{"stream of a chat completion", events, sse(end, chatEvents...), chat, 1000 + 204 - 50, "prompt_tokens 1,000 × 1, completion_tokens 51 × 4, cached_tokens 101 × -0.5", nil},
			shape{"stream of messages", events, sse(end, messageEvents...), messages, 75 + 225 + 3, "message.usage.input_tokens 25 × 3, usage.output_tokens 15 × 15, message.usage.cache_read_input_tokens 10 × 0.3", []int64{75 + 15 + 3}},
			shape{"stream of a response", events, sse(end, responseEvents...), responses, 36 + 348, "response.usage.input_tokens 36 × 1, response.usage.output_tokens 87 × 4", nil},
			shape{"stream of generate content, events", events, sse(end, part("Hi", 1), part(" you", 3)), generate, 14, "promptTokenCount 8 × 1, candidatesTokenCount 3 × 2, thoughtsTokenCount 0 × 2", []int64{10}},
			shape{"event of several lines", events, ": hello" + end + end + sse(end, "{\n  \"usage\": {\n    \"prompt_tokens\": 3,\n    \"completion_tokens\": 4\n  }\n}"), chat, 19, "prompt_tokens 3 × 1, completion_tokens 4 × 4, cached_tokens 0 × -0.5", nil})
	}
	return list
}

// Guarantee: what providers of language models send is read, in one piece, byte by byte and cut in two anywhere.
func TestShapes(t *testing.T) {
	for _, s := range shapes() {
		p := cost.Compile(mustRead(t, `[{"meter":"tokens","max":100000,`+s.rule+`}]`))
		body := []byte(s.body)
		want := fmt.Sprintf("%+v %s\n", cost.Figure{Units: s.units, Read: true, Known: true}, s.read)
		if got := readAll(p, s.contentType, "", body); got != want {
			t.Errorf("%s: got %s, want %s", s.name, got, want)
		}
		for i := range body {
			if got := readAll(p, s.contentType, "", cutAt(body, i)...); got != want {
				t.Errorf("%s, in two pieces at %d: got %s, want %s", s.name, i, got, want)
			}
		}
		if got := readAll(p, s.contentType, "", cutAnywhere(body, 1, 1)...); got != want {
			t.Errorf("%s, byte by byte: got %s, want %s", s.name, got, want)
		}
	}
}

// Guarantee: hanging up saves nothing. A response that is cut, at whatever byte, costs at least what unknown says, and
// what was read; one that ends early, without being cut, costs its figure only if it has it.
func TestShapesCutAnywhere(t *testing.T) {
	for _, s := range shapes() {
		for _, unknown := range []string{`"max"`, `"reserve"`, `{"bytes_out":0.25}`, `{"bytes_in":2}`} {
			rules := mustRead(t, `[{"meter":"tokens","reserve":20,"max":100000,"unknown":`+unknown+`,`+s.rule+`}]`)
			p := cost.Compile(rules)
			for i := range len(s.body) + 1 {
				o := cost.End{Status: 200, BytesIn: 30, BytesOut: int64(i)}
				least, _ := rules[0].Settle(o, cost.Figure{})
				r := p.Reader(s.contentType, "")
				r.Write([]byte(s.body[:i]))
				f := r.Figure(0)
				units, reason := r.Result(0, o)
				if reason != cost.Incomplete || units < least || units < f.Units || units > 100000 {
					t.Fatalf("%s, cut at %d of %d: got %d units and reason %q, want at least %d and %d", s.name, i, len(s.body), units, reason, least, f.Units)
				}
				if i == len(s.body) && f.Units != s.units {
					t.Fatalf("%s: got %d units as read so far, want %d", s.name, f.Units, s.units)
				}
				o.Whole = true
				units, reason = r.Result(0, o)
				known := units == s.units
				for _, n := range s.partly {
					known = known || units == n
				}
				if reason == cost.None && !known || reason != cost.None && units < least {
					t.Fatalf("%s, ended at %d of %d: got %d units and reason %q", s.name, i, len(s.body), units, reason)
				}
				r.Close()
			}
		}
	}
}

// Guarantee: in a stream every field counts from the last event that has it, and one that is null or not there leaves what
// an earlier event said.
func TestLastEventCounts(t *testing.T) {
	for _, tc := range []struct {
		name, fields, body string
		units              int64
		reason             cost.Reason
	}{
		{"absent later", `{"a":1,"b":10}`, sse("\n", `{"a":1,"b":1}`, `{"a":2}`, `{"b":3}`, `{"c":1}`), 32, cost.None},
		{"null later", `{"a":1}`, sse("\n", `{"a":1}`, `{"a":null}`), 1, cost.None},
		{"zero later", `{"a":1}`, sse("\n", `{"a":1}`, `{"a":0}`), 0, cost.None},
		{"null only", `{"a":1}`, sse("\n", `{"a":null}`), 9000, cost.Missing},
		{"a number later is no number", `{"a":1}`, sse("\n", `{"a":1}`, `{"a":{}}`), 9000, cost.NotANumber},
		{"the last event has one of two", `{"a|b":1}`, sse("\n", `{"a":1}`, `{"b":2}`), 2, cost.None},
		{"the last event has both", `{"a|b":1}`, sse("\n", `{"b":2}`, `{"a":3,"b":4}`), 3, cost.None},
		{"the first path is null", `{"a|b":1}`, sse("\n", `{"a":null,"b":4}`), 4, cost.None},
		{"an event that is not JSON", `{"a":1}`, sse("\n", `{"a":1}`, `{"a":2`, `{"a":3}}`, `{"a":4} {"a":5}`, `[{"a":6}]`, `"a"`, `7`, "[DONE]"), 1, cost.None},
		{"only [DONE]", `{"a":1}`, sse("\n", "[DONE]"), 9000, cost.Missing},
		{"no events", `{"a":1}`, "", 9000, cost.Missing},
		{"the last event has no empty line", `{"a":1}`, "data: {\"a\":1}\n\ndata: {\"a\":2}\n", 2, cost.None},
		{"the last event has no line end", `{"a":1}`, "data: {\"a\":1}\n\ndata: {\"a\":2}", 2, cost.None},
		{"the last event is cut after its figure", `{"a":1}`, "data: {\"a\":1}\n\ndata: {\"a\":2,", 9000, cost.Invalid},
		{"the last event is cut in its figure", `{"a":1}`, "data: {\"a\":1}\n\ndata: {\"a\":2", 9000, cost.Invalid},
		{"the last event is cut and not JSON", `{"a":1}`, "data: {\"a\":1}\n\ndata: [DON", 1, cost.None},
		{"no space after the colon", `{"a":1}`, "data:{\"a\":1}\n\n", 1, cost.None},
		{"other lines", `{"a":1}`, "id: 1\nretry: 5\nevent: x\n: {\"a\":5}\ndatas: {\"a\":6}\ndata\ndata: {\"a\":1}\ndata\n\n", 1, cost.None},
		{"a name with a prefix", `{"a":1}`, "dat: {\"a\":6}\n\n data: {\"a\":7}\n\ndata: {\"a\":1}\n\n", 1, cost.None},
		{"a byte order mark", `{"a":1}`, "\xef\xbb\xbfdata: {\"a\":1}\n\n", 1, cost.None},
		{"half a byte order mark", `{"a":1}`, "\xef\xbbdata: {\"a\":1}\n\n", 9000, cost.Missing},
	} {
		p := cost.Compile(mustRead(t, `[{"meter":"tokens","max":9000,"from":{"json":`+tc.fields+`}}]`))
		r := p.Reader(events, "")
		r.Write([]byte(tc.body))
		if units, reason := r.Result(0, cost.End{Status: 200, Whole: true}); units != tc.units || reason != tc.reason {
			t.Errorf("%s: got %d units and reason %q, want %d and %q", tc.name, units, reason, tc.units, tc.reason)
		}
		r.Close()
	}
}

// Guarantee: the lessons of others. Zero is not taken for absent, nor absent for zero; what cannot be read is neither, and
// says why.
func TestZeroAndAbsent(t *testing.T) {
	deep := func(n int) string { return strings.Repeat(`{"x":`, n) + `{"a":1}` + strings.Repeat("}", n) }
	for _, tc := range []struct {
		name, fields, body string
		units              int64
		reason             cost.Reason
	}{
		{"zero", `{"a":1}`, `{"a":0}`, 0, cost.None},
		{"zero in a string", `{"a":1}`, `{"a":"0"}`, 0, cost.None},
		{"-0", `{"a":1}`, `{"a":-0.0}`, 0, cost.None},
		{"absent", `{"a":1}`, `{}`, 9000, cost.Missing},
		{"one of two is absent", `{"a":1,"b":1}`, `{"a":1}`, 9000, cost.Missing},
		{"optional", `{"a":1,"b?":1}`, `{"a":1}`, 1, cost.None},
		{"only optional", `{"b?":1}`, `{}`, 0, cost.None},
		{"optional and no number", `{"a":1,"b?":1}`, `{"a":1,"b":"x"}`, 9000, cost.NotANumber},
		{"null", `{"a":1}`, `{"a":null}`, 9000, cost.Missing},
		{"the object is null", `{"u.a":1}`, `{"u":null}`, 9000, cost.Missing},
		{"the object is an array", `{"u.a":1}`, `{"u":[{"a":1}]}`, 9000, cost.Missing},
		{"another object", `{"u.a":1}`, `{"v":{"u":{"a":1}},"a":2}`, 9000, cost.Missing},
		{"in a string", `{"a":1}`, `{"b":"{\"a\":1}"}`, 9000, cost.Missing},
		{"true", `{"a":1}`, `{"a":true}`, 9000, cost.NotANumber},
		{"an array", `{"a":1}`, `{"a":[1]}`, 9000, cost.NotANumber},
		{"an empty string", `{"a":1}`, `{"a":""}`, 9000, cost.NotANumber},
		{"negative", `{"a":1}`, `{"a":-1}`, 9000, cost.Negative},
		{"negative with a negative weight", `{"a":-1}`, `{"a":-1}`, 9000, cost.Negative},
		{"2^53", `{"a":1}`, `{"a":9007199254740992}`, 9000, cost.TooLarge},
		{"2^53 of little weight", `{"a":0.000001}`, `{"a":9007199254740992}`, 9000, cost.TooLarge},
		{"a sum of 2^53", `{"a":1000000,"b":1}`, `{"a":9007199255,"b":0}`, 9000, cost.TooLarge},
		{"below 0 is 0", `{"a":1,"b":-1}`, `{"a":1,"b":2}`, 0, cost.None},
		{"rounded up", `{"a":0.000001}`, `{"a":1}`, 1, cost.None},
		{"the sum is rounded, not its parts", `{"a":0.5,"b":0.5}`, `{"a":1,"b":1}`, 1, cost.None},
		{"an exponent", `{"a":1}`, `{"a":1.5e2}`, 150, cost.None},
		{"the last of two members", `{"a":1}`, `{"a":1,"a":2}`, 2, cost.None},
		{"the last of two is null", `{"a":1}`, `{"a":1,"a":null}`, 9000, cost.Missing},
		{"the last of two objects", `{"u.a":1}`, `{"u":{"a":1},"u":{}}`, 9000, cost.Missing},
		{"the last of two objects is none", `{"u.a":1}`, `{"u":{"a":1},"u":5}`, 9000, cost.Missing},
		{"an escaped name", `{"aé😀":1}`, `{"\u0061\u00E9\ud83d\uDE00":3}`, 3, cost.None},
		{"an element without", `{"a":1}`, `[{"a":1},{"b":2}]`, 1, cost.None},
		{"an element that is null", `{"a":1}`, `[{"a":1},{"a":null}]`, 1, cost.None},
		{"arrays in the array", `{"a":1}`, `[[{"a":1}]]`, 9000, cost.Missing},
		{"no elements", `{"a":1}`, `[]`, 9000, cost.Missing},
		{"no object", `{"a":1}`, `1`, 9000, cost.Missing},
		{"empty", `{"a":1}`, ``, 9000, cost.Missing},
		{"blank", `{"a":1}`, " \r\n", 9000, cost.Missing},
		{"cut in the number", `{"a":1}`, `{"a":12`, 9000, cost.Invalid},
		{"cut after the number", `{"a":1}`, `{"a":12,`, 9000, cost.Invalid},
		{"cut after the object", `{"a":1}`, `[{"a":12}`, 9000, cost.Invalid},
		{"not JSON after it", `{"a":1}`, `{"a":12}x`, 9000, cost.Invalid},
		{"not JSON", `{"a":1}`, `<html>`, 9000, cost.Invalid},
		{"a value of 1 KiB", `{"a":1}`, `{"a":` + strings.Repeat("0", 0) + `0.` + strings.Repeat("0", 1021) + `1}`, 1, cost.None},
		{"a longer value", `{"a":1}`, `{"a":0.` + strings.Repeat("0", 1022) + `1}`, 9000, cost.TooLong},
		{"a longer string", `{"a":1}`, `{"a":"0.` + strings.Repeat("0", 1022) + `1"}`, 9000, cost.TooLong},
		{"depth 64", `{"` + strings.Repeat("x.", 63) + `a":1}`, deep(63), 1, cost.None},
		{"below depth 64", `{"a":1}`, `{"b":` + deep(1000) + `,"a":2}`, 2, cost.None},
		{"below depth 64, with brackets in strings", `{"a":1}`, strings.Repeat("[", 70) + `"]\"]",{"}":1}` + strings.Repeat("]", 70) + `{"a":2}`, 2, cost.None},
	} {
		p := cost.Compile(mustRead(t, `[{"meter":"tokens","max":9000,"from":{"json":`+tc.fields+`}}]`))
		for _, pieces := range [][][]byte{{[]byte(tc.body)}, cutAnywhere([]byte(tc.body), 1, 1)} {
			r := p.Reader(plainJSON, "")
			for _, b := range pieces {
				r.Write(b)
			}
			if units, reason := r.Result(0, cost.End{Status: 200, Whole: true}); units != tc.units || reason != tc.reason {
				t.Errorf("%s: got %d units and reason %q, want %d and %q", tc.name, units, reason, tc.units, tc.reason)
			}
			r.Close()
		}
	}
}

// Guarantee: events that are passed over without parsing have nothing that counts: a field is found whatever its name is
// written like, and a text of by that changes is noticed, however often the events before were alike.
func TestEventsThatAreAlike(t *testing.T) {
	const rules = `[{"meter":"tokens","max":9000,"from":{"json":{"u.tokens":1},"by":"model","prices":{"b":{"u.tokens":10},"c":{"u.tokens":100}}}}]`
	alike := func(model, text string) string {
		return `{"id":"chunk-0123456789-0123456789","model":"` + model + `","choices":[{"text":"` + text + `"}]}`
	}
	many := func(n int, event string) []string {
		return strings.Split(strings.Repeat(event+"\x00", n)[:n*(len(event)+1)-1], "\x00")
	}
	differing := func(model string) (list []string) {
		for _, text := range []string{"a", "be", "a cat", "d", "\\n", "f"} {
			list = append(list, alike(model, text))
		}
		return list
	}
	names := func(end string) (list []string) {
		for _, name := range []string{"a", "be", "a cat", "d", "e", "f"} {
			list = append(list, `{"id":"chunk-0123456789-0123456789","model":"b","u":{"`+name+end+`:7}}`)
		}
		return list
	}
	usage := `{"u":{"tokens":7}}`
	for _, tc := range []struct {
		name   string
		events []string
		units  int64
	}{
		{"one text", append(many(20, alike("b", "x")), usage), 70},
		{"no text that is a price", append(many(20, alike("x", "x")), usage), 7},
		{"the figure before", append([]string{usage}, many(20, alike("b", "x"))...), 70},
		{"an escaped name", append(many(20, alike("b", "x")), `{"u":{"toke\u006es":7}}`), 70},
		{"an escaped name of an object", append(many(20, alike("b", "x")), `{"\u0075":{"tokens":7}}`), 70},
		{"an escaped name of by", append(many(20, alike("b", "x")), `{"mode\u006c":"c"}`, usage), 700},
		{"spaces", append(many(20, alike("b", "x")), `{ "model" : "c" }`, ` { "u" : { "tokens" : 7 } } `), 700},
		{"other texts", append(differing("b"), usage), 70},
		{"another text at the end", append(many(20, alike("b", "x")), alike("c", "x"), usage), 700},
		{"another text between", slices.Concat(differing("b"), []string{alike("c", "x")}, differing("b"), []string{usage}), 70},
		{"other texts between", slices.Concat(differing("b"), differing("c"), differing("b"), []string{usage}), 70},
		{"another text with the figure", append(append(many(5, alike("b", "x")), `{"model":"c","u":{"tokens":7}}`), many(5, alike("b", "y"))...), 70},
		{"a longer text", append(many(5, alike("b", "x")), alike("bc", "x"), usage), 7},
		{"a text that is null", append(many(5, alike("b", "x")), `{"model":null}`, usage), 70},
		{"a text that is a number", append(many(5, alike("b", "x")), `{"model":1}`, usage), 7},
		{"the same text elsewhere", append(many(5, alike("b", "x")), `{"x":{"model":"c"}}`, usage), 70},
		{"the text twice in an event", append(many(5, alike("b", "x")), `{"model":"b","model":"c"}`, usage), 700},
		{"a text that looks like two", []string{`{"model":"b\",\"x\":\"y"}`, `{"model":"b","x":"y"}`, usage}, 70},
		{"a field in a text", append(many(5, alike("b", `x\"u\":{\"tokens\":7}`)), `{"text":"\"tokens\":9"}`, usage), 70},
		{"a figure in an event that begins like the others", append(many(5, alike("b", "x")), strings.TrimSuffix(alike("b", "x"), "}")+`,"u":{"tokens":7}}`), 70},
		{"names that differ", append(names(`"`), `{"id":"chunk-0123456789-0123456789","model":"b","u":{"tokens":7}}`), 70},
		{"names that differ, with a space", append(names(`" `), `{"id":"chunk-0123456789-0123456789","model":"b","u":{"tokens" :7}}`), 70},
		{"names that differ, with a line break", append(names("\"\n"), "{\"id\":\"chunk-0123456789-0123456789\",\"model\":\"b\",\"u\":{\"tokens\"\n:7}}"), 70},
		{"many escapes", append(many(5, alike("b", strings.Repeat(`\n`, 300))), usage), 70},
		{"many letters of the names", append(many(5, alike("b", strings.Repeat("km", 300))), usage), 70},
	} {
		p := cost.Compile(mustRead(t, rules))
		for _, end := range []string{"\n", "\r\n", "\r"} {
			var pieces [][]byte
			for _, e := range tc.events {
				pieces = append(pieces, []byte(sse(end, e)))
			}
			body := []byte(sse(end, tc.events...))
			for name, pieces := range map[string][][]byte{"in one piece": {body}, "each event for itself": pieces, "in pieces of 10 bytes": cutAnywhere(body, 1, 10)} {
				if got, want := result(p, events, "", pieces...), fmt.Sprintf("%d ", tc.units); got != want {
					t.Errorf("%s, %s: got %q, want %q", tc.name, name, got, want)
				}
			}
		}
	}
}
