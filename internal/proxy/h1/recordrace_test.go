package h1

import (
	"bytes"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
)

// Guarantee: whenever the sweeper records the start of a request, each request is recorded
// once at its end, and each recorded start has its Ended.
func TestStartRecordedAtAnyMoment(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, s setup) {
		s.upstream, _ = byPath(t)
		g := start(t, s)
		g.byHand()
		const clients, each = 8, 10
		done := make(chan bool)
		var all sync.WaitGroup
		for range clients {
			all.Go(func() { g.makeRequests(t, each) })
		}
		go func() {
			all.Wait()
			close(done)
		}()
		for running := true; running; {
			select {
			case <-done:
				running = false
			case <-time.After(50 * time.Microsecond):
				g.recordStarts()
			}
		}
		g.stop(t.Context())
		started, ended, whole := map[[16]byte]int{}, map[[16]byte]int{}, map[[16]byte]int{}
		byPart := map[accesslog.Part]map[[16]byte]int{accesslog.Started: started, accesslog.Ended: ended, accesslog.Whole: whole}
		for _, entry := range g.records() {
			byPart[entry.Part][entry.Request]++
		}
		if n := len(ended) + len(whole); n != clients*each {
			t.Errorf("got %d requests with a record of their end, want %d", n, clients*each)
		}
		if len(started) != len(ended) {
			t.Errorf("got %d requests with a record of their start, want %d as of an Ended", len(started), len(ended))
		}
		for id, n := range ended {
			if n != 1 || started[id] != 1 || whole[id] != 0 {
				t.Errorf("request %x: got %d Started, %d Ended, %d Whole; want 1, 1, 0", id, started[id], n, whole[id])
			}
		}
		t.Logf("%d requests were recorded before their end", len(started))
	})
}

// tracer is a Tracer that makes its arguments visible.
type tracer struct{}

func (tracer) Begin(r *accesslog.Record, traceparent []byte) {
	r.Trace = [16]byte{}
	copy(r.Trace[:], traceparent)
}

func (tracer) Append(dst []byte, r *accesslog.Record, traceparent []byte) []byte {
	return append(append(append(dst, "ours-"...), bytes.TrimRight(r.Trace[:], "\x00")...), traceparent...)
}

// Guarantee: with a Tracer, the upstream receives the tracer's traceparent in place of the
// client's, whatever the client sends, and the record has the trace.
func TestTracer(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, s setup) {
		var heads chan string
		s.upstream, heads = upstreamOf(t, always(okResponse))
		s.tracer = tracer{}
		g := start(t, s)
		c := g.dial(t)
		for _, want := range []struct{ fields, upstream, record string }{
			{"traceparent: one\r\n", "Traceparent: ours-oneone\r\n", "one"},
			{"", "Traceparent: ours-\r\n", ""},
			{"Traceparent: one\r\nTraceparent: two\r\n", "Traceparent: ours-\r\n", ""},
		} {
			c.send("GET /a HTTP/1.1\r\nKEY\r\n" + want.fields + "\r\n")
			c.wantStatus("200")
			c.bytes(2)
			if h := <-heads; !strings.Contains(h+"\r\n", want.upstream) || strings.Count(strings.ToLower(h), "traceparent") != 1 {
				t.Errorf("%q: the upstream received\n%s\nwant %q only", want.fields, h, want.upstream)
			}
			if got := strings.TrimRight(string(g.records()[0].Trace[:]), "\x00"); got != want.record {
				t.Errorf("%q: got trace %q in the record, want %q", want.fields, got, want.record)
			}
		}
	})
}

// Guarantee: when clients hang up at any byte, no request is recorded twice, and each
// recorded start has its Ended.
func TestRecordsUnderAborts(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, s setup) {
		s.upstream, _ = byPath(t)
		g := start(t, s)
		var all sync.WaitGroup
		for n := range 100 {
			all.Go(func() {
				c := g.dial(t)
				request := "POST /five HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer " + g.key + "\r\nContent-Length: 5\r\n\r\nhello"
				_, _ = io.WriteString(c.Conn, strings.Repeat(request, 3)[:len(request)*3-n])
				if n%2 == 0 {
					_, _ = c.ReadByte()
				}
				_ = c.Close()
			})
		}
		all.Wait()
		g.stop(t.Context())
		ended, started := map[[16]byte]bool{}, map[[16]byte]bool{}
		for _, entry := range g.records() {
			if entry.Part == accesslog.Started {
				started[entry.Request] = true
				continue
			}
			if ended[entry.Request] {
				t.Fatalf("request %x: got two records of its end, want one", entry.Request)
			}
			ended[entry.Request] = true
			if entry.Part == accesslog.Ended && !started[entry.Request] {
				t.Errorf("request %x: got an Ended without a Started", entry.Request)
			}
			if entry.Part != accesslog.Ended && started[entry.Request] {
				t.Errorf("request %x: got part %d after a Started, want Ended", entry.Request, entry.Part)
			}
		}
	})
}
