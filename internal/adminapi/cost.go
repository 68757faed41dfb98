package adminapi

import (
	"reflect"

	"github.com/danielgtaylor/huma/v2"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/cost"
	"github.com/keygate/keygate/internal/fault"
)

// The costs of a route in a request and in a response, as the OpenAPI document describes them. Package cost reads and writes
// them.

type costInput struct {
	Meter   string            `json:"meter" minLength:"1" maxLength:"32" doc:"What is counted: 1 to 32 characters of a-z, 0-9 and _, such as tokens or requests, each in one cost of the route. bytes_in and bytes_out are counted on every route, and have no cost." example:"tokens"`
	Reserve *int64            `json:"reserve,omitempty" nullable:"true" minimum:"0" maximum:"9007199254740991" doc:"What is taken before a request is forwarded, at most max. At the end it becomes what the request cost. Default: 1, or the price." example:"2000"`
	Max     *int64            `json:"max,omitempty" nullable:"true" minimum:"0" maximum:"9007199254740991" doc:"The most that one request may cost. Required with header and json. Default: the price." example:"16000"`
	From    costFromInput     `json:"from" doc:"Where the figure is found: exactly one of request, header and json."`
	Unknown *costUnknownInput `json:"unknown,omitempty" doc:"What a request costs at least if its figure is missing, or if the exchange did not complete: max (the default), reserve, or a weight for each byte of a body."`
}

type costFromInput struct {
	Request *int64                        `json:"request,omitempty" nullable:"true" minimum:"0" maximum:"9007199254740991" doc:"A price: what each forwarded request costs." example:"20"`
	Header  *string                       `json:"header,omitempty" nullable:"true" minLength:"1" maxLength:"128" doc:"Name of a header or trailer of the response with a decimal number, which is rounded up." example:"X-Tokens-Used"`
	Expose  *bool                         `json:"expose,omitempty" nullable:"true" doc:"Of header: true passes it on to the client. Default: it is removed."`
	JSON    map[string]float64            `json:"json,omitempty" nullable:"true" doc:"Fields of a response in JSON, or of the events of a stream, each with what one of it costs: -1000000 to 1000000, up to 6 decimals. At most 16. A field is a path with dots; a|b is the first of both that is there; a? may be absent, and is 0 then. The sum is rounded up."`
	By      *string                       `json:"by,omitempty" nullable:"true" minLength:"1" maxLength:"255" doc:"Of json: the field whose value selects one of prices." example:"model"`
	Prices  map[string]map[string]float64 `json:"prices,omitempty" nullable:"true" doc:"Of json: for values of by, other fields and weights in place of json. At most 64."`
}

type costRecord struct {
	Meter   string         `json:"meter" doc:"What is counted." example:"tokens"`
	Reserve int64          `json:"reserve" doc:"What is taken before a request is forwarded. At the end it becomes what the request cost." example:"2000"`
	Max     int64          `json:"max" doc:"The most that one request may cost." example:"16000"`
	From    costFromRecord `json:"from" doc:"Where the figure is found."`
	Unknown *costUnknown   `json:"unknown,omitempty" doc:"What a request costs at least if its figure is missing, or if the exchange did not complete: reserve, or a weight for each byte of a body. Absent for max."`
}

type costFromRecord struct {
	Request *int64                        `json:"request,omitempty" doc:"A price: what each forwarded request costs." example:"20"`
	Header  *string                       `json:"header,omitempty" doc:"Name of a header or trailer of the response with the number." example:"X-Tokens-Used"`
	Expose  *bool                         `json:"expose,omitempty" doc:"true if the header is passed on to the client; else absent."`
	JSON    map[string]float64            `json:"json,omitempty" doc:"Fields of a response in JSON, or of the events of a stream, each with what one of it costs."`
	By      *string                       `json:"by,omitempty" doc:"The field whose value selects one of prices." example:"model"`
	Prices  map[string]map[string]float64 `json:"prices,omitempty" doc:"For values of by, other fields and weights in place of json."`
}

// costUnknownInput and costUnknown are a text, or an object with one weight.
type (
	costUnknownInput struct{}
	costUnknown      struct{}
)

// Schema returns the schema of both forms.
func (costUnknownInput) Schema(huma.Registry) *huma.Schema {
	text, object := costUnknownForms("max", "reserve")
	object.AdditionalProperties = false
	return &huma.Schema{OneOf: []*huma.Schema{text, object, {Type: nullType}}}
}

// Schema returns the schema of both forms.
func (costUnknown) Schema(huma.Registry) *huma.Schema {
	text, object := costUnknownForms("reserve")
	return &huma.Schema{OneOf: []*huma.Schema{text, object}}
}

func costUnknownForms(texts ...any) (text, object *huma.Schema) {
	weight := func(of string) *huma.Schema {
		most := 1_000_000.0
		return &huma.Schema{Type: huma.TypeNumber, ExclusiveMinimum: new(float64), Maximum: &most, Description: "For each byte of the body of the " + of + "."}
	}
	return &huma.Schema{Type: huma.TypeString, Enum: texts}, &huma.Schema{
		Type:       huma.TypeObject,
		Properties: map[string]*huma.Schema{"bytes_in": weight("request"), "bytes_out": weight("response")},
	}
}

// costSchema returns the schema of a list of costs in a request or a response.
func costSchema[T any](r huma.Registry) *huma.Schema {
	most := cost.MaxRules
	return &huma.Schema{Type: huma.TypeArray, Nullable: true, MaxItems: &most, Items: r.Schema(reflect.TypeFor[T](), true, "")}
}

// isCostInput reports whether s is a list of costs in a request: package cost says what is wrong with such a value.
func isCostInput(s *huma.Schema) bool {
	return s.Type == huma.TypeArray && s.Items != nil && s.Items.Ref == schemaPrefix+"CostInput"
}

// costListInput is the cost of a route in a request.
type costListInput struct {
	rules cost.Rules
	err   error // what is wrong with it
}

// UnmarshalJSON decodes any value.
func (in *costListInput) UnmarshalJSON(data []byte) error {
	if in.err = in.rules.UnmarshalJSON(data); fault.ProblemsOf(in.err) == nil {
		return in.err
	}
	return nil
}

// Schema returns the schema of the list.
func (costListInput) Schema(r huma.Registry) *huma.Schema { return costSchema[costInput](r) }

// costOf returns the cost of a request, and refuses the call if it is invalid.
func (c *call) costOf(in *costListInput) cost.Rules {
	if in == nil {
		return nil
	}
	c.refuse(fault.Prefixed("cost", in.err))
	return in.rules
}

// costPatch converts the field cost of an update of a route.
func (c *call) costPatch(p *optional[costListInput]) control.Optional[cost.Rules] {
	return control.Optional[cost.Rules]{Present: p.Present, Null: p.Null, Value: c.costOf(&p.Value)}
}

// costList is the cost of a route in a response.
type costList struct{ cost.Rules }

func presentCost(rules cost.Rules) *costList {
	if len(rules) == 0 {
		return nil
	}
	return &costList{rules}
}

// Schema returns the schema of the list.
func (costList) Schema(r huma.Registry) *huma.Schema { return costSchema[costRecord](r) }
