package trace

import (
	"bytes"
	"compress/gzip"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/id"
)

// lookup returns a function that looks up the variables vars, as os.LookupEnv does.
func lookup(vars map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		v, ok := vars[name]
		return v, ok
	}
}

func newTracer(t testing.TB, vars map[string]string) *Tracer {
	t.Helper()
	s, err := FromEnvironment(lookup(vars))
	if err != nil || s == nil {
		t.Fatalf("got the settings %v and the error %v, want settings", s, err)
	}
	tracer, err := New(Config{Settings: s, Version: "v1", RoutePath: func(string, string, int64) string { return "/orders/{id}" }})
	if err != nil {
		t.Fatal(err)
	}
	return tracer
}

// Guarantee: without an endpoint or exporter in the environment, there are no traces.
func TestTracesAreOffByDefault(t *testing.T) {
	for _, vars := range []map[string]string{
		{}, {"OTEL_SERVICE_NAME": "x", "OTEL_TRACES_SAMPLER": "always_on"}, {"OTEL_EXPORTER_OTLP_ENDPOINT": " "},
		{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_SDK_DISABLED": "TRUE"}, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_TRACES_EXPORTER": "none"},
	} {
		if s, err := FromEnvironment(lookup(vars)); s != nil || err != nil {
			t.Errorf("%v: got the settings %v and the error %v, want neither", vars, s, err)
		}
	}
}

