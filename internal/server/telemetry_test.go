package server_test

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/keygatetest"
	"github.com/keygate/keygate/internal/keygatetest/awaittest"
	"github.com/keygate/keygate/internal/keygatetest/logtest"
	"github.com/keygate/keygate/internal/keygatetest/porttest"
)

// traceCollector is a collector of traces that keeps what it receives.
type traceCollector struct {
	url string

	mu    sync.Mutex
	raw   []byte
	spans []*tracepb.Span
}

// startTraceCollector starts a collector of traces. It stops when the test ends.
func startTraceCollector(t *testing.T) *traceCollector {
	t.Helper()
	c := &traceCollector{}
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the server gave up; it sends the spans again or counts them as lost
		}
		var data tracepb.TracesData
		if err := proto.Unmarshal(body, &data); err != nil {
			t.Error(err)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.raw = append(c.raw, body...)
		for _, resource := range data.GetResourceSpans() {
			for _, scope := range resource.GetScopeSpans() {
				c.spans = append(c.spans, scope.GetSpans()...)
			}
		}
	}))
	t.Cleanup(s.Close)
	c.url = s.URL
	return c
}

// Guarantee: log lines at level debug, traces and metrics contain no key, and no part of a query, a
// header or a body; the log line of a failed request has its identifiers.
func TestTelemetryContainsNoSecret(t *testing.T) {
	const canary = "canary7Qz"
	log, traces := &logtest.Recorder{}, startTraceCollector(t)
	s := keygatetest.StartWith(t, keygatetest.Options{Log: log, Env: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": traces.url}})
	k, err := s.Admin.CreateKey(t.Context(), client.CreateKeyRequest{Name: "k", Scope: "write"})
	if err != nil {
		t.Fatal(err)
	}
	sendSecrets(t, s, k.Secret, canary)
	metrics := scrape(t, s)
	s.Stop()

	t.Run("a failed request is logged with its identifiers", func(t *testing.T) {
		lines := map[string]int{}
		for line := range strings.Lines(log.String()) {
			var fields map[string]any
			if err := json.Unmarshal([]byte(line), &fields); err != nil {
				t.Fatalf("%v: %s", err, line)
			}
			message, _ := fields["msg"].(string)
			lines[message]++
			if message == "upstream responded with a server error" || message == "request failed" {
				for _, name := range []string{"request_id", "gateway_id", "route_id", "key_id", "method", "path"} {
					if fields[name] == nil {
						t.Errorf("log line without %s: %s", name, line)
					}
				}
			}
		}
		if lines["request"] < 20 || lines["upstream responded with a server error"] == 0 || lines["request failed"] == 0 || len(traces.spans) < 30 {
			t.Errorf("got log lines %v and %d spans, too few for this test", lines, len(traces.spans))
		}
	})
	for name, text := range map[string]string{"the log": log.String(), "the traces": string(traces.raw), "/metrics": metrics} {
		t.Run(name+" contains no secret", func(t *testing.T) {
			for _, secret := range []string{k.Secret, s.AdminKey, canary} {
				if i := strings.Index(text, secret); i >= 0 {
					t.Errorf("got a secret in …%s", text[max(0, i-300):min(len(text), i+100)])
				}
			}
		})
	}
}

// sendSecrets creates a gateway with a working upstream and one whose upstream is
// unreachable. It sends requests to both and to the management API, with key and canary
// wherever a request can contain them.
func sendSecrets(t *testing.T, s *keygatetest.Server, key, canary string) {
	t.Helper()
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/fails") {
			w.WriteHeader(http.StatusInternalServerError)
		}
		_, _ = io.WriteString(w, canary)
	}))
	t.Cleanup(up.Close)
	var hosts []string
	for name, url := range map[string]string{"working": up.URL, "unreachable": "http://" + porttest.Reserve(t)} {
		g, err := s.Admin.CreateGateway(t.Context(), client.CreateGatewayRequest{
			Name: name, UpstreamURL: url, UpstreamHeaders: &map[string]string{"X-Secret": canary + "upstream"},
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Admin.CreateRoute(t.Context(), g.GatewayID, client.CreateRouteRequest{Path: "/*", Methods: []string{"GET", "POST"}}); err != nil {
			t.Fatal(err)
		}
		hosts = append(hosts, g.Hostname)
	}
	wrong := "kg_" + strings.Repeat("0", 36)
	for _, host := range hosts {
		for _, path := range []string{"/passes", "/fails", "/../malformed"} {
			s.Through(host, http.MethodGet, path+"?q="+canary, key, "", "X-Canary", canary, "Cookie", canary)
			s.Through(host, http.MethodGet, path+"?api_key="+key+"&q="+canary, "", "")
			s.Through(host, http.MethodPost, path, key, `{"a": "`+canary+`"}`)
			s.Through(host, http.MethodGet, path+"?api_key="+canary, "", "")
			s.Through(host, http.MethodGet, path, wrong+canary, "")
			s.Through(host, http.MethodGet, path, s.AdminKey, "") // a key of the other plane
			s.Through(host, http.MethodGet, path+"/"+key, key, "")
		}
	}
	s.Call(http.MethodGet, "/v1/keys?q="+canary, s.AdminKey, "")
	s.Call(http.MethodGet, "/v1/keys", key, "")
	s.Call(http.MethodPost, "/v1/keys", s.AdminKey, `{"name": "`+canary+`", "bad": 1}`)
}

// A trace that a caller of TestRequestsContinueTheCallersTrace continues.
const (
	callerTrace  = "0af7651916cd43dd8448eb211c80319c"
	callerSpan   = "b7ad6b7169203331"
	callerHeader = "00-" + callerTrace + "-" + callerSpan + "-01"
)

// Guarantee: with traces a request continues its caller's trace, over HTTP/1.1 and HTTP/2:
// the parent of its span is the caller's span, and the upstream receives the request's span
// in traceparent. Without traces, traceparent is forwarded unchanged. tracestate is always
// forwarded unchanged.
func TestRequestsContinueTheCallersTrace(t *testing.T) {
	for name, on := range map[string]bool{"without traces nothing is exported": false, "with traces every request has a span": true} {
		t.Run(name, func(t *testing.T) {
			traces := startTraceCollector(t)
			options := keygatetest.Options{}
			if on {
				options.Env = map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": traces.url}
			}
			s := keygatetest.StartWith(t, options)
			publicGateway(t, s.Admin, echoUpstream(t))
			stacks := make([]byte, 1<<20)
			// Goroutines of the previous server may be about to return.
			awaittest.True(t, fmt.Sprintf("a goroutine for traces runs: %t", on), func() bool {
				return strings.Contains(string(stacks[:runtime.Stack(stacks, true)]), "telemetry/trace.") == on
			})
			var forwarded []string
			for _, version := range []int{1, 2} {
				forwarded = append(forwarded, sendTraced(t, s, version, on))
			}
			s.Stop()
			if on {
				checkSpans(t, traces.spans, forwarded)
			} else if len(traces.spans) > 0 {
				t.Errorf("got %d spans, want none", len(traces.spans))
			}
		})
	}
}

// sendTraced sends two requests over a version of HTTP: the first continues a trace, the second has
// none. It checks the headers that the upstream receives, and returns the span in the traceparent
// of the first; "" without traces.
func sendTraced(t *testing.T, s *keygatetest.Server, version int, on bool) (span string) {
	t.Helper()
	var protocols http.Protocols
	protocols.SetHTTP1(version == 1)
	protocols.SetUnencryptedHTTP2(version == 2)
	tr := &http.Transport{Protocols: &protocols}
	defer tr.CloseIdleConnections()
	proto, got := throughEcho(t, tr, s.GatewayURL(), "Traceparent", callerHeader, "Tracestate", "a=b")
	if proto != map[int]string{1: "HTTP/1.1", 2: "HTTP/2.0"}[version] || !slices.Equal(got.Header["Tracestate"], []string{"a=b"}) {
		t.Errorf("got %s, upstream received %v; want HTTP/%d and tracestate a=b", proto, got.Header, version)
	}
	values := got.Header["Traceparent"]
	switch {
	case len(values) != 1:
		t.Errorf("%s: the upstream received traceparent %v, want one", proto, values)
	case !on && values[0] != callerHeader:
		t.Errorf("%s: the upstream received traceparent %s, want %s", proto, values[0], callerHeader)
	case on && (!strings.HasPrefix(values[0], "00-"+callerTrace+"-") || !strings.HasSuffix(values[0], "-01") || strings.Contains(values[0], callerSpan)):
		t.Errorf("%s: the upstream received traceparent %s, want the caller's trace with another span", proto, values[0])
	case on:
		span = values[0][36:52]
	}
	_, got = throughEcho(t, tr, s.GatewayURL())
	values = got.Header["Traceparent"]
	if on && len(values) == 0 {
		t.Errorf("%s, request without a trace: the upstream received no traceparent, want one", proto)
	}
	if !on && len(values) > 0 {
		t.Errorf("%s, request without a trace: the upstream received traceparent %v, want none", proto, values)
	}
	return span
}

// checkSpans checks the spans of the requests of two calls of sendTraced, which forwarded
// these spans to the upstream.
func checkSpans(t *testing.T, spans []*tracepb.Span, forwarded []string) {
	t.Helper()
	if len(spans) != 4 {
		t.Fatalf("got %d spans, want 4", len(spans))
	}
	for _, span := range spans {
		if len(span.GetParentSpanId()) == 0 {
			continue // of a request without a trace
		}
		if hex.EncodeToString(span.GetTraceId()) != callerTrace || hex.EncodeToString(span.GetParentSpanId()) != callerSpan || !slices.Contains(forwarded, hex.EncodeToString(span.GetSpanId())) {
			t.Errorf("got span %v, want one of %v in the caller's trace", span, forwarded)
		}
		if span.GetName() != "GET /*" {
			t.Errorf("got span name %q, want GET /*", span.GetName())
		}
	}
}
