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
	"github.com/keygate/keygate/internal/keygatetest/logtest"
	"github.com/keygate/keygate/internal/keygatetest/porttest"
)

// collected is what a collector of traces was sent.
type collected struct {
	url string

	mu    sync.Mutex
	raw   []byte
	spans []*tracepb.Span
}

func collect(t *testing.T) *collected {
	t.Helper()
	c := &collected{}
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the server gave up, and sends them again or counts them as lost
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

// Guarantee: what is logged at level debug, told as a trace, and counted has
// neither a key nor anything of a query, a field or a body; a request's line has
// its identifiers.
func TestTelemetryHoldsNoSecret(t *testing.T) {
	const canary = "canary7Qz"
	log, traces := &logtest.Recorder{}, collect(t)
	s := keygatetest.StartWith(t, keygatetest.Options{Log: log, Env: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": traces.url}})
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/fails") {
			w.WriteHeader(http.StatusInternalServerError)
		}
		_, _ = io.WriteString(w, canary)
	}))
	t.Cleanup(up.Close)
	var hosts []string
	for name, url := range map[string]string{"lives": up.URL, "dead": "http://" + porttest.Reserve(t)} {
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
	k, err := s.Admin.CreateKey(t.Context(), client.CreateKeyRequest{Name: "k", Scope: "write"})
	if err != nil {
		t.Fatal(err)
	}
	secrets := []string{k.Secret, s.AdminKey, canary}
	wrong := "kg_" + strings.Repeat("0", 36)
	for _, host := range hosts {
		for _, path := range []string{"/passes", "/fails", "/../malformed"} {
			s.Through(host, http.MethodGet, path+"?q="+canary, k.Secret, "", "X-Canary", canary, "Cookie", canary)
			s.Through(host, http.MethodGet, path+"?api_key="+k.Secret+"&q="+canary, "", "")
			s.Through(host, http.MethodPost, path, k.Secret, `{"a": "`+canary+`"}`)
			s.Through(host, http.MethodGet, path+"?api_key="+canary, "", "")
			s.Through(host, http.MethodGet, path, wrong+canary, "")
			s.Through(host, http.MethodGet, path, s.AdminKey, "") // of the other level
			s.Through(host, http.MethodGet, path+"/"+k.Secret, k.Secret, "")
		}
	}
	s.Call(http.MethodGet, "/v1/keys?q="+canary, s.AdminKey, "")
	s.Call(http.MethodGet, "/v1/keys", k.Secret, "")
	s.Call(http.MethodPost, "/v1/keys", s.AdminKey, `{"name": "`+canary+`", "bad": 1}`)
	metrics := scrape(t, s)
	s.Stop()

	lines := map[string]int{}
	for line := range strings.Lines(log.String()) {
		var told map[string]any
		if err := json.Unmarshal([]byte(line), &told); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		message, _ := told["msg"].(string)
		lines[message]++
		if message == "upstream responded with a server error" || message == "request failed" {
			for _, name := range []string{"request_id", "gateway_id", "route_id", "key_id", "method", "path"} {
				if told[name] == nil {
					t.Errorf("a line lacks %s: %s", name, line)
				}
			}
		}
	}
	if lines["request"] < 20 || lines["upstream responded with a server error"] == 0 || lines["request failed"] == 0 || len(traces.spans) < 30 {
		t.Errorf("lines %v, %d spans: too few to tell", lines, len(traces.spans))
	}
	for place, text := range map[string]string{"the log": log.String(), "the traces": string(traces.raw), "/metrics": metrics} {
		for _, secret := range secrets {
			if i := strings.Index(text, secret); i >= 0 {
				t.Errorf("%s has a secret: …%s", place, text[max(0, i-300):min(len(text), i+100)])
			}
		}
	}
}

// Guarantee: a caller's trace goes through: the span of the request has the
// caller's as its parent, and the upstream is told of the request's, over
// HTTP/1.1 and HTTP/2 alike; tracestate passes. Without traces everything passes
// as it came.
func TestTraces(t *testing.T) {
	const (
		trace, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
		field         = "00-" + trace + "-" + parent + "-01"
	)
	for _, on := range []bool{false, true} {
		traces := collect(t)
		options := keygatetest.Options{}
		if on {
			options.Env = map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": traces.url}
		}
		s := keygatetest.StartWith(t, options)
		publicGateway(t, s.Admin, tellingUpstream(t))
		stacks := make([]byte, 1<<20)
		// One of the server before may still have its last instruction to do.
		until(t, fmt.Sprintf("a goroutine for traces runs: %v", on), func() bool {
			return strings.Contains(string(stacks[:runtime.Stack(stacks, true)]), "telemetry/trace.") == on
		})
		var told []string // the spans that the upstream was told of
		for _, version := range []int{1, 2} {
			var protocols http.Protocols
			protocols.SetHTTP1(version == 1)
			protocols.SetUnencryptedHTTP2(version == 2)
			tr := &http.Transport{Protocols: &protocols}
			proto, got := ask(t, tr, s.GatewayURL(), "Traceparent", field, "Tracestate", "a=b")
			if proto != map[int]string{1: "HTTP/1.1", 2: "HTTP/2.0"}[version] || !slices.Equal(got.Header["Tracestate"], []string{"a=b"}) {
				t.Errorf("%s: the upstream got %v", proto, got.Header)
			}
			values := got.Header["Traceparent"]
			switch {
			case len(values) != 1:
				t.Errorf("%s: the upstream got %v", proto, values)
			case !on && values[0] != field:
				t.Errorf("%s: without traces the upstream got %s", proto, values[0])
			case on && (!strings.HasPrefix(values[0], "00-"+trace+"-") || !strings.HasSuffix(values[0], "-01") || strings.Contains(values[0], parent)):
				t.Errorf("%s: the upstream got %s", proto, values[0])
			case on:
				told = append(told, values[0][36:52])
			}
			_, got = ask(t, tr, s.GatewayURL())
			if has := len(got.Header["Traceparent"]) > 0; has != on {
				t.Errorf("%s: of a caller without a trace the upstream got %v", proto, got.Header["Traceparent"])
			}
			tr.CloseIdleConnections()
		}
		s.Stop()
		if !on {
			if len(traces.spans) > 0 {
				t.Errorf("without traces there are %d", len(traces.spans))
			}
			continue
		}
		if len(traces.spans) != 4 {
			t.Fatalf("%d spans, want 4", len(traces.spans))
		}
		for _, span := range traces.spans {
			if len(span.GetParentSpanId()) == 0 {
				continue // began here
			}
			if hex.EncodeToString(span.GetTraceId()) != trace || hex.EncodeToString(span.GetParentSpanId()) != parent || !slices.Contains(told, hex.EncodeToString(span.GetSpanId())) {
				t.Errorf("a span %v; the upstream was told of %v", span, told)
			}
			if span.GetName() != "GET /*" {
				t.Errorf("a span has the name %q", span.GetName())
			}
		}
	}
}
