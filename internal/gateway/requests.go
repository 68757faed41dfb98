package gateway

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/ratelimit"
)

// Requests says how a gateway reads the requests of its callers, and what ends an exchange. The store keeps it
// as one JSON object, so its JSON names are part of the stored form: add new ones, but never change one.
type Requests struct {
	// KeyHeaders are the headers that may hold the key, as given; nil means
	// DefaultKeyHeaders.
	KeyHeaders []string `json:"key_headers,omitempty"`

	// AllowEncodedSlashes makes an encoded slash or backslash a part of its segment.
	// Otherwise a path that has one is rejected.
	AllowEncodedSlashes bool `json:"allow_encoded_slashes,omitempty"`

	// KeepStreams is the opposite of cut_streams, whose default is true: long exchanges go on
	// when their key is revoked, expires or no longer allows them.
	KeepStreams bool `json:"keep_streams,omitempty"`

	// DrainTimeout is how long requests at a target go on that was drained or removed, as a Go duration; "" means
	// DefaultDrainTimeout.
	DrainTimeout string `json:"drain_timeout,omitempty"`

	// ErrorFormat is the fault.Format of the gateway's own errors; "" means fault.Keygate.
	ErrorFormat string `json:"error_format,omitempty"`

	// Validate says whether requests are held against the OpenAPI document; "" means ValidateOff.
	Validate ValidateMode `json:"validate,omitempty"`

	// Checks says what of the OpenAPI document is compiled to hold requests against it. A push sets it.
	Checks Checks `json:"checks,omitzero"`

	// AnonymousLimit limits each client address on public routes.
	AnonymousLimit AnonymousLimit `json:"anonymous_limit,omitzero"`

	// SelfService says what holders of keys may do themselves.
	SelfService SelfService `json:"self_service,omitzero"`

	// AllowIPs and DenyIPs are the networks whose addresses may use the gateway, and may not.
	AllowIPs []string `json:"allow_ips,omitempty"`
	DenyIPs  []string `json:"deny_ips,omitempty"`

	// Maintenance is not nil if the gateway is under maintenance.
	Maintenance *Maintenance `json:"maintenance,omitempty"`

	// RequestHeaders and ResponseHeaders are the headers that are set and removed; nil for none.
	RequestHeaders  *HeaderRules `json:"request_headers,omitempty"`
	ResponseHeaders *HeaderRules `json:"response_headers,omitempty"`

	// DefaultAuth is what routes require that do not say it; "" means DefaultAuth.
	DefaultAuth Auth `json:"default_auth,omitempty"`

	// Issuers are the names of the issuers whose tokens the gateway takes; nil for none.
	Issuers []string `json:"issuers,omitempty"`

	// ACME is set if Keygate gets a certificate for the hostname.
	ACME bool `json:"acme,omitempty"`

	// Split is that of routes which have none; nil for none.
	Split Split `json:"split,omitempty"`
}

// AnonymousLimit is a rate limit of each client address. The zero value is no limit.
type AnonymousLimit struct {
	Sustained ratelimit.Rate `json:"sustained"`
	Burst     ratelimit.Rate `json:"burst,omitzero"`
}

// IsZero reports whether there is no limit.
func (l AnonymousLimit) IsZero() bool { return l == AnonymousLimit{} }

// Config returns the limit as ratelimit has it.
func (l AnonymousLimit) Config() ratelimit.Config {
	return ratelimit.Config{Sustained: l.Sustained, Burst: l.Burst}
}

// DefaultDrainTimeout is the drain_timeout of a gateway that sets none.
const DefaultDrainTimeout = "30s"

// CheckDrainTimeout checks how long requests at a target go on that was taken away: a Go duration from 1s to 24h (targets.md,
// section 6). The error is a validation error of the field "drain_timeout".
func CheckDrainTimeout(s string) error {
	d, err := time.ParseDuration(s)
	if err != nil || d < time.Second || d > 24*time.Hour {
		return fault.Invalid("drain_timeout", "must be a duration between 1s and 24h, such as 30s or 5m")
	}
	return nil
}

// CheckErrorFormat checks the form of a gateway's own errors (contract, 3.3). The error is a validation error of
// the field "error_format".
func CheckErrorFormat(s string) error {
	if formats := fault.Formats(); !slices.Contains(formats, s) {
		return fault.Invalid("error_format", "must be one of %s", strings.Join(formats, ", "))
	}
	return nil
}

