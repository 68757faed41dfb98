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

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/id"
)

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
		t.Fatalf("the settings are %v, %v", s, err)
	}
	tracer, err := New(Config{Settings: s, Version: "v1", RoutePath: func(string, string) string { return "/orders/{id}" }})
	if err != nil {
		t.Fatal(err)
	}
	return tracer
}

// Guarantee: without a word for traces there are none; what is asked for and not
// there stops the start, in words that do not repeat what may be secret.
func TestFromEnvironment(t *testing.T) {
	for _, vars := range []map[string]string{
		{}, {"OTEL_SERVICE_NAME": "x", "OTEL_TRACES_SAMPLER": "always_on"}, {"OTEL_EXPORTER_OTLP_ENDPOINT": " "},
		{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_SDK_DISABLED": "TRUE"}, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_TRACES_EXPORTER": "none"},
	} {
		if s, err := FromEnvironment(lookup(vars)); s != nil || err != nil {
			t.Errorf("%v asks for %v, %v", vars, s, err)
		}
	}
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
			t.Errorf("%v asks for %+v", vars, s)
		} else if strings.Contains(err.Error(), "canary") {
			t.Errorf("%v: the message repeats what may be secret: %v", vars, err)
		}
	}
}

// Guarantee: the addresses are those of the OpenTelemetry specification.
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
			t.Errorf("%v: %v, %v; want %s", c.vars, s.endpoint, err, c.want)
		}
	}
}

const (
	inbound   = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	unsampled = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
)

// Guarantee: a caller's trace goes on with the request's span in it; one that is
// not chosen passes byte for byte; what is no traceparent begins a trace.
func TestPropagation(t *testing.T) {
	request := id.NewFast()
	mine, root := hex.EncodeToString(request[8:]), rootTrace(request)
	for _, c := range []struct {
		name, sampler, from, want string
		traced                    bool
	}{
		{"sampled", "", inbound, "00-0af7651916cd43dd8448eb211c80319c-" + mine + "-01", true},
		{"not sampled", "", unsampled, unsampled, false},
		{"none", "", "", "00-" + hex.EncodeToString(root[:]) + "-" + mine + "-01", true},
		{"later version", "", "cc" + inbound[2:] + "-more", "00-0af7651916cd43dd8448eb211c80319c-" + mine + "-01", true},
		{"version ff", "", "ff" + inbound[2:], "00-" + hex.EncodeToString(root[:]) + "-" + mine + "-01", true},
		{"upper case", "", strings.ToUpper(inbound), "00-" + hex.EncodeToString(root[:]) + "-" + mine + "-01", true},
		{"too long", "", inbound + "-more", "00-" + hex.EncodeToString(root[:]) + "-" + mine + "-01", true},
		{"zeros", "", "00-00000000000000000000000000000000-b7ad6b7169203331-01", "00-" + hex.EncodeToString(root[:]) + "-" + mine + "-01", true},
		{"never, root", "always_off", "", "00-" + hex.EncodeToString(root[:]) + "-" + mine + "-00", false},
		{"never, inbound", "always_off", inbound, inbound, false},
		{"never but by parents", "parentbased_always_off", inbound, "00-0af7651916cd43dd8448eb211c80319c-" + mine + "-01", true},
		{"always", "always_on", unsampled, "00-0af7651916cd43dd8448eb211c80319c-" + mine + "-01", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			tracer := newTracer(t, map[string]string{"OTEL_TRACES_EXPORTER": "otlp", "OTEL_TRACES_SAMPLER": c.sampler})
			r := &accesslog.Record{Request: request}
			tracer.Begin(r, []byte(c.from))
			if got := string(tracer.Append(nil, r, []byte(c.from))); got != c.want {
				t.Errorf("the upstream gets %s, want %s", got, c.want)
			}
			if traced := r.Trace != [16]byte{}; traced != c.traced {
				t.Errorf("traced: %v, want %v", traced, c.traced)
			}
		})
	}
	without := newTracer(t, map[string]string{"OTEL_TRACES_EXPORTER": "otlp", "OTEL_PROPAGATORS": "b3"})
	r := &accesslog.Record{Request: request}
	without.Begin(r, []byte(inbound))
	if got := string(without.Append(nil, r, []byte(inbound))); got != inbound || r.Parent != [8]byte{} {
		t.Errorf("without propagation the upstream gets %q, and the parent is %x", got, r.Parent)
	}
}

