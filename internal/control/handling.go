package control

import (
	"github.com/keygate/keygate/internal/addrlist"
	"github.com/keygate/keygate/internal/gateway"
)

// HandlingPatch is the part of a RoutePatch that changes the gateway.Handling of a route. Each field is replaced as a whole, and
// null removes it.
type HandlingPatch struct {
	StripPrefix Optional[string]
	Redirect    Optional[gateway.Redirect]
	Respond     Optional[gateway.Respond]
	AllowIPs    Optional[[]string] // an empty list is as null
	DenyIPs     Optional[[]string]

	RequestHeaders, ResponseHeaders Optional[gateway.HeaderRules] // rules without headers are as null

	Validate Optional[string]
}

// fields returns the names of the fields that are given, and a Handling with their values.
func (p *HandlingPatch) fields() (names []string, given gateway.Handling) {
	add := func(name string, present bool) {
		if present {
			names = append(names, name)
		}
	}
	add("strip_prefix", p.StripPrefix.Present)
	given.StripPrefix = p.StripPrefix.Value
	add("redirect", p.Redirect.Present)
	given.Redirect = valueOf(&p.Redirect)
	add("respond", p.Respond.Present)
	given.Respond = valueOf(&p.Respond)
	add(addrlist.AllowField, p.AllowIPs.Present)
	add(addrlist.DenyField, p.DenyIPs.Present)
	given.AllowIPs, given.DenyIPs = p.AllowIPs.Value, p.DenyIPs.Value
	add("request_headers", p.RequestHeaders.Present)
	given.RequestHeaders = valueOf(&p.RequestHeaders)
	add("response_headers", p.ResponseHeaders.Present)
	given.ResponseHeaders = valueOf(&p.ResponseHeaders)
	add("validate", p.Validate.Present)
	given.Validate = gateway.ValidateMode(p.Validate.Value)
	return names, given
}

// valueOf returns the value of an Optional, or nil if it is null or absent.
func valueOf[T any](o *Optional[T]) *T {
	if !o.Present || o.Null {
		return nil
	}
	return &o.Value
}

// isGiven reports whether p has a field.
func (p *HandlingPatch) isGiven() bool {
	names, _ := p.fields()
	return len(names) > 0
}

// apply returns h with the fields of p.
func (p *HandlingPatch) apply(h *gateway.Handling) *gateway.Handling {
	names, given := p.fields()
	for _, name := range names {
		h = h.With(name, &given)
	}
	return h
}
