package enginetest_test

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/upstream/upstreamtest"
)

// call sends a gRPC call whose body may not have ended, and returns the first frame of its
// response with the fields of that frame.
func (g *harness) call(path, key string, end bool, body []byte, more ...[2]string) (*http2.MetaHeadersFrame, map[string]string) {
	g.t.Helper()
	f := g.dialHTTP2()
	fields := [][2]string{
		{":method", "POST"}, {":scheme", "http"}, {":authority", "api.test"}, {":path", path}, {"te", "trailers"}, {"content-type", "application/grpc+proto"},
	}
	if key != "" {
		fields = append(fields, [2]string{"authorization", "Bearer " + key})
	}
	f.request(1, false, append(fields, more...))
	_ = f.WriteData(1, end, body)
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			g.t.Fatal(err)
		}
		if head, ok := frame.(*http2.MetaHeadersFrame); ok {
			values := map[string]string{}
			for _, field := range head.Fields {
				values[field.Name] = field.Value
			}
			return head, values
		}
	}
}

// refusal is an error of the gateway and how gRPC clients see it.
type refusal struct {
	name, path string
	noKey      bool
	more       [][2]string
	status     uint16 // in the record
	code       string
	message    string // a part of it
	limits     bool   // the response has the rate limit fields
}

// checkRefusal checks the response and the record of a refused gRPC call.
func (g *harness) checkRefusal(t *testing.T, c refusal, end bool) {
	t.Helper()
	key := g.key
	if c.noKey {
		key = ""
	}
	head, fields := g.call(c.path, key, end, []byte("\x00\x00\x00\x00\x10hello"), c.more...)
	if !head.StreamEnded() || fields[":status"] != "200" || fields["content-type"] != "application/grpc" || fields["content-length"] != "" {
		t.Errorf("got stream ended %v, fields %v; want a trailers-only response", head.StreamEnded(), fields)
	}
	message, err := url.PathUnescape(fields["grpc-message"])
	if fields["grpc-status"] != c.code || err != nil || !strings.Contains(message, c.message) {
		t.Errorf("got status %s, message %q; want %s and %q", fields["grpc-status"], fields["grpc-message"], c.code, c.message)
	}
	if (fields["retry-after"] != "") != (c.status == 429) || (fields["x-ratelimit-limit"] != "") != c.limits || fields["x-request-id"] == "" {
		t.Errorf("got fields %v; want X-Request-Id, Retry-After only on a 429, rate limit fields %v", fields, c.limits)
	}
	records := slices.DeleteFunc(g.records(), func(e accesslog.Entry) bool { return e.Part == accesslog.Started })
	if len(records) != 1 || records[0].Status != c.status || records[0].BytesOut != 0 {
		t.Errorf("got records %+v, want one with status %d and no bytes out", records, c.status)
	}
}

// Guarantee: contract 4.2, end. Over HTTP/2, a gRPC call that the gateway refuses gets a
// trailers-only response with the gRPC code of the error and its message, without waiting
// for the end of the call's body. The record has the HTTP status of the error.
func TestGRPCRefusals(t *testing.T) {
	t.Parallel()
	addr, heads := recorder(t, empty)
	g := start(t, setup{upstream: "http://" + addr, maxBody: 4})
	for _, c := range []refusal{
		{name: "no key", path: "/a.B/C", noKey: true, status: 401, code: "16", message: "Authorization: Bearer <key>", limits: true},
		{name: "dot segment", path: "/a/../b", status: 400, code: "13"},
		{name: "long target", path: "/" + strings.Repeat("a", 16<<10), status: 414, code: "13", message: "16 KiB"},
		{name: "too many headers", path: "/a.B/C", more: slices.Repeat([][2]string{{"x-a", "a"}}, 100), status: 431, code: "13"},
		{name: "body too large", path: "/a.B/C", more: [][2]string{{"content-length", "10"}}, status: 413, code: "8", message: "limit of 4 bytes", limits: true},
	} {
		for _, end := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, body ended %v", c.name, end), func(t *testing.T) { g.in(t).checkRefusal(t, c, end) })
		}
	}
	wantNone(t, heads)
}

// Guarantee: a gRPC call whose metadata is too large is refused as a gRPC call, with code 13, even if
// content-type comes behind the field that exceeds the limit, or is that field. Another request with such
// a head is not.
func TestGRPCMetadataTooLarge(t *testing.T) {
	t.Parallel()
	addr, heads := recorder(t, empty)
	g := start(t, setup{upstream: "http://" + addr})
	begin := [][2]string{{":method", "POST"}, {":scheme", "http"}, {":authority", "api.test"}, {":path", "/a.B/C"}}
	for _, c := range []struct {
		name string
		more [][2]string
	}{
		{"fields before", slices.Repeat([][2]string{{"x-a", "a"}}, 300)},
		{"one field too many", slices.Repeat([][2]string{{"x-a", "a"}}, 99)},
		{"repeated bytes before", slices.Repeat([][2]string{{"x-a", strings.Repeat("a", 3000)}}, 60)},
		{"a long field last", append(slices.Repeat([][2]string{{"x-a", strings.Repeat("a", 3000)}}, 20), [2]string{"x-b", strings.Repeat("b", 9000)})},
	} {
		for contentType, want := range map[string][2]string{"application/grpc+proto": {"200", "13"}, "text/plain": {"431", ""}} {
			t.Run(c.name+", "+contentType, func(t *testing.T) {
				g := g.in(t)
				fields := slices.Concat(begin, c.more)
				head := g.stream(append(fields, [2]string{"content-type", contentType}, [2]string{"x-z", "z"}), nil)
				got := [2]string{head.PseudoValue("status"), ""}
				for _, f := range head.RegularFields() {
					if f.Name == "grpc-status" {
						got[1] = f.Value
					}
				}
				if got != want {
					t.Errorf("got status and gRPC code %q, want %q", got, want)
				}
				if records := g.records(); len(records) != 1 || records[0].Status != 431 {
					t.Errorf("got records %+v, want one with status 431", records)
				}
			})
		}
	}
	wantNone(t, heads)
}

