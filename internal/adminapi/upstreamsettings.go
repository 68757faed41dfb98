package adminapi

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
)

// The settings of an upstream in requests and in its record are loops over gateway.UpstreamSettings, as those of a gateway
// are over gateway.Settings.

// TargetInput is a target in a request. It is exported because huma omits an embedded struct with an
// unexported name from the document.
type TargetInput struct {
	URL    string `json:"url" minLength:"1" maxLength:"2048" doc:"Base URL: http, https or h2c (cleartext HTTP/2), with the same scheme as the other targets of the upstream." example:"https://10.0.0.1:8443"`
	Weight *int   `json:"weight,omitempty" nullable:"true" minimum:"1" maximum:"1000" doc:"Share of the requests, compared with the weights of the other targets. Default: 1." example:"2"`
	Backup *bool  `json:"backup,omitempty" nullable:"true" doc:"true makes the target take part only while no other one does. Default: false." example:"false"`
	Drain  *bool  `json:"drain,omitempty" nullable:"true" doc:"true takes the target away: it gets no more requests. Default: false." example:"false"`

	Resolve *string `json:"resolve,omitempty" nullable:"true" enum:"none,a,srv" doc:"How the name in the URL is looked up: none, at each connect; a, every refresh, and each of its addresses is an address of the target; srv, every refresh, and each SRV record is one, with its port, weight and priority. Default: none." example:"a"`
}

func (t *TargetInput) target() gateway.Target {
	return gateway.Target{URL: t.URL, Weight: value(t.Weight), Backup: value(t.Backup), Drain: value(t.Drain), Resolve: gateway.Resolve(value(t.Resolve))}
}

type targetRecord struct {
	URL    string `json:"url" doc:"Base URL." example:"https://10.0.0.1:8443"`
	Weight int    `json:"weight" doc:"Share of the requests, compared with the weights of the other targets." example:"2"`
	Backup bool   `json:"backup" doc:"Whether the target takes part only while no other one does." example:"false"`
	Drain  bool   `json:"drain" doc:"Whether the target is taken away: it gets no more requests." example:"false"`

	Resolve string `json:"resolve" enum:"none,a,srv" doc:"How the name in the URL is looked up: at each connect, or every refresh." example:"a"`
}

// ejectionInput is the ejection of an upstream in a request: false, or an object.
type ejectionInput struct{ gateway.Ejection }

// UnmarshalJSON decodes a value that the schema has accepted.
func (e *ejectionInput) UnmarshalJSON(data []byte) error {
	if data[0] == 'f' {
		e.Ejection = gateway.Ejection{Off: true}
		return nil
	}
	var in struct {
		Failures   *int     `json:"failures"`
		On         []string `json:"on"`
		Base       *string  `json:"base"`
		Max        *string  `json:"max"`
		MaxPercent *int     `json:"max_percent"`
	}
	err := unmarshal(data, &in)
	e.Ejection = gateway.DefaultEjection()
	putGiven(&e.Failures, in.Failures)
	putGiven(&e.Base, in.Base)
	putGiven(&e.Max, in.Max)
	putGiven(&e.MaxPercent, in.MaxPercent)
	if in.On != nil {
		e.On = in.On
	}
	return err
}

// putGiven sets to to the value of a field that is neither absent nor null.
func putGiven[T any](to *T, given *T) {
	if given != nil {
		*to = *given
	}
}

// Schema returns the schema of both forms, and of null.
func (ejectionInput) Schema(huma.Registry) *huma.Schema {
	object := ejectionForm(true)
	object.AdditionalProperties = false
	return &huma.Schema{OneOf: []*huma.Schema{object, switchedOff(), {Type: nullType}}}
}

// ejectionRecord is the ejection of an upstream in a response.
type ejectionRecord struct{ gateway.Ejection }

// MarshalJSON returns false or an object.
func (e ejectionRecord) MarshalJSON() ([]byte, error) {
	if e.Off {
		return []byte("false"), nil
	}
	return marshalMembers([]member{{"failures", e.Failures}, {"on", orEmpty(e.On)}, {"base", e.Base}, {"max", e.Max}, {"max_percent", e.MaxPercent}})
}

// Schema returns the schema of both forms.
func (ejectionRecord) Schema(huma.Registry) *huma.Schema {
	object := ejectionForm(false)
	object.Required = []string{"base", "failures", "max", "max_percent", "on"}
	return &huma.Schema{OneOf: []*huma.Schema{object, switchedOff()}}
}

