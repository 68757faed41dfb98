package adminapi

import (
	"github.com/keygate/keygate/internal/addrlist"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/gateway"
)

// HandlingInput is the part of a route in a request that says what is done with its requests beside forwarding them as they came. It
// is exported because requests embed it.
type HandlingInput struct {
	StripPrefix *string        `json:"strip_prefix,omitempty" nullable:"true" minLength:"1" maxLength:"4096" doc:"Beginning of the path that the upstream does not get: as many segments as it has are cut from the front of the request's path. The path of the route must begin with it." example:"/api"`
	Redirect    *redirectInput `json:"redirect,omitempty" doc:"Redirect with which the gateway responds, in place of forwarding. The request is charged. A route has either this or respond."`
	Respond     *respondInput  `json:"respond,omitempty" doc:"Response that the gateway gives, in place of forwarding. The request is charged."`
	AllowIPs    []string       `json:"allow_ips,omitempty" nullable:"true" maxItems:"256" doc:"Networks whose addresses may use the route, in CIDR notation; all others may not. The longest prefix in allow_ips and deny_ips that contains the client's address decides, and deny_ips among equal ones. The lists of the gateway and of the key must allow the address too." example:"203.0.113.0/24"`
	DenyIPs     []string       `json:"deny_ips,omitempty" nullable:"true" maxItems:"256" doc:"Networks whose addresses may not use the route, in CIDR notation." example:"198.51.100.0/24"`

	RequestHeaders  *headerRulesInput `json:"request_headers,omitempty" doc:"Headers that are set on the requests that upstreams get, and removed from them, beside those of the gateway: a rule of the route for a name takes the place of the gateway's."`
	ResponseHeaders *headerRulesInput `json:"response_headers,omitempty" doc:"Headers that are set on the responses of upstreams, and removed from them, beside those of the gateway: a rule of the route for a name takes the place of the gateway's."`

	Validate *string `json:"validate,omitempty" nullable:"true" enum:"off,report,enforce" doc:"Whether requests of the route are held against the OpenAPI document of the gateway: off, report or enforce. Default: as the gateway says." example:"report"`
}

// HandlingPatch is the part of an update of a route that changes that. It is exported because requests embed it.
type HandlingPatch struct {
	StripPrefix optional[string]        `json:"strip_prefix,omitempty" minLength:"1" maxLength:"4096" doc:"Beginning of the path that the upstream does not get: as many segments as it has are cut from the front of the request's path. The path of the route must begin with it. null cuts nothing." example:"/api"`
	Redirect    optional[redirectInput] `json:"redirect,omitempty" doc:"Redirect with which the gateway responds, in place of forwarding; replaced as a whole. null removes it."`
	Respond     optional[respondInput]  `json:"respond,omitempty" doc:"Response that the gateway gives, in place of forwarding; replaced as a whole. null removes it."`
	AllowIPs    optional[[]string]      `json:"allow_ips,omitempty" maxItems:"256" doc:"Networks whose addresses may use the route, in CIDR notation; all others may not. Replaces the whole list; null or [] means all addresses." example:"203.0.113.0/24"`
	DenyIPs     optional[[]string]      `json:"deny_ips,omitempty" maxItems:"256" doc:"Networks whose addresses may not use the route, in CIDR notation. Replaces the whole list; null or [] means none." example:"198.51.100.0/24"`

	RequestHeaders  optional[headerRulesInput] `json:"request_headers,omitempty" doc:"Headers that are set on the requests that upstreams get, and removed from them, beside those of the gateway; replaced as a whole. null or {} means none of the route."`
	ResponseHeaders optional[headerRulesInput] `json:"response_headers,omitempty" doc:"Headers that are set on the responses of upstreams, and removed from them, beside those of the gateway; replaced as a whole. null or {} means none of the route."`

	Validate optional[string] `json:"validate,omitempty" enum:"off,report,enforce" doc:"Whether requests of the route are held against the OpenAPI document of the gateway: off, report or enforce. null means as the gateway says." example:"report"`
}