// in returns the harness for a subtest.
func (g *harness) in(t *testing.T) *harness {
	other := *g
	other.t = t
	return &other
}

// Guarantee: a gRPC call over its rate limit, and a call whose upstream fails, get the codes of
// contract 4.2, end.
func TestGRPCFailures(t *testing.T) {
	t.Parallel()
	closing := upstreamtest.Serve(t, func(c *upstreamtest.Conn) { _, _ = c.ReadHead() })
	silent := upstreamtest.Serve(t, func(c *upstreamtest.Conn) { _, _ = io.Copy(io.Discard, c) })
	for _, c := range []struct {
		refusal
		setup setup
	}{
		{refusal{name: "429", status: 429, code: "8", message: "rate limit", limits: true}, setup{upstream: "http://" + closing, limit: "1/h"}},
		{refusal{name: "502", status: 502, code: "14", message: "could not be reached", limits: true}, setup{upstream: "http://" + closing}},
		{refusal{name: "grpc-timeout", status: 504, code: "4", message: "in time", limits: true, more: [][2]string{{"grpc-timeout", "20m"}}}, setup{upstream: "http://" + silent, realClock: true}},
		{refusal{name: "no time at all", status: 504, code: "4", message: "in time", limits: true, more: [][2]string{{"grpc-timeout", "0n"}}}, setup{upstream: "http://" + silent, realClock: true}},
		{refusal{name: "grpc-timeout, h2c", status: 504, code: "4", message: "in time", limits: true, more: [][2]string{{"grpc-timeout", "20000u"}}}, setup{upstream: h2cUpstream(t, waiting), realClock: true}},
		{refusal{name: "ended by the service after its time", status: 504, code: "4", message: "in time", limits: true, more: [][2]string{{"grpc-timeout", "20m"}}}, setup{upstream: h2cUpstream(t, abort(25*time.Millisecond))}},
		{refusal{name: "ended by the service before", status: 502, code: "14", message: "could not be reached", limits: true, more: [][2]string{{"grpc-timeout", "1H"}}}, setup{upstream: h2cUpstream(t, abort(0))}},
		{refusal{name: "504", status: 504, code: "4", message: "in time", limits: true}, setup{upstream: "http://" + silent, timeout: "1s", realClock: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			g := start(t, c.setup)
			c.path = "/a.B/C"
			if c.setup.limit != "" {
				g.call(c.path, g.key, true, nil)
				g.records()
			}
			g.checkRefusal(t, c.refusal, true)
		})
	}
}

// abort returns the handler of an upstream that resets the stream after some time.
func abort(after time.Duration) http.HandlerFunc {
	return func(http.ResponseWriter, *http.Request) {
		<-time.After(after)
		panic(http.ErrAbortHandler)
	}
}

// waiting is the handler of an upstream that never responds.
func waiting(_ http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	<-r.Context().Done()
}

// Guarantee: a gRPC call whose response has begun is reset when its grpc-timeout has passed, and ends
// at the upstream. Clients report the reset as DEADLINE_EXCEEDED.
func TestGRPCTimeoutEndsStream(t *testing.T) {
	t.Parallel()
	ended := make(chan struct{})
	g := start(t, setup{realClock: true, upstream: h2cUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		defer close(ended)
		w.Header().Set("Content-Type", "application/grpc")
		_ = http.NewResponseController(w).Flush()
		waiting(w, r)
	})})
	f := g.dialHTTP2()
	f.request(1, false, [][2]string{{":method", "POST"}, {":scheme", "http"}, {":authority", "api.test"}, {":path", "/a.B/C"}, {"te", "trailers"},
		{"content-type", "application/grpc"}, {"grpc-timeout", "500m"}, {"authorization", "Bearer " + g.key}})
	headed := false
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		switch frame := frame.(type) {
		case *http2.MetaHeadersFrame:
			headed = frame.PseudoValue("status") == "200" && !frame.StreamEnded()
		case *http2.RSTStreamFrame:
			if !headed || frame.ErrCode != http2.ErrCodeCancel {
				t.Errorf("got a head %v, then a reset with %v; want the head, and CANCEL", headed, frame.ErrCode)
			}
			receive(t, "the end of the upstream's work", ended)
			return
		}
	}
}

// Guarantee: other callers still get the error body: callers with other content types, and gRPC
// callers over HTTP/1.1.
func TestErrorsOfOtherCallersStayJSON(t *testing.T) {
	t.Parallel()
	addr, _ := recorder(t, empty)
	g := start(t, setup{upstream: "http://" + addr})
	res, body := g.do(h2cClient(t), http.MethodPost, "/a//b", strings.NewReader("{}"), "Content-Type", "application/json")
	if res.StatusCode != 400 || !strings.Contains(body, "invalid_request") || res.Header.Get("Grpc-Status") != "" {
		t.Errorf("got status %d, header %v, body %s; want a 400 with an error body", res.StatusCode, res.Header, body)
	}
	c := g.dial(t)
	c.Send("POST /a HTTP/1.1\r\nHost: a\r\nContent-Type: application/grpc\r\nContent-Length: 0\r\n\r\n")
	c.wantRefusal("401", "unauthorized")
}
