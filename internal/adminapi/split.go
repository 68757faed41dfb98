package adminapi

import (
	"github.com/danielgtaylor/huma/v2"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/gateway"
)

// SplitInput is an entry of a split in a request. It is exported for the generator of the API document.
type SplitInput struct {
	Upstream string          `json:"upstream" minLength:"1" maxLength:"64" doc:"Name of the upstream that gets the requests." example:"next"`
	Weight   *percent        `json:"weight,omitempty"`
	Sticky   *bool           `json:"sticky,omitempty" nullable:"true" doc:"Whether a caller stays on its side: its key, those of a rotation as one, or its address without one (IPv6 by /64). false sends any request of a caller there. Default: true." example:"true"`
	Fallback *bool           `json:"fallback,omitempty" nullable:"true" doc:"Whether the other side serves while no target of a side takes part. Default: false." example:"false"`
	When     *SplitWhenInput `json:"when,omitempty"`
}

// SplitWhenInput is the condition of an entry. It has exactly one of the fields.
type SplitWhenInput struct {
	_      struct{}          `nullable:"true"`
	Header map[string]string `json:"header,omitempty" nullable:"true" maxProperties:"1" doc:"One header with its value, of at most 256 bytes. It is the caller's choice, and no access control." example:"{\"X-Beta\":\"1\"}"`
	Key    []string          `json:"key,omitempty" nullable:"true" minItems:"1" maxItems:"100" doc:"Identifiers of keys of the account, each with the other keys of its rotations." example:"key_01jz8y5c3te9b8r2m6q4v7x0dd"`
	Owner  []string          `json:"owner,omitempty" nullable:"true" minItems:"1" maxItems:"100" doc:"External IDs of the owners of keys." example:"customer-42"`
}

// percent is a percentage in a request or a record.
type percent struct{ gateway.Percent }

// UnmarshalJSON reads a number.
func (p *percent) UnmarshalJSON(b []byte) error { return p.Percent.UnmarshalJSON(b) }

// Schema returns the schema of the number, or null.
func (percent) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{
		Type: huma.TypeNumber, Format: "double", Nullable: true, Minimum: bound(0), Maximum: bound(100), Examples: []any{5},
		Description: "Share of the requests that go to the upstream, in percent, with at most 2 decimals. An entry has either this or when, and only one has this.",
	}
}

// splitOf returns the split of a request. A nil list is nil.
func splitOf(list []SplitInput) gateway.Split {
	if list == nil {
		return nil
	}
	s := make(gateway.Split, len(list))
	for i := range list {
		in := &list[i]
		s[i] = gateway.SplitEntry{Upstream: in.Upstream, Random: in.Sticky != nil && !*in.Sticky, Fallback: value(in.Fallback)}
		if in.Weight != nil {
			s[i].Weight = &in.Weight.Percent
		}
		if in.When != nil {
			s[i].When = &gateway.SplitWhen{Header: in.When.Header, Key: in.When.Key, Owner: in.When.Owner}
		}
	}
	return s
}

// splitPatch returns the split of an update of a route.
func splitPatch(o *optional[[]SplitInput]) control.Optional[gateway.Split] {
	return control.Optional[gateway.Split]{Present: o.Present, Null: o.Null, Value: splitOf(o.Value)}
}

// SplitRecord is an entry of a split in a record.
type SplitRecord struct {
	Upstream string           `json:"upstream" doc:"Name of the upstream that gets the requests." example:"next"`
	Weight   *percent         `json:"weight"`
	Sticky   bool             `json:"sticky" doc:"Whether a caller stays on its side." example:"true"`
	Fallback bool             `json:"fallback" doc:"Whether the other side serves while no target of a side takes part." example:"false"`
	When     *SplitWhenRecord `json:"when"`
}

// SplitWhenRecord is the condition of an entry in a record. It has one of the fields.
type SplitWhenRecord struct {
	_      struct{}          `nullable:"true"`
	Header map[string]string `json:"header,omitempty" nullable:"false" doc:"One header with its value." example:"{\"X-Beta\":\"1\"}"`
	Key    []string          `json:"key,omitempty" nullable:"false" doc:"Identifiers of keys." example:"key_01jz8y5c3te9b8r2m6q4v7x0dd"`
	Owner  []string          `json:"owner,omitempty" nullable:"false" doc:"External IDs of owners." example:"customer-42"`
}

// presentSplit returns nil for nil.
func presentSplit(s gateway.Split) []SplitRecord {
	if s == nil {
		return nil
	}
	list := make([]SplitRecord, len(s))
	for i := range s {
		e := &s[i]
		list[i] = SplitRecord{Upstream: e.Upstream, Sticky: !e.Random, Fallback: e.Fallback}
		if e.Weight != nil {
			list[i].Weight = &percent{*e.Weight}
		}
		if e.When != nil {
			list[i].When = &SplitWhenRecord{Header: e.When.Header, Key: e.When.Key, Owner: e.When.Owner}
		}
	}
	return list
}