func switchedOff() *huma.Schema {
	return &huma.Schema{Type: huma.TypeBoolean, Enum: []any{false}, Description: "Ejection is turned off."}
}

// ejectionForm returns the schema of the object, whose fields may be null in a request.
func ejectionForm(inRequest bool) *huma.Schema {
	field := func(s *huma.Schema, doc string, example any) *huma.Schema {
		s.Nullable, s.Description, s.Examples = inRequest, doc, []any{example}
		return s
	}
	count := func(least, most float64) *huma.Schema {
		return &huma.Schema{Type: huma.TypeInteger, Format: "int64", Minimum: bound(least), Maximum: bound(most)}
	}
	least := 1
	on := &huma.Schema{Type: huma.TypeArray, MinItems: &least, Items: &huma.Schema{Type: huma.TypeString, Enum: failureKinds()}}
	return &huma.Schema{Type: huma.TypeObject, Properties: map[string]*huma.Schema{
		"failures":    field(count(1, 1000), "How many failures in a row eject a target. Default: 5.", 5),
		"on":          field(on, "What counts as a failure. Default: connect and reset.", []any{gateway.OnConnect, gateway.OnReset}),
		"base":        field(textSchema(), "How long a target is ejected the first time, as a Go duration from 100ms to 24h. Default: 10s.", "10s"),
		"max":         field(textSchema(), "How long a target is ejected at most, as a Go duration from 100ms to 24h. Default: 300s.", "300s"),
		"max_percent": field(count(0, 100), "How many of the targets may be ejected at once for statuses and timeouts, in percent. Default: 50.", 50),
	}}
}

// failureKinds returns the kinds of failures.
func failureKinds() []any {
	return []any{gateway.OnConnect, gateway.OnReset, gateway.OnTimeout, gateway.On502, gateway.On503, gateway.On504, gateway.OnGRPCUnavailable}
}

type retriesInput struct {
	_              struct{} `nullable:"true"`
	Attempts       *int     `json:"attempts,omitempty" nullable:"true" minimum:"0" maximum:"5" doc:"How often a request is tried again. Default: 1." example:"1"`
	BudgetPercent  *int     `json:"budget_percent,omitempty" nullable:"true" minimum:"0" maximum:"100" doc:"Bound of the retries of the last 10 seconds, in percent of the requests, beside 30 that are always allowed. Default: 20." example:"20"`
	On             []string `json:"on,omitempty" nullable:"true" enum:"connect,reset,timeout,502,503,504,grpc_unavailable" doc:"After which failures an idempotent request is tried again, although it was sent. Default: connect and reset." example:"connect,reset"`
	IdempotencyKey *bool    `json:"idempotency_key,omitempty" nullable:"true" doc:"Whether POST and PATCH with the header Idempotency-Key count as idempotent. Default: false." example:"false"`
}

func (in *retriesInput) retries() gateway.Retries {
	r := gateway.DefaultRetries()
	putGiven(&r.Attempts, in.Attempts)
	putGiven(&r.BudgetPercent, in.BudgetPercent)
	putGiven(&r.IdempotencyKey, in.IdempotencyKey)
	if in.On != nil {
		r.On = in.On
	}
	return r
}

type retriesRecord struct {
	Attempts       int      `json:"attempts" doc:"How often a request is tried again." example:"1"`
	BudgetPercent  int      `json:"budget_percent" doc:"Bound of the retries of the last 10 seconds, in percent of the requests, beside 30 that are always allowed." example:"20"`
	On             []string `json:"on" nullable:"false" doc:"After which failures an idempotent request is tried again, although it was sent." example:"connect,reset"`
	IdempotencyKey bool     `json:"idempotency_key" doc:"Whether POST and PATCH with the header Idempotency-Key count as idempotent." example:"false"`
}