// Guarantee: a setting that is invalid or not supported is an error, which does not contain
// the value, since that may be secret.
func TestInvalidSettings(t *testing.T) {
	for _, vars := range []map[string]string{
		{"OTEL_TRACES_EXPORTER": "zipkin"}, {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, {"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/json"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT": "canary:4317"}, {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "ftp://canary"}, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://canary:x/"},
		{"OTEL_EXPORTER_OTLP_HEADERS": "canary"}, {"OTEL_EXPORTER_OTLP_HEADERS": "a=%zzcanary"}, {"OTEL_EXPORTER_OTLP_HEADERS": "a=canary%0d%0ab: c"},
		{"OTEL_EXPORTER_OTLP_COMPRESSION": "zstd"}, {"OTEL_EXPORTER_OTLP_TIMEOUT": "10s"}, {"OTEL_EXPORTER_OTLP_CERTIFICATE": "/nowhere"},
		{"OTEL_EXPORTER_OTLP_CLIENT_KEY": "/nowhere"}, {"OTEL_TRACES_SAMPLER": "jaeger_remote"}, {"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "2"},
		{"OTEL_RESOURCE_ATTRIBUTES": "canary"}, {"OTEL_BSP_MAX_QUEUE_SIZE": "0"}, {"OTEL_BSP_SCHEDULE_DELAY": "-1"},
	} {
		if _, given := vars["OTEL_EXPORTER_OTLP_ENDPOINT"]; !given && vars["OTEL_TRACES_EXPORTER"] == "" {
			vars["OTEL_EXPORTER_OTLP_ENDPOINT"] = "http://127.0.0.1:4318"
		}
		s, err := FromEnvironment(lookup(vars))
		if err == nil {
			t.Errorf("%v: got the settings %+v, want an error", vars, s)
		} else if strings.Contains(err.Error(), "canary") {
			t.Errorf("%v: the error contains the value: %v", vars, err)
		}
	}
}

// Guarantee: the endpoint is formed as the OpenTelemetry specification says.
func TestEndpoint(t *testing.T) {
	for _, c := range []struct {
		vars map[string]string
		want string
	}{
		{map[string]string{"OTEL_TRACES_EXPORTER": "otlp"}, "http://localhost:4318/v1/traces"},
		{map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "https://c.example/base/"}, "https://c.example/base/v1/traces"},
		{map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "https://c.example", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://t.example/in"}, "http://t.example/in"},
	} {
		s, err := FromEnvironment(lookup(c.vars))
		if err != nil || s.endpoint.String() != c.want {
			t.Errorf("%v: got the endpoint %v and the error %v, want %s", c.vars, s.endpoint, err, c.want)
		}
	}
}

const (
	inbound   = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	unsampled = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
)

// Guarantee: the upstream gets the caller's trace with the request's span. If that trace is
// not sampled, its traceparent passes unchanged; if it is missing or invalid, a new trace
// begins.
func TestPropagation(t *testing.T) {
	request := id.NewFast()
	own, root := hex.EncodeToString(request[8:]), rootTrace(request)
	for _, c := range []struct {
		name, sampler, from, want string
		traced                    bool
	}{
		{"sampled", "", inbound, "00-0af7651916cd43dd8448eb211c80319c-" + own + "-01", true},
		{"not sampled", "", unsampled, unsampled, false},
		{"none", "", "", "00-" + hex.EncodeToString(root[:]) + "-" + own + "-01", true},
		{"later version", "", "cc" + inbound[2:] + "-more", "00-0af7651916cd43dd8448eb211c80319c-" + own + "-01", true},
		{"version ff", "", "ff" + inbound[2:], "00-" + hex.EncodeToString(root[:]) + "-" + own + "-01", true},
		{"upper case", "", strings.ToUpper(inbound), "00-" + hex.EncodeToString(root[:]) + "-" + own + "-01", true},
		{"too long", "", inbound + "-more", "00-" + hex.EncodeToString(root[:]) + "-" + own + "-01", true},
		{"zeros", "", "00-00000000000000000000000000000000-b7ad6b7169203331-01", "00-" + hex.EncodeToString(root[:]) + "-" + own + "-01", true},
		{"never, root", "always_off", "", "00-" + hex.EncodeToString(root[:]) + "-" + own + "-00", false},
		{"never, inbound", "always_off", inbound, inbound, false},
		{"never but by parents", "parentbased_always_off", inbound, "00-0af7651916cd43dd8448eb211c80319c-" + own + "-01", true},
		{"always", "always_on", unsampled, "00-0af7651916cd43dd8448eb211c80319c-" + own + "-01", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			tracer := newTracer(t, map[string]string{"OTEL_TRACES_EXPORTER": "otlp", "OTEL_TRACES_SAMPLER": c.sampler})
			r := &accesslog.Record{Request: request}
			tracer.Begin(r, []byte(c.from))
			if got := string(tracer.Append(nil, r, []byte(c.from))); got != c.want {
				t.Errorf("the upstream gets %s, want %s", got, c.want)
			}
			if traced := r.Trace != [16]byte{}; traced != c.traced {
				t.Errorf("got sampled %v, want %v", traced, c.traced)
			}
		})
	}
}

// Guarantee: without the propagator tracecontext, trace headers pass unchanged and requests
// have no parent.
func TestWithoutPropagation(t *testing.T) {
	tracer := newTracer(t, map[string]string{"OTEL_TRACES_EXPORTER": "otlp", "OTEL_PROPAGATORS": "b3"})
	r := &accesslog.Record{Request: id.NewFast()}
	tracer.Begin(r, []byte(inbound))
	if got := string(tracer.Append(nil, r, []byte(inbound))); got != inbound {
		t.Errorf("the upstream gets %q, want %q", got, inbound)
	}
	if r.Parent != [8]byte{} {
		t.Errorf("got the parent %x, want none", r.Parent)
	}
}

// Guarantee: a ratio sampler samples its part of the traces that begin here.
func TestRatio(t *testing.T) {
	tracer := newTracer(t, map[string]string{"OTEL_TRACES_EXPORTER": "otlp", "OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.25"})
	sampled := 0
	for range 20_000 {
		r := &accesslog.Record{Request: id.NewFast()}
		tracer.Begin(r, nil)
		if r.Trace != [16]byte{} {
			sampled++
		}
	}
	if sampled < 4600 || sampled > 5400 {
		t.Errorf("%d of 20000 traces were sampled, want about 5000", sampled)
	}
}

// collector is an OTLP collector that keeps the spans and headers it receives.
type collector struct {
	*httptest.Server
	spans   chan *tracepb.ResourceSpans
	headers chan http.Header
}

// newCollector starts a collector whose responses respond writes, unless it is nil.
func newCollector(t *testing.T, respond func(w http.ResponseWriter)) *collector {
	t.Helper()
	c := &collector{spans: make(chan *tracepb.ResourceSpans, 100), headers: make(chan http.Header, 100)}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := io.Reader(r.Body)
		if r.Header.Get("Content-Encoding") == "gzip" {
			unpacked, err := gzip.NewReader(r.Body)
			if err != nil {
				t.Error(err)
				return
			}
			body = unpacked
		}
		content, err := io.ReadAll(body)
		if err != nil {
			t.Error(err)
		}
		var data tracepb.TracesData
		if err := proto.Unmarshal(content, &data); err != nil {
			t.Errorf("%s received a body that is not OTLP: %v", r.URL.Path, err)
		}
		if respond != nil {
			respond(w)
		}
		c.headers <- r.Header
		for _, s := range data.GetResourceSpans() {
			c.spans <- s
		}
	}))
	t.Cleanup(c.Close)
	return c
}

