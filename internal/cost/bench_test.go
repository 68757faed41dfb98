package cost_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/cost"
	"github.com/keygate/keygate/internal/keygatetest/proctest"
)

const (
	benchTokens = `[{"meter":"tokens","max":100000,"from":{"json":{"usage.prompt_tokens":1,"usage.completion_tokens":4,"usage.prompt_tokens_details.cached_tokens?":-0.5}}}]`
	benchPrices = `[{"meter":"tokens","max":100000,"from":{"json":{"usage.prompt_tokens":1,"usage.completion_tokens":4},"by":"model","prices":{"sample-large":{"usage.prompt_tokens":5,"usage.completion_tokens":15}}}}]`
	benchUsage  = `{"prompt_tokens":1000,"completion_tokens":51,"total_tokens":1051,"prompt_tokens_details":{"cached_tokens":100,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":0}}`
)

// completion returns a response of about 2 KB, in the form of a chat completion.
func completion() []byte {
	content := strings.Repeat(`The quick brown fox jumps over the lazy dog, and looks back. `, 25)
	return []byte(`{"id":"chatcmpl-9aZkQ2mXr71LpTfVb0NcYwEd","object":"chat.completion","created":1780000000,"model":"sample-large","choices":[{"index":0,"message":{"role":"assistant","content":"` +
		content + `\n\nIt said: \"Well.\"","refusal":null,"annotations":[]},"logprobs":null,"finish_reason":"stop"}],"usage":` + benchUsage + `,"service_tier":"default","system_fingerprint":"fp_1a2b3c4d5e"}`)
}

// chunks returns 200 events in the form of a streamed chat completion; each has usage, the last one with figures.
func chunks() [][]byte {
	words := strings.Fields("The quick brown fox jumps over the lazy dog and looks back at it with a smile")
	list := make([][]byte, 200)
	for i := range list {
		usage := "null"
		if i == len(list)-2 {
			usage = benchUsage
		}
		list[i] = fmt.Appendf(nil, `data: {"id":"chatcmpl-9aZkQ2mXr71LpTfVb0NcYwEd","object":"chat.completion.chunk","created":1780000000,"model":"sample-large","service_tier":"default","system_fingerprint":"fp_1a2b3c4d5e","choices":[{"index":0,"delta":{"content":" %s"},"logprobs":null,"finish_reason":null}],"usage":%s}`+"\n\n", words[i%len(words)], usage)
	}
	list[len(list)-1] = []byte("data: [DONE]\n\n")
	return list
}

// Bars (plans.md, section 10): 2 µs for a response of 2 KB, 30 ns for an event, no allocation.
func BenchmarkReader(b *testing.B) {
	body := [][]byte{completion()}
	for _, bc := range []struct {
		name, rules, contentType, encoding string
		pieces                             [][]byte
		events                             int
	}{
		{"json", benchTokens, "application/json", "", body, 0},
		{"json-prices", benchPrices, "application/json", "", body, 0},
		{"json-gzip", benchTokens, "application/json", "gzip", [][]byte{gzipped(body...)}, 0},
		{"events", benchTokens, "text/event-stream", "", chunks(), 200},
		{"events-prices", benchPrices, "text/event-stream", "", chunks(), 200},
		{"events-in-one-piece", benchTokens, "text/event-stream", "", [][]byte{bytes.Join(chunks(), nil)}, 200},
		{"events-gzip", benchTokens, "text/event-stream", "gzip", [][]byte{gzipped(chunks()...)}, 200},
	} {
		b.Run(bc.name, func(b *testing.B) {
			p := cost.Compile(mustRead(b, bc.rules))
			size := 0
			for _, piece := range bc.pieces {
				size += len(piece)
			}
			b.SetBytes(int64(size))
			b.ReportAllocs()
			start := proctest.CPUTime(b)
			for b.Loop() {
				r := p.Reader(bc.contentType, bc.encoding)
				for _, piece := range bc.pieces {
					r.Write(piece)
				}
				if f := r.Figure(0); !f.Known {
					b.Fatal(f)
				}
				r.Close()
			}
			used := float64(proctest.CPUTime(b)-start) / float64(b.N)
			b.ReportMetric(used, "cpu-ns/response")
			if bc.events > 0 {
				b.ReportMetric(used/float64(bc.events), "cpu-ns/event")
			}
		})
	}
}