type healthInput struct {
	_         struct{}                    `nullable:"true"`
	Path      *string                     `json:"path,omitempty" nullable:"true" minLength:"1" maxLength:"1024" doc:"Path, from the root of the target's origin, that is requested with GET. Exactly one of path, grpc and tcp is given." example:"/healthz"`
	GRPC      *string                     `json:"grpc,omitempty" nullable:"true" maxLength:"255" doc:"Service whose health is asked for by grpc.health.v1; empty for the server as a whole. Needs https or h2c targets." example:"orders.v1.Orders"`
	TCP       *bool                       `json:"tcp,omitempty" nullable:"true" doc:"true if a connection is enough. Default: false." example:"false"`
	Interval  *string                     `json:"interval,omitempty" nullable:"true" minLength:"1" doc:"Time from one check to the next, as a Go duration from 1s to 1h; it varies by a tenth. Default: 10s." example:"10s"`
	Timeout   *string                     `json:"timeout,omitempty" nullable:"true" minLength:"1" doc:"Timeout of a check, as a Go duration from 100ms to 1m. Default: 2s." example:"2s"`
	Unhealthy *int                        `json:"unhealthy,omitempty" nullable:"true" minimum:"1" maximum:"100" doc:"How many bad checks in a row take a target out. Default: 2." example:"2"`
	Healthy   *int                        `json:"healthy,omitempty" nullable:"true" minimum:"1" maximum:"100" doc:"How many good checks in a row take it in again. Default: 2." example:"2"`
	Statuses  *string                     `json:"statuses,omitempty" nullable:"true" minLength:"1" doc:"Statuses that are good, with path: codes and ranges separated by commas. Default: 200-399." example:"200-399"`
	Headers   optional[map[string]string] `json:"headers,omitempty" maxProperties:"16" doc:"Headers of checks. Replaces all of them; null removes them, and absent keeps those in force. Their values are encrypted at rest and never returned."`
}

func (in *healthInput) health() gateway.Health {
	h := gateway.DefaultHealth()
	putGiven(&h.Path, in.Path)
	h.GRPC = in.GRPC
	putGiven(&h.TCP, in.TCP)
	putGiven(&h.Interval, in.Interval)
	putGiven(&h.Timeout, in.Timeout)
	putGiven(&h.Unhealthy, in.Unhealthy)
	putGiven(&h.Healthy, in.Healthy)
	putGiven(&h.Statuses, in.Statuses)
	h.Headers = headersOf(in.Headers)
	return h.WithDefaults()
}

// headersOf returns headers that replace those in force: nil if absent, and none for null.
func headersOf(o optional[map[string]string]) map[string]string {
	if o.Present && o.Value == nil {
		return map[string]string{}
	}
	return o.Value
}

type healthRecord struct {
	_         struct{}          `nullable:"true"`
	Path      *string           `json:"path" doc:"Path that is requested with GET; null for another kind of check." example:"/healthz"`
	GRPC      *string           `json:"grpc" doc:"Service whose health is asked for by grpc.health.v1, empty for the server as a whole; null for another kind of check." example:"orders.v1.Orders"`
	TCP       bool              `json:"tcp" doc:"Whether a connection is enough." example:"false"`
	Interval  string            `json:"interval" doc:"Time from one check to the next, as a Go duration." example:"10s"`
	Timeout   string            `json:"timeout" doc:"Timeout of a check, as a Go duration." example:"2s"`
	Unhealthy int               `json:"unhealthy" doc:"How many bad checks in a row take a target out." example:"2"`
	Healthy   int               `json:"healthy" doc:"How many good checks in a row take it in again." example:"2"`
	Statuses  *string           `json:"statuses" doc:"Statuses that are good; null unless a path is requested." example:"200-399"`
	Headers   map[string]string `json:"headers" nullable:"false" doc:"Headers of checks. Each value is shown as ***."`
}

// presentHealth returns checks as the record has them; nil for none.
func presentHealth(h gateway.Health) any {
	if h.IsZero() {
		return nil
	}
	r := &healthRecord{GRPC: h.GRPC, TCP: h.TCP, Interval: h.Interval, Timeout: h.Timeout, Unhealthy: h.Unhealthy, Healthy: h.Healthy, Headers: h.Headers}
	if h.Path != "" {
		r.Path, r.Statuses = &h.Path, &h.Statuses
	}
	if r.Headers == nil {
		r.Headers = map[string]string{}
	}
	return r
}

// upstreamRequest is the body of putUpstream and updateUpstream.
type upstreamRequest struct{}

// TransformSchema adds the settings to the schema.
func (upstreamRequest) TransformSchema(r huma.Registry, schema *huma.Schema) *huma.Schema {
	if schema.Properties == nil {
		schema.Properties = map[string]*huma.Schema{}
	}
	for _, s := range gateway.UpstreamSettings() {
		schema.Properties[s.Name] = inputSchema(r, &s, s.Doc.Update, !s.NotNull)
	}
	return schema
}

// upstreamInput is an upstream in the body of createGateway.
type upstreamInput struct {
	Name string `json:"name" minLength:"1" maxLength:"64" doc:"Name of the upstream, unique in the gateway: 1 to 64 characters of a-z, 0-9, - and _. default is that of routes that name none; its first target is upstream_url, which is then left out." example:"default"`
}

