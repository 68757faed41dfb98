package gateway

import (
	"bytes"
	"maps"
	"slices"
	"strings"

	"github.com/keygate/keygate/internal/document"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/label"
	"github.com/keygate/keygate/internal/ratelimit"
)

// Section is the section "gateway" of a configuration file: all settings of a gateway, which
// the table settings lists. The zero value changes nothing.
type Section struct {
	Name                Member[string]
	Hostname            Member[string]
	Default             Member[bool] // null is not allowed
	UpstreamURL         Member[string]
	GlobalLimit         Member[ratelimit.Config]
	Timeout             Member[string]
	CORS                Member[CORS]
	MaxBodyBytes        Member[int64]
	KeyHeaders          Member[[]string]
	AllowEncodedSlashes Member[bool]
	CutStreams          Member[bool]

	// A value or key may be Masked, which stands for the one that the gateway has.
	UpstreamHeaders           Member[map[string]string]
	UpstreamClientKey         Member[string]
	UpstreamCA                Member[string]
	UpstreamClientCertificate Member[string]
	UpstreamConnectTimeout    Member[string]
	UpstreamIdleTimeout       Member[string]
	UpstreamMaxConnectionAge  Member[string]
	UpstreamMaxConnections    Member[int64]
}

// Member is a setting in a document or a request: absent, null (which restores the default) or
// a value.
type Member[T any] struct {
	Present bool
	Null    bool
	Value   T
}

// given returns a Member with the value v.
func given[T any](v T) Member[T] { return Member[T]{Present: true, Value: v} }

// ifSet returns a Member with the value v, or an absent one if v is not set.
func ifSet[T any](v T, set bool) Member[T] {
	if !set {
		return Member[T]{}
	}
	return given(v)
}

// setting is one row of the table of settings.
type setting struct {
	name   string // in the API and in the file
	doc    string // one or two sentences for the schema
	schema schema
	// read reads the member m of the section n into s, and checks it.
	read func(s *Section, n, m *document.Node) error
	// export sets the member of s to the setting of g.
	export func(s *Section, g *Gateway)
	// encode writes the member of s, if it is present.
	encode func(b *bytes.Buffer, s *Section)
}

// valueType is a type of values of a configuration file.
type valueType[T any] struct {
	read   func(n *document.Node, field string) (T, error)
	encode func(b *bytes.Buffer, value T) // after "  name:", with the line break
	schema schema
}

// row returns the row of a setting. check is the rule of the API for the value, whose errors
// name the field. get returns what an export has.
func row[T any](name string, t valueType[T], nullable bool, member func(*Section) *Member[T], check func(T) error, get func(*Gateway) Member[T], doc string) setting {
	field := "gateway." + name
	shape := maps.Clone(t.schema)
	if nullable {
		shape = orNull(shape)
	}
	return setting{
		name: name, doc: doc, schema: shape,
		read: func(s *Section, n, m *document.Node) (err error) {
			to := member(s)
			*to = Member[T]{Present: true, Null: nullable && m.Kind == document.Null}
			if to.Null {
				return nil
			}
			if to.Value, err = t.read(m, field); err != nil {
				return err
			}
			return withPosition(check(to.Value), n, "gateway")
		},
		export: func(s *Section, g *Gateway) { *member(s) = get(g) },
		encode: func(b *bytes.Buffer, s *Section) {
			switch m := member(s); {
			case m.Null:
				b.WriteString("  " + name + ": null\n")
			case m.Present:
				b.WriteString("  " + name + ":")
				t.encode(b, m.Value)
			}
		},
	}
}

// Names of the settings whose values are secret.
const (
	upstreamHeaders   = "upstream_headers"
	upstreamClientKey = "upstream_client_key"
)