// HandlingRecord is the part of a route that says what is done with its requests beside forwarding them as they came. It is exported
// because records embed it.
type HandlingRecord struct {
	StripPrefix *string         `json:"strip_prefix" doc:"Beginning of the path that the upstream does not get; null for none." example:"/api"`
	Redirect    *redirectRecord `json:"redirect" doc:"Redirect with which the gateway responds; null for none."`
	Respond     *respondRecord  `json:"respond" doc:"Response that the gateway gives; null for none."`
	AllowIPs    []string        `json:"allow_ips" nullable:"true" doc:"Networks whose addresses may use the route; null if all may." example:"203.0.113.0/24"`
	DenyIPs     []string        `json:"deny_ips" nullable:"true" doc:"Networks whose addresses may not use the route; null for none." example:"198.51.100.0/24"`

	RequestHeaders  *headerRulesRecord `json:"request_headers" doc:"Headers that are set on the requests that upstreams get, and removed from them, beside those of the gateway; null for none."`
	ResponseHeaders *headerRulesRecord `json:"response_headers" doc:"Headers that are set on the responses of upstreams, and removed from them, beside those of the gateway; null for none."`

	Validate *string `json:"validate" enum:"off,report,enforce" doc:"Whether requests of the route are held against the OpenAPI document of the gateway; null for as the gateway says." example:"report"`
}

// headerRulesInput are the rules for headers of a gateway or a route in a request.
type headerRulesInput struct {
	_      struct{}          `nullable:"true"`
	Set    map[string]string `json:"set,omitempty" nullable:"true" maxProperties:"32" doc:"Values by name. ${request_id}, ${key_id}, ${owner}, ${subject}, ${client_ip} and ${gateway_id} are variables, percent-encoded outside of visible ASCII and where they would end a value; a header with one that has no value is left out. Names that frame the message, hold a credential or belong to Keygate are refused, and so are those in upstream_headers and key_headers."`
	Remove []string          `json:"remove,omitempty" nullable:"true" maxItems:"32" doc:"Names of headers that are removed, whatever their case; _ counts as -." example:"X-Debug"`
}

type headerRulesRecord struct {
	_      struct{}          `nullable:"true"`
	Set    map[string]string `json:"set" nullable:"false" doc:"Values by name."`
	Remove []string          `json:"remove" nullable:"false" doc:"Names of headers that are removed." example:"X-Debug"`
}

func (h *headerRulesInput) rules() gateway.HeaderRules {
	return gateway.HeaderRules{Set: h.Set, Remove: h.Remove}
}

func presentHeaderRules(h *gateway.HeaderRules) *headerRulesRecord {
	if h == nil {
		return nil
	}
	r := &headerRulesRecord{Set: h.Set, Remove: orEmpty(h.Remove)}
	if r.Set == nil {
		r.Set = map[string]string{}
	}
	return r
}

type redirectInput struct {
	_         struct{} `nullable:"true"`
	To        string   `json:"to" minLength:"1" maxLength:"4096" doc:"Value of Location, as it is: a URL, or a path with an optional query. It has no variables." example:"https://example.com"`
	Status    int64    `json:"status" doc:"Status of the redirect: 301, 302, 307 or 308. 307 and 308 keep the method and the body." example:"308"`
	KeepPath  *bool    `json:"keep_path,omitempty" nullable:"true" doc:"Append the path of the request, as it came. to must then have neither a path nor a query. Default: false." example:"true"`
	KeepQuery *bool    `json:"keep_query,omitempty" nullable:"true" doc:"Append the query of the request, without api_key. to must then have no query. Default: false." example:"true"`
}

type redirectRecord struct {
	_         struct{} `nullable:"true"`
	To        string   `json:"to" doc:"Value of Location." example:"https://example.com"`
	Status    int64    `json:"status" doc:"Status of the redirect." example:"308"`
	KeepPath  bool     `json:"keep_path" doc:"Whether the path of the request is appended." example:"true"`
	KeepQuery bool     `json:"keep_query" doc:"Whether the query of the request is appended, without api_key." example:"true"`
}

