package trace

import (
	"net/netip"
	"strconv"
	"strings"

	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/id"
)

// encode encodes a batch as an ExportTraceServiceRequest. It uses TracesData, which has
// the same fields, because the package of ExportTraceServiceRequest imports gRPC.
func (t *Tracer) encode(batch []finished) []byte {
	resource := &resourcepb.Resource{}
	for _, a := range t.settings.attributes {
		resource.Attributes = append(resource.Attributes, text(a[0], a[1]))
	}
	if t.cfg.Version != "" {
		resource.Attributes = append(resource.Attributes, text("service.version", t.cfg.Version))
	}
	spans := make([]*tracepb.Span, len(batch))
	for i := range batch {
		spans[i] = t.span(&batch[i])
	}
	body, _ := proto.Marshal(&tracepb.TracesData{ResourceSpans: []*tracepb.ResourceSpans{{ // only invalid UTF-8 fails, and valid has removed it
		Resource:   resource,
		ScopeSpans: []*tracepb.ScopeSpans{{Scope: &commonpb.InstrumentationScope{Name: "keygate"}, Spans: spans}},
	}}})
	return body
}

// span returns the span of a request, by the semantic conventions for HTTP servers.
func (t *Tracer) span(f *finished) *tracepb.Span {
	start := uint64(f.Start) * 1000
	own := span(f.Request)
	out := &tracepb.Span{
		TraceId: f.Trace[:], SpanId: own[:], Flags: 0x100 | flagSampled, // 0x100: the next bit says whether the parent is remote
		Kind: tracepb.Span_SPAN_KIND_SERVER, StartTimeUnixNano: start, EndTimeUnixNano: start + uint64(max(0, f.Duration)),
	}
	if f.Parent != ([8]byte{}) {
		out.ParentSpanId, out.Flags = f.Parent[:], out.Flags|0x200
	}
	method := f.Method.String()
	if f.Method == accesslog.OtherMethod {
		method = "_OTHER"
		out.Attributes = append(out.Attributes, text("http.request.method_original", f.method))
	}
	route := t.route(f)
	out.Name = strings.TrimSpace(method + " " + route)
	add := func(name, value string) {
		if value != "" {
			out.Attributes = append(out.Attributes, text(name, value))
		}
	}
	add("http.request.method", method)
	add("http.route", route)
	add("url.path", f.path)
	if client := netip.AddrFrom16(f.Client).Unmap(); f.Client != [16]byte{} {
		add("client.address", client.String())
	}
	add("keygate.request.id", identifier(id.Request, f.Request))
	add("keygate.gateway.id", identifier(id.Gateway, f.Gateway))
	add("keygate.route.id", identifier(id.Route, f.Route))
	add("keygate.key.id", identifier(id.Key, f.Key))
	out.Attributes = append(out.Attributes, number("http.response.status_code", int64(f.Status)),
		number("http.request.body.size", f.BytesIn), number("http.response.body.size", f.BytesOut))
	if f.Upstream >= 0 {
		out.Attributes = append(out.Attributes, fraction("keygate.upstream.duration", float64(f.Upstream)*1e-9), number("keygate.upstream.status_code", int64(f.UpstreamStatus)))
	}
	for c := range accesslog.Costs(f.cost) {
		out.Attributes = append(out.Attributes, number("keygate.cost."+c.Meter, c.Units))
		add("keygate.cost."+c.Meter+".unknown", c.Unknown)
	}
	if f.Status >= 500 {
		add("error.type", strconv.Itoa(int(f.Status)))
		out.Status = &tracepb.Status{Code: tracepb.Status_STATUS_CODE_ERROR}
	}
	return out
}

func (t *Tracer) route(f *finished) string {
	if t.cfg.RoutePath == nil || f.Route == ([16]byte{}) {
		return ""
	}
	return t.cfg.RoutePath(id.Format(id.Gateway, f.Gateway), id.Format(id.Route, f.Route), f.Start)
}

func identifier(k id.Kind, u [16]byte) string {
	if u == ([16]byte{}) {
		return ""
	}
	return id.Format(k, u)
}

func text(name, value string) *commonpb.KeyValue {
	return &commonpb.KeyValue{Key: valid(name), Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_StringValue{StringValue: valid(value)}}}
}

func number(name string, value int64) *commonpb.KeyValue {
	return &commonpb.KeyValue{Key: valid(name), Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_IntValue{IntValue: value}}}
}

func fraction(name string, value float64) *commonpb.KeyValue {
	return &commonpb.KeyValue{Key: name, Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_DoubleValue{DoubleValue: value}}}
}

// valid makes s valid UTF-8.
func valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