// settings returns the table of settings: everything of a gateway that a file and a call may
// set. The order is that of an export. A new setting is a field of Section and a row here.
func settings() []setting {
	return []setting{
		row("name", textValue(1, label.MaxName), false, func(s *Section) *Member[string] { return &s.Name }, CheckName,
			func(g *Gateway) Member[string] { return given(g.Name) },
			"Display name, 1 to 255 characters."),
		row("hostname", textValue(1, 253), true, func(s *Section) *Member[string] { return &s.Hostname }, CheckHostname,
			func(g *Gateway) Member[string] { return ifSet(g.Hostname, g.HostGiven) },
			"Host name that selects the gateway. null restores the one that is generated from the gateway's identifier."),
		row("default", boolValue(), false, func(s *Section) *Member[bool] { return &s.Default }, anyValue,
			func(g *Gateway) Member[bool] { return ifSet(true, g.Default) },
			"true makes this the default gateway, which requests for unknown hosts reach, in place of the present one. Only for gateways of the operator's account."),
		row("upstream_url", textValue(1, maxUpstreamURL), false, func(s *Section) *Member[string] { return &s.UpstreamURL }, checkUpstreamURL,
			func(g *Gateway) Member[string] { return given(g.Upstream.URL) },
			"Base URL of the upstream service: http, https or h2c (cleartext HTTP/2). A new origin removes upstream_headers, the client certificate and its key, unless the file gives new ones."),
		row("global_rate_limit", globalLimitValue(), true, func(s *Section) *Member[ratelimit.Config] { return &s.GlobalLimit }, checkGlobalLimit,
			func(g *Gateway) Member[ratelimit.Config] {
				return Member[ratelimit.Config]{Present: true, Null: g.GlobalLimit.IsZero(), Value: g.GlobalLimit}
			},
			"Rate limit across all routes. null restores the default of the installation."),
		row("timeout", durationValue(), true, func(s *Section) *Member[string] { return &s.Timeout }, CheckTimeout,
			func(g *Gateway) Member[string] { return ifSet(g.Timeout, g.Timeout != DefaultTimeout) },
			"Timeout for the upstream's response headers, from 1s to 1h. Default: 60s."),
		row(upstreamHeaders, headersValue(), true, func(s *Section) *Member[map[string]string] { return &s.UpstreamHeaders }, checkFileHeaders, exportHeaders,
			"Headers to set on every forwarded request, at most 16. Replaces all of them. The values are secret: write them as ${env:NAME}. *** keeps the value that the gateway has."),
		row("upstream_ca", certificateValue(), true, func(s *Section) *Member[string] { return &s.UpstreamCA }, CheckUpstreamCA,
			func(g *Gateway) Member[string] { return textOf(g.Upstream.TLS.CA) },
			"PEM certificates that replace the system's root certificates for an https upstream."),
		row("upstream_client_certificate", certificateValue(), true, func(s *Section) *Member[string] { return &s.UpstreamClientCertificate }, CheckUpstreamClientCertificate,
			func(g *Gateway) Member[string] { return textOf(g.Upstream.TLS.ClientCertificate) },
			"Client certificate for an https upstream, in PEM, followed by the certificates of its issuers. Requires upstream_client_key."),
		row(upstreamClientKey, keyValue(), true, func(s *Section) *Member[string] { return &s.UpstreamClientKey }, checkFileClientKey,
			func(g *Gateway) Member[string] { return ifSet(Masked, len(g.Upstream.TLS.ClientKey) > 0) },
			"Private key of the client certificate, in PEM without a passphrase. It is secret: write it as ${env:NAME}. *** keeps the key that the gateway has."),
		row("upstream_connect_timeout", durationValue(), true, func(s *Section) *Member[string] { return &s.UpstreamConnectTimeout }, CheckUpstreamConnectTimeout,
			func(g *Gateway) Member[string] { return textOf(g.Upstream.Timeouts.Connect) },
			"Timeout for connecting to the upstream, and again for the TLS handshake, from 100ms to 1m. Default: 10s."),
		row("upstream_idle_timeout", durationValue(), true, func(s *Section) *Member[string] { return &s.UpstreamIdleTimeout }, CheckUpstreamIdleTimeout,
			func(g *Gateway) Member[string] { return textOf(g.Upstream.Timeouts.Idle) },
			"How long an idle connection to the upstream stays open, from 1s to 1h. Default: 90s."),
		row("upstream_max_connection_age", durationValue(), true, func(s *Section) *Member[string] { return &s.UpstreamMaxConnectionAge }, CheckUpstreamMaxConnectionAge,
			func(g *Gateway) Member[string] { return textOf(g.Upstream.MaxConnectionAge) },
			"Age after which a connection to the upstream is not used for new requests, from 1s to 24h. Default: 5m."),
		row("upstream_max_connections", countValue(1, MaxUpstreamConnections), true, func(s *Section) *Member[int64] { return &s.UpstreamMaxConnections }, CheckUpstreamMaxConnections,
			func(g *Gateway) Member[int64] { return ifSet(g.Upstream.MaxConnections, g.Upstream.MaxConnections > 0) },
			"Maximum number of open connections to the upstream, 1 to 100000. Default: unlimited."),
		row("cors", corsValue(), true, func(s *Section) *Member[CORS] { return &s.CORS }, checkCORS, exportCORS,
			"CORS settings. If set, the gateway answers preflight requests itself. Replaces all of them."),
		row("max_body_bytes", countValue(1, 0), true, func(s *Section) *Member[int64] { return &s.MaxBodyBytes }, CheckMaxBodyBytes,
			func(g *Gateway) Member[int64] { return ifSet(g.MaxBodyBytes, g.MaxBodyBytes > 0) },
			"Maximum size of a request body, in bytes. Default: unlimited."),
		row("key_headers", keyHeadersValue(), true, func(s *Section) *Member[[]string] { return &s.KeyHeaders }, CheckKeyHeaders,
			func(g *Gateway) Member[[]string] { return ifSet(g.Requests.KeyHeaders, g.Requests.KeyHeaders != nil) },
			"Request headers that may hold the key, 1 to 4. Default: [Authorization]."),
		row("allow_encoded_slashes", boolValue(), true, func(s *Section) *Member[bool] { return &s.AllowEncodedSlashes }, anyValue,
			func(g *Gateway) Member[bool] { return ifSet(true, g.Requests.AllowEncodedSlashes) },
			"Whether %2F and %5C in a path are part of their segment. Default: false, and they are rejected."),
		row("cut_streams", boolValue(), true, func(s *Section) *Member[bool] { return &s.CutStreams }, anyValue,
			func(g *Gateway) Member[bool] { return ifSet(false, g.Requests.KeepStreams) },
			"Whether long exchanges (upgrades, streams, long bodies) are cut within 1 s when their key is revoked, expires or no longer allows them. Default: true."),
	}
}