// Guarantee: a ratio chooses its part of the traces that begin here.
func TestRatio(t *testing.T) {
	tracer := newTracer(t, map[string]string{"OTEL_TRACES_EXPORTER": "otlp", "OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.25"})
	chosen := 0
	for range 20_000 {
		r := &accesslog.Record{Request: id.NewFast()}
		tracer.Begin(r, nil)
		if r.Trace != [16]byte{} {
			chosen++
		}
	}
	if chosen < 4600 || chosen > 5400 {
		t.Errorf("%d of 20000 chosen, want about 5000", chosen)
	}
}

// collector is what spans are sent to.
type collector struct {
	*httptest.Server
	spans   chan *tracepb.ResourceSpans
	headers chan http.Header
}

func newCollector(t *testing.T, answer func(w http.ResponseWriter)) *collector {
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
			t.Errorf("%s got what is none: %v", r.URL.Path, err)
		}
		if answer != nil {
			answer(w)
		}
		c.headers <- r.Header
		for _, s := range data.GetResourceSpans() {
			c.spans <- s
		}
	}))
	t.Cleanup(c.Close)
	return c
}

func finish(t *testing.T, tracer *Tracer) {
	t.Helper()
	if err := tracer.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func entry(trace byte) accesslog.Entry {
	r := accesslog.Record{
		Start: 1_700_000_000_000_000, Duration: int64(3 * time.Millisecond), Upstream: int64(2 * time.Millisecond), Request: id.NewFast(), Gateway: id.NewFast(),
		Route: id.NewFast(), Key: id.NewFast(), Status: 502, UpstreamStatus: 0, Method: accesslog.POST, BytesIn: 3, BytesOut: 4,
	}
	r.Client[15] = 1
	if trace != 0 {
		r.Trace, r.Parent = [16]byte{trace}, [8]byte{9}
	}
	return accesslog.Entry{Record: r, Path: "/orders/7"}
}

// Guarantee: a chosen request arrives at the collector as one span, whole, with
// the fields that the environment names; one that is not chosen, or has only
// begun, does not.
func TestExport(t *testing.T) {
	c := newCollector(t, nil)
	tracer := newTracer(t, map[string]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT": c.URL, "OTEL_EXPORTER_OTLP_HEADERS": "x-token=a%20b", "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
		"OTEL_RESOURCE_ATTRIBUTES": "deployment.environment=test",
	})
	if err := tracer.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	synced, begun := entry(1), entry(1)
	begun.Part = accesslog.Started
	synced.Path = "/orders/" + strings.Repeat("7", 16<<10)
	tracer.Take([]accesslog.Entry{begun, entry(0), synced})
	if err := tracer.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := (<-c.headers).Get("X-Token"); got != "a b" {
		t.Errorf("X-Token is %q", got)
	}
	got := <-c.spans
	attributes := map[string]string{}
	for _, a := range got.GetResource().GetAttributes() {
		attributes[a.GetKey()] = a.GetValue().GetStringValue()
	}
	if attributes["service.name"] != "keygate" || attributes["service.version"] != "v1" || attributes["deployment.environment"] != "test" {
		t.Errorf("the resource is %v", attributes)
	}
	spans := got.GetScopeSpans()[0].GetSpans()
	if len(spans) != 1 {
		t.Fatalf("%d spans, want 1", len(spans))
	}
	s := spans[0]
	if s.GetName() != "POST /orders/{id}" || s.GetKind() != tracepb.Span_SPAN_KIND_SERVER || s.GetStartTimeUnixNano() != 1_700_000_000_000_000_000 ||
		s.GetEndTimeUnixNano() != s.GetStartTimeUnixNano()+3_000_000 || s.GetStatus().GetCode() != tracepb.Status_STATUS_CODE_ERROR ||
		!bytes.Equal(s.GetTraceId(), synced.Trace[:]) || !bytes.Equal(s.GetSpanId(), synced.Request[8:]) || !bytes.Equal(s.GetParentSpanId(), synced.Parent[:]) {
		t.Errorf("the span is %v", s)
	}
	for _, a := range s.GetAttributes() {
		attributes[a.GetKey()] = a.GetValue().String()
	}
	for name, want := range map[string]string{
		"http.response.status_code": "502", "url.path": synced.Path[:maxPath], "http.route": "/orders/{id}", "keygate.request.id": id.Format(id.Request, synced.Request),
		"keygate.key.id": id.Format(id.Key, synced.Key), "client.address": "::1",
	} {
		if !strings.Contains(attributes[name], want) || len(attributes[name]) > maxPath+100 {
			t.Errorf("%s is %s, want %s", name, attributes[name], want)
		}
	}
	finish(t, tracer)
	if n := tracer.Lost(); n != 0 || len(c.spans) != 0 {
		t.Errorf("%d lost, %d more batches", n, len(c.spans))
	}
}