// finish stops the tracer.
func finish(t *testing.T, tracer *Tracer) {
	t.Helper()
	if err := tracer.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// entry returns a failed request, which is sampled unless trace is 0.
func entry(trace byte) accesslog.Entry {
	r := accesslog.Record{
		Start: 1_700_000_000_000_000, Duration: int64(3 * time.Millisecond), Upstream: int64(2 * time.Millisecond), Request: id.NewFast(), Gateway: id.NewFast(),
		Route: id.NewFast(), Key: id.NewFast(), Status: 502, UpstreamStatus: 0, Method: accesslog.POST, BytesIn: 3, BytesOut: 4,
	}
	r.Client[15] = 1
	if trace != 0 {
		r.Trace, r.Parent = [16]byte{trace}, [8]byte{9}
	}
	cost := accesslog.AppendCost(nil, &accesslog.Cost{Meter: "tokens", Units: 1204, Reserved: 2000})
	cost = accesslog.AppendCost(cost, &accesslog.Cost{Meter: "cents", Units: 9, Unknown: "missing"})
	return accesslog.Entry{Record: r, Path: "/orders/7", Cost: string(cost)}
}

// startTracer starts a Tracer that exports to c.
func startTracer(t *testing.T, c *collector, vars map[string]string) *Tracer {
	t.Helper()
	vars["OTEL_EXPORTER_OTLP_ENDPOINT"] = c.URL
	tracer := newTracer(t, vars)
	if err := tracer.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return tracer
}

// Guarantee: a sampled request is exported once, as one span with all its attributes, and
// with the headers, compression and resource attributes of the environment. A request that
// is not sampled, or has only started, is not exported.
func TestExport(t *testing.T) {
	c := newCollector(t, nil)
	tracer := startTracer(t, c, map[string]string{
		"OTEL_EXPORTER_OTLP_HEADERS": "x-token=a%20b", "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip", "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment=test",
	})
	sampled, started := entry(1), entry(1)
	started.Part = accesslog.Started
	sampled.Path = "/orders/" + strings.Repeat("7", 16<<10)
	tracer.Take([]accesslog.Entry{started, entry(0), sampled})
	if err := tracer.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	got, header := <-c.spans, <-c.headers
	t.Run("with the headers of the environment", func(t *testing.T) {
		if got := header.Get("X-Token"); got != "a b" {
			t.Errorf("X-Token is %q, want \"a b\"", got)
		}
		if got := header.Get("Content-Encoding"); got != "gzip" {
			t.Errorf("Content-Encoding is %q, want gzip", got)
		}
	})
	t.Run("with the attributes of the resource", func(t *testing.T) {
		attributes := attributesOf(got.GetResource().GetAttributes())
		for name, want := range map[string]string{"service.name": "keygate", "service.version": "v1", "deployment.environment": "test"} {
			if got := attributes[name].GetStringValue(); got != want {
				t.Errorf("%s is %q, want %q", name, got, want)
			}
		}
	})
	spans := got.GetScopeSpans()[0].GetSpans()
	if len(spans) != 1 {
		t.Fatalf("got %d spans, want 1", len(spans))
	}
	t.Run("as one span", func(t *testing.T) { checkSpan(t, spans[0], &sampled) })
	finish(t, tracer)
	if n := tracer.Lost(); n != 0 {
		t.Errorf("%d spans were lost, want 0", n)
	}
	if n := len(c.spans); n != 0 {
		t.Errorf("got %d more batches, want 0", n)
	}
}

func attributesOf(list []*commonpb.KeyValue) map[string]*commonpb.AnyValue {
	all := map[string]*commonpb.AnyValue{}
	for _, a := range list {
		all[a.GetKey()] = a.GetValue()
	}
	return all
}

// checkSpan checks that a span has the fields and attributes of an access record.
func checkSpan(t *testing.T, s *tracepb.Span, e *accesslog.Entry) {
	t.Helper()
	want := &tracepb.Span{
		Name: "POST /orders/{id}", Kind: tracepb.Span_SPAN_KIND_SERVER, StartTimeUnixNano: 1_700_000_000_000_000_000, EndTimeUnixNano: 1_700_000_000_003_000_000,
		TraceId: e.Trace[:], SpanId: e.Request[8:], ParentSpanId: e.Parent[:],
	}
	got := &tracepb.Span{
		Name: s.GetName(), Kind: s.GetKind(), StartTimeUnixNano: s.GetStartTimeUnixNano(), EndTimeUnixNano: s.GetEndTimeUnixNano(),
		TraceId: s.GetTraceId(), SpanId: s.GetSpanId(), ParentSpanId: s.GetParentSpanId(),
	}
	if !proto.Equal(got, want) {
		t.Errorf("got the span %v\nwant %v", got, want)
	}
	if got := s.GetStatus().GetCode(); got != tracepb.Status_STATUS_CODE_ERROR {
		t.Errorf("got the status %v, want an error", got)
	}
	attributes := attributesOf(s.GetAttributes())
	for name, want := range map[string]string{
		"http.response.status_code": "502", "url.path": e.Path[:maxPath], "http.route": "/orders/{id}", "keygate.request.id": id.Format(id.Request, e.Request),
		"keygate.key.id": id.Format(id.Key, e.Key), "client.address": "::1",
		"keygate.cost.tokens": "1204", "keygate.cost.cents": "9", "keygate.cost.cents.unknown": "missing",
	} {
		if got := attributes[name].String(); !strings.Contains(got, want) || len(got) > maxPath+100 {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
}

// Guarantee: spans that the collector refuses with 503 are sent again and not lost.
func TestExportIsRetried(t *testing.T) {
	first := true
	c := newCollector(t, func(w http.ResponseWriter) {
		if first {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		first = false
	})
	tracer := startTracer(t, c, map[string]string{})
	tracer.Take([]accesslog.Entry{entry(1)})
	if err := tracer.Sync(t.Context()); err != nil { // Stop alone may not wait long enough on a slow machine
		t.Fatal(err)
	}
	finish(t, tracer)
	if got := len(c.spans); got != 2 {
		t.Errorf("got %d attempts, want 2", got)
	}
	if got := tracer.Lost(); got != 0 {
		t.Errorf("%d spans were lost, want 0", got)
	}
}

// Guarantee: spans that the collector rejects, wholly or in part, are counted as lost and not
// sent again.
func TestRejectedSpansAreLost(t *testing.T) {
	partial := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 1)
	for name, respond := range map[string]func(w http.ResponseWriter){
		"400": func(w http.ResponseWriter) { w.WriteHeader(http.StatusBadRequest) },
		"partial": func(w http.ResponseWriter) {
			_, _ = w.Write(protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), partial))
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCollector(t, respond)
			tracer := startTracer(t, c, map[string]string{})
			tracer.Take([]accesslog.Entry{entry(1)})
			if err := tracer.Sync(t.Context()); err != nil {
				t.Fatal(err)
			}
			finish(t, tracer)
			if got := tracer.Lost(); got != 1 {
				t.Errorf("%d spans were lost, want 1", got)
			}
			if got := len(c.spans); got != 1 {
				t.Errorf("got %d attempts, want 1", got)
			}
		})
	}
}