// SettingNames returns the names of all settings of a gateway, in the order of an export.
func SettingNames() []string {
	rows := settings()
	names := make([]string, len(rows))
	for i := range rows {
		names[i] = rows[i].name
	}
	return names
}

// read parses the section "gateway".
func (s *Section) read(n *document.Node) error {
	rows := settings()
	return eachMember(n, "gateway", func(m *document.Node) error {
		i := slices.IndexFunc(rows, func(r setting) bool { return r.name == m.Name })
		if i < 0 {
			return m.Unknown("gateway."+m.Name, "is not a field of gateway in a configuration file: %s", "use "+strings.Join(SettingNames(), ", "))
		}
		return rows[i].read(s, n, m)
	})
}

// IsEmpty reports whether the section changes nothing.
func (s *Section) IsEmpty() bool {
	var b bytes.Buffer
	s.encode(&b)
	return b.Len() == 0
}

func (s *Section) encode(b *bytes.Buffer) {
	for _, r := range settings() {
		r.encode(b, s)
	}
}

// HasSecrets reports whether the section has a secret in clear.
func (s *Section) HasSecrets() bool {
	if k := s.UpstreamClientKey; k.Present && !k.Null && k.Value != Masked {
		return true
	}
	for _, value := range s.UpstreamHeaders.Value {
		if value != Masked {
			return true
		}
	}
	return false
}

// WithoutSecrets returns the section with Masked in place of its secrets.
func (s *Section) WithoutSecrets() Section {
	masked := *s
	if k := &masked.UpstreamClientKey; k.Present && !k.Null {
		k.Value = Masked
	}
	if h := &masked.UpstreamHeaders; h.Value != nil {
		h.Value = maps.Clone(h.Value)
		for name := range h.Value {
			h.Value[name] = Masked
		}
	}
	return masked
}

// checkFileHeaders is CheckUpstreamHeaders for a file, where a value may be Masked.
func checkFileHeaders(h map[string]string) error {
	given := maps.Clone(h)
	for name, value := range given {
		if value == Masked {
			given[name] = ""
		}
	}
	return CheckUpstreamHeaders(given)
}

// checkFileClientKey is CheckUpstreamClientKey for a file, where the key may be Masked.
func checkFileClientKey(key string) error {
	if key == Masked {
		return nil
	}
	return CheckUpstreamClientKey(key)
}

func checkUpstreamURL(s string) error {
	_, err := ParseUpstreamURL(s)
	return err
}

func checkGlobalLimit(c ratelimit.Config) error {
	return fault.Prefixed("global_rate_limit", CheckGlobalLimit(c))
}

func checkCORS(c CORS) error { return fault.Prefixed("cors", c.Validate()) }

// anyValue is the check of a setting that takes every value of its type.
func anyValue[T any](T) error { return nil }

func textOf(s string) Member[string] { return ifSet(s, s != "") }

func exportHeaders(g *Gateway) Member[map[string]string] {
	masked := make(map[string]string, len(g.Upstream.Headers))
	for name := range g.Upstream.Headers {
		masked[name] = Masked
	}
	return ifSet(masked, len(masked) > 0)
}

func exportCORS(g *Gateway) Member[CORS] {
	if g.CORS == nil {
		return Member[CORS]{}
	}
	return given(*g.CORS)
}