// Guarantee: a collector that is overwhelmed for a while gets the spans in the
// end; nothing is lost.
func TestExportAgain(t *testing.T) {
	first := true
	c := newCollector(t, func(w http.ResponseWriter) {
		if first {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		first = false
	})
	tracer := newTracer(t, map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": c.URL})
	if err := tracer.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	tracer.Take([]accesslog.Entry{entry(1)})
	if err := tracer.Sync(t.Context()); err != nil { // Stop has no time for a slow machine
		t.Fatal(err)
	}
	finish(t, tracer)
	if len(c.spans) != 2 || tracer.Lost() != 0 {
		t.Errorf("%d attempts, %d lost; want 2, 0", len(c.spans), tracer.Lost())
	}
}

// Guarantee: what the collector does not want, and what it says that it did not
// take, is counted.
func TestExportRefused(t *testing.T) {
	partial := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 1)
	for name, answer := range map[string]func(w http.ResponseWriter){
		"400": func(w http.ResponseWriter) { w.WriteHeader(http.StatusBadRequest) },
		"partial": func(w http.ResponseWriter) {
			_, _ = w.Write(protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), partial))
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCollector(t, answer)
			tracer := newTracer(t, map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": c.URL})
			if err := tracer.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			tracer.Take([]accesslog.Entry{entry(1)})
			if err := tracer.Sync(t.Context()); err != nil {
				t.Fatal(err)
			}
			finish(t, tracer)
			if tracer.Lost() != 1 || len(c.spans) != 1 {
				t.Errorf("%d lost after %d attempts, want 1 after 1", tracer.Lost(), len(c.spans))
			}
		})
	}
}

// Guarantee: more than the queue holds is lost and counted, and so is what comes
// after the end; an end is not held up by a collector that is not there.
func TestQueueIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tracer := newTracer(t, map[string]string{
			"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_BSP_MAX_QUEUE_SIZE": "10", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "100",
		})
		for range 12 {
			tracer.Take([]accesslog.Entry{entry(1)})
		}
		if tracer.Lost() != 2 || tracer.Waiting() != 10 {
			t.Errorf("%d lost, %d wait; want 2 and 10", tracer.Lost(), tracer.Waiting())
		}
		if err := tracer.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		if err := tracer.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begun); took > stopTime { // of the bubble's clock
			t.Errorf("the end took %v", took)
		}
		tracer.Take([]accesslog.Entry{entry(1)})
		if tracer.Lost() != 13 {
			t.Errorf("%d lost in the end, want all 13", tracer.Lost())
		}
	})
}

// Guarantee: reading a traceparent neither fails on any bytes nor takes what W3C
// Trace Context does not; what was read is written alike.
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
			t.Errorf("%q is read as %+v and, written, as %+v", s, p, again)
		}
	})
}