// CheckDefaultAuth checks what routes require that do not say it (identity.md, section 1). The error is a validation error of
// the field "default_auth".
func CheckDefaultAuth(s string) error {
	if !slices.Contains(Auths(), Auth(s)) {
		return fault.Invalid("default_auth", "must be key, token, any or none")
	}
	return nil
}

// MaxKeyHeaders is how many headers of a gateway may hold the key.
const MaxKeyHeaders = 4

// Authorization is the key header that holds the key after the scheme Bearer. In any other key
// header, the whole value is the key.
const Authorization = "Authorization"

// DefaultKeyHeaders returns the key headers of a gateway that sets none.
func DefaultKeyHeaders() []string { return []string{Authorization} }

// AllKeyHeaders returns the headers that may hold the key, the default included.
func (r *Requests) AllKeyHeaders() []string {
	if r.KeyHeaders == nil {
		return DefaultKeyHeaders()
	}
	return r.KeyHeaders
}

// HasAuthorization reports whether list has the header Authorization.
func HasAuthorization(list []string) bool {
	return slices.ContainsFunc(list, func(name string) bool { return strings.EqualFold(name, Authorization) })
}

// CheckKeyHeaders checks the headers that may hold the key (contract, 3.3). It rejects
// headers that concern routing, framing, connections or cookies, or that Keygate sets. The
// error is a validation error of "key_headers" or of its items.
func CheckKeyHeaders(list []string) error {
	switch {
	case len(list) == 0:
		return fault.Invalid("key_headers", "must name at least one header: leave it out, or set it to null, for Authorization")
	case len(list) > MaxKeyHeaders:
		return fault.Invalid("key_headers", "must not name more than %d headers", MaxKeyHeaders)
	}
	var problems []error
	seen := make(map[string]bool, len(list))
	for i, name := range list {
		// Services that follow CGI treat "_" and "-" as the same character.
		folded := strings.ReplaceAll(strings.ToLower(name), "_", "-")
		switch {
		case !isToken(name) || len(name) > maxHeaderName:
			problems = append(problems, invalidKeyHeader(i, "%.40q is not a valid header name", name))
		case seen[folded]:
			problems = append(problems, invalidKeyHeader(i, "is a duplicate: names that differ only in case, or in - and _, are the same header"))
		case isReservedHeader(folded) || describesRequest(folded):
			problems = append(problems, invalidKeyHeader(i, "cannot hold a key: %s has another meaning in every request. Use a name such as X-API-Key", name))
		}
		seen[folded] = true
	}
	return fault.Join(problems...)
}

// MaxIssuers is how many issuers a gateway may name.
const MaxIssuers = 16

// CheckIssuers checks the names of issuers whose tokens a gateway takes (identity.md, section 2). Package control finds the
// issuers. The error is a validation error of "issuers" or of its items.
func CheckIssuers(list []string) error {
	if len(list) > MaxIssuers {
		return fault.Invalid("issuers", "must not name more than %d issuers", MaxIssuers)
	}
	var problems []error
	for i, name := range list {
		field := fmt.Sprintf("issuers[%d]", i)
		switch {
		case name == "" || len(name) > maxPlanName:
			problems = append(problems, fault.Invalid(field, "must be the name of an issuer, of 1 to %d characters", maxPlanName))
		case slices.Contains(list[:i], name):
			problems = append(problems, fault.Invalid(field, "is a duplicate: name each issuer once"))
		}
	}
	return fault.Join(problems...)
}

func invalidKeyHeader(i int, format string, args ...any) error {
	return fault.Prefixed("key_headers", fault.Invalid("["+string(rune('0'+i))+"]", format, args...))
}

// describesRequest reports whether a header that is not reserved describes the request, so that a
// service must receive it and it cannot hold a key. name is in lower case, with "-" for "_".
func describesRequest(name string) bool {
	switch name {
	case "cookie", "set-cookie", "origin", "referer", "range", "traceparent", "tracestate", "user-agent", "date",
		"x-real-ip", "x-client-ip", "true-client-ip", "cf-connecting-ip":
		return true
	}
	return beginsWith(name, "accept", "access-control-", "content-", "if-", "sec-")
}