// Guarantee: spans beyond the queue's size and after Stop are counted as lost. Stop does not
// wait long for an unreachable collector.
func TestQueueIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tracer := newTracer(t, map[string]string{
			"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_BSP_MAX_QUEUE_SIZE": "10", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "100",
		})
		for range 12 {
			tracer.Take([]accesslog.Entry{entry(1)})
		}
		if tracer.Lost() != 2 || tracer.Waiting() != 10 {
			t.Errorf("%d spans were lost and %d wait, want 2 and 10", tracer.Lost(), tracer.Waiting())
		}
		if err := tracer.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if err := tracer.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took > stopTime { // on virtual time
			t.Errorf("Stop took %v, want at most %v", took, stopTime)
		}
		tracer.Take([]accesslog.Entry{entry(1)})
		if tracer.Lost() != 13 {
			t.Errorf("%d spans were lost in the end, want all 13", tracer.Lost())
		}
	})
}

// Guarantee: parsing a traceparent does not panic for any bytes, and formatting a parsed
// traceparent gives the same one.
func FuzzParent(f *testing.F) {
	for _, s := range []string{inbound, unsampled, "01" + inbound[2:] + "-x", "", strings.Repeat("-", 55)} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, s []byte) {
		p, ok := parseParent(s)
		if !ok {
			return
		}
		if again, ok := parseParent(appendParent(nil, p)); !ok || again != p || !bytes.Equal(s[2:52], appendParent(nil, p)[2:52]) {
			t.Errorf("%q is parsed as %+v, and after formatting as %+v, want the same", s, p, again)
		}
	})
}