// TransformSchema adds the settings to the schema.
func (upstreamInput) TransformSchema(r huma.Registry, schema *huma.Schema) *huma.Schema {
	return upstreamRequest{}.TransformSchema(r, schema)
}

// upstreamPatch returns what an object with settings of an upstream changes. If a value is invalid on its own, the problem
// names its field below prefix, and the call is refused.
func (c *call) upstreamPatch(name, prefix string, body gatewayBody) (p gateway.UpstreamPatch, err error) {
	p.Name = name
	for _, s := range gateway.UpstreamSettings() {
		switch content, given := body[s.Name]; {
		case !given:
		case content.Kind() != 'n':
			v, err := decodeSetting(&s, content)
			switch {
			case err == nil:
				p.Put(&s, v)
			case fault.CodeOf(err) != fault.ValidationFailed:
				return p, err
			default:
				c.refuse(fault.Prefixed(prefix, err))
			}
		case !s.NotNull:
			p.Put(&s, nil)
		}
	}
	return p, nil
}

// upstreams returns the list of upstreams of a creation.
func (c *call) upstreams(content jsontext.Value) (m gateway.Member[[]gateway.UpstreamPatch], err error) {
	if len(content) == 0 || content.Kind() == 'n' {
		return m, nil
	}
	entries, err := decoded[[]gatewayBody](content)
	m.Present = true
	for i := 0; i < len(entries) && err == nil; i++ {
		var name string
		if name, err = entries[i].text("name"); err != nil {
			break
		}
		var p gateway.UpstreamPatch
		p, err = c.upstreamPatch(name, fmt.Sprintf("upstreams[%d]", i), entries[i])
		m.Value = append(m.Value, p)
	}
	return m, err
}

// hasDefault reports whether a list of upstreams has the default one.
func hasDefault(list []gateway.UpstreamPatch) bool {
	return slices.ContainsFunc(list, func(p gateway.UpstreamPatch) bool { return p.Name == gateway.DefaultUpstream })
}

// upstreamRecord is the record of an upstream: its name and its settings.
type upstreamRecord struct{ members []member }

// TransformSchema sets the fields of the schema.
func (upstreamRecord) TransformSchema(r huma.Registry, schema *huma.Schema) *huma.Schema {
	schema.Properties = map[string]*huma.Schema{
		"name": {Type: huma.TypeString, Description: "Name of the upstream.", Examples: []any{"default"}},
	}
	schema.Required = []string{"name"}
	for _, s := range gateway.UpstreamSettings() {
		schema.Properties[s.Name] = recordSchema(r, &s, isNullable(&s))
		schema.Required = append(schema.Required, s.Name)
	}
	schema.Properties["all_unhealthy"] = &huma.Schema{Type: huma.TypeBoolean, Description: "Whether requests go to all targets that do not drain, because none of them is healthy on the node that responds. Only in the response to getUpstream.", Examples: []any{false}}
	schema.Properties["status"] = &huma.Schema{Type: huma.TypeArray, Description: "State of the targets on each node. Only in the response to getUpstream.", Items: r.Schema(reflect.TypeFor[targetStatusRecord](), true, "")}
	return schema
}

// addStatus adds the state of the targets.
func (r *upstreamRecord) addStatus(s *control.UpstreamStatus) {
	list := make([]targetStatusRecord, len(s.Targets))
	for i := range s.Targets {
		list[i] = presentTargetStatus(&s.Targets[i])
	}
	r.members = append(r.members, member{"all_unhealthy", s.AllUnhealthy}, member{"status", list})
}

// isNullable reports whether a setting of an upstream is null in its record while it is not set.
func isNullable(s *gateway.Setting) bool { return s.Default() == "" || s.Default() == int64(0) }

// MarshalJSON returns the object.
func (r upstreamRecord) MarshalJSON() ([]byte, error) { return marshalMembers(r.members) }

func presentUpstream(g *gateway.Gateway, u *gateway.Upstream) upstreamRecord {
	r := upstreamRecord{members: []member{{"name", u.FullName()}}}
	alone := g.Alone(u)
	for _, s := range gateway.UpstreamSettings() {
		v := s.Value(alone)
		if isNullable(&s) && v == "" {
			v = nil
		}
		r.members = append(r.members, member{s.Name, presentSetting(v)})
	}
	return r
}

func presentTargets(list []gateway.Target) []targetRecord {
	out := make([]targetRecord, len(list))
	for i := range list {
		t := &list[i]
		out[i] = targetRecord{URL: t.URL, Weight: t.WeightOf(), Backup: t.Backup, Drain: t.Drain, Resolve: string(t.ResolveOf())}
	}
	return out
}