type respondInput struct {
	_           struct{}          `nullable:"true"`
	Status      int64             `json:"status" minimum:"200" maximum:"599" doc:"Status of the response." example:"503"`
	ContentType *string           `json:"content_type,omitempty" nullable:"true" minLength:"1" maxLength:"128" doc:"Media type of the body. It is required if there is a body." example:"application/json"`
	Body        *string           `json:"body,omitempty" nullable:"true" maxLength:"65536" doc:"Body of the response, at most 64 KiB. Default: none." example:"{}"`
	Headers     map[string]string `json:"headers,omitempty" nullable:"true" maxProperties:"32" doc:"Headers of the response. Those that frame the message or that Keygate sets are refused."`
}

type respondRecord struct {
	_           struct{}          `nullable:"true"`
	Status      int64             `json:"status" doc:"Status of the response." example:"503"`
	ContentType *string           `json:"content_type" doc:"Media type of the body; null without a body." example:"application/json"`
	Body        string            `json:"body" doc:"Body of the response." example:"{}"`
	Headers     map[string]string `json:"headers" nullable:"false" doc:"Headers of the response."`
}

func (r *redirectInput) redirect() gateway.Redirect {
	return gateway.Redirect{To: r.To, Status: r.Status, KeepPath: value(r.KeepPath), KeepQuery: value(r.KeepQuery)}
}

func (r *respondInput) respond() gateway.Respond {
	out := gateway.Respond{Status: r.Status, ContentType: value(r.ContentType), Body: value(r.Body)}
	if len(r.Headers) > 0 {
		out.Headers = r.Headers
	}
	return out
}

// handling returns what the request asks for; nil for nothing.
func (in *HandlingInput) handling() *gateway.Handling {
	h := &gateway.Handling{StripPrefix: value(in.StripPrefix), AllowIPs: addrlist.Normal(in.AllowIPs), DenyIPs: addrlist.Normal(in.DenyIPs), Validate: gateway.ValidateMode(value(in.Validate))}
	if in.RequestHeaders != nil {
		h.RequestHeaders = new(in.RequestHeaders.rules()).Normal()
	}
	if in.ResponseHeaders != nil {
		h.ResponseHeaders = new(in.ResponseHeaders.rules()).Normal()
	}
	if in.Redirect != nil {
		h.Redirect = new(in.Redirect.redirect())
	}
	if in.Respond != nil {
		h.Respond = new(in.Respond.respond())
	}
	return h.Stored()
}

// patch returns the change that the request asks for.
func (p *HandlingPatch) patch() control.HandlingPatch {
	return control.HandlingPatch{
		StripPrefix: p.StripPrefix.Optional,
		Redirect:    converted(&p.Redirect, (*redirectInput).redirect),
		Respond:     converted(&p.Respond, (*respondInput).respond),
		AllowIPs:    p.AllowIPs.Optional,
		DenyIPs:     p.DenyIPs.Optional,

		RequestHeaders:  converted(&p.RequestHeaders, (*headerRulesInput).rules),
		ResponseHeaders: converted(&p.ResponseHeaders, (*headerRulesInput).rules),

		Validate: p.Validate.Optional,
	}
}

// converted returns an optional value in another form.
func converted[T, U any](o *optional[T], convert func(*T) U) (out control.Optional[U]) {
	if out.Present, out.Null = o.Present, o.Null; o.Present && !o.Null {
		out.Value = convert(&o.Value)
	}
	return out
}

func presentHandling(h *gateway.Handling) (r HandlingRecord) {
	if h == nil {
		return r
	}
	r.StripPrefix, r.AllowIPs, r.DenyIPs = optionalText(h.StripPrefix), h.AllowIPs, h.DenyIPs
	r.RequestHeaders, r.ResponseHeaders = presentHeaderRules(h.RequestHeaders), presentHeaderRules(h.ResponseHeaders)
	r.Validate = optionalText(string(h.Validate))
	if d := h.Redirect; d != nil {
		r.Redirect = &redirectRecord{To: d.To, Status: d.Status, KeepPath: d.KeepPath, KeepQuery: d.KeepQuery}
	}
	if d := h.Respond; d != nil {
		r.Respond = &respondRecord{Status: d.Status, ContentType: optionalText(d.ContentType), Body: d.Body, Headers: d.Headers}
		if d.Headers == nil {
			r.Respond.Headers = map[string]string{}
		}
	}
	return r
}
