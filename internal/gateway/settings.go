package gateway

import (
	"cmp"
	"maps"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/label"
	"github.com/keygate/keygate/internal/ratelimit"
)

// Patch changes settings of a gateway: it is the section "gateway" of a configuration file, and what a
// call gives. An absent member keeps the setting; null restores its default. The zero value changes
// nothing.
type Patch struct {
	Name                Member[string]
	Hostname            Member[string]
	ACME                Member[bool]
	Default             Member[bool]
	UpstreamURL         Member[string]
	GlobalLimit         Member[ratelimit.Config]
	AnonymousLimit      Member[ratelimit.Config]
	DefaultPlan         Member[string]
	Timeout             Member[string]
	CORS                Member[CORS]
	MaxBodyBytes        Member[int64]
	KeyHeaders          Member[[]string]
	Issuers             Member[[]string]
	DefaultAuth         Member[string]
	AllowEncodedSlashes Member[bool]
	CutStreams          Member[bool]
	DrainTimeout        Member[string]
	SelfService         Member[SelfServicePatch]
	AllowIPs            Member[[]string]     // replaced as a whole
	DenyIPs             Member[[]string]     // replaced as a whole
	Maintenance         Member[*Maintenance] // replaced as a whole
	Split               Member[Split]        // replaced as a whole
	RequestHeaders      Member[*HeaderRules] // replaced as a whole
	ResponseHeaders     Member[*HeaderRules] // replaced as a whole

	// In a file, a value or key may be Masked, which stands for the value or key that the gateway has.
	UpstreamHeaders           Member[map[string]string] // replaces the whole map
	UpstreamClientKey         Member[string]
	UpstreamCA                Member[string]
	UpstreamClientCertificate Member[string]
	UpstreamConnectTimeout    Member[string]
	UpstreamIdleTimeout       Member[string]
	UpstreamMaxConnectionAge  Member[string]
	UpstreamMaxConnections    Member[int64]
	UpstreamHost              Member[string]
	ErrorFormat               Member[string]
	Validate                  Member[string]

	// Upstreams are upstreams of the gateway, by their names (UpstreamPatch). In a file they are all that it has; null
	// leaves the default one alone.
	Upstreams Member[[]UpstreamPatch]

	UpstreamOnly
}

// UpstreamOnly are the members of a Patch that belong to an UpstreamPatch: what a gateway's own settings do not have.
type UpstreamOnly struct {
	Targets  Member[[]Target] // replaced as a whole
	Balance  Member[string]
	HashOn   Member[string]
	Ejection Member[Ejection] // replaced as a whole
	Retries  Member[Retries]  // replaced as a whole
	Health   Member[Health]   // replaced as a whole, but for its headers if it has none
	Refresh  Member[string]
}

// certificateAndKey is what errors of the command line call the files of upstream_client_certificate and
// upstream_client_key.
const certificateAndKey = "the client certificate and its key"

// maxPlanName is the most characters of the name of a plan.
const maxPlanName = 64

// Settings returns the table of settings: everything of a gateway that a file and a call may set. The
// table has the order of an export, in which settings are also applied: a new upstream_url removes
// credentials, and the settings after it may give new ones. A new setting is a member of Patch and a
// row here.
func Settings() []Setting {
	return []Setting{{
		Name: "name", Kind: KindText, NotNull: true, Required: true, Most: label.MaxName, Example: "orders",
		Doc: Doc{
			File:   "Display name, 1 to 255 characters.",
			Create: "Display name. Required, unless config has it.",
			Update: "Display name.",
			Record: "Display name.",
			Patch:  "1 to 255 characters; cannot be cleared",
		},
		Record: Record{First: true},
		Flag:   Flag{Name: "name", Usage: "display `name`", Column: "NAME", Rank: -1},
		Form:   Form{Group: "Addressing", Label: "Name", Plain: true},
		values: access[string]{
			file:   textValue(1, label.MaxName),
			member: func(p *Patch) *Member[string] { return &p.Name },
			field:  func(g *Gateway) *string { return &g.Name },
			check:  CheckName,
		},
	}, {
		Name: "hostname", Kind: KindText, Most: maxHostname, Example: "api.example.com",
		Doc: Doc{
			File:   "Host name that selects the gateway. null restores the one that is generated from the gateway's identifier.",
			Create: "Host name of the gateway. If absent, one is generated from the gateway's identifier.",
			Update: "Host name of the gateway; null restores the generated one.",
			Record: "Host name that selects the gateway.",
			Patch:  "default: generated from the identifier",
		},
		Flag: Flag{Name: "hostname", Usage: "`host` name of the gateway (default: generated from its identifier)", Column: "HOSTNAME"},
		Form: Form{Group: "Addressing", Label: "Hostname", Hint: "The host name that leads here. Empty gives a generated one."},
		values: access[string]{
			file:   textValue(1, maxHostname),
			member: func(p *Patch) *Member[string] { return &p.Hostname },
			get: func(g *Gateway) string {
				if g.HostGiven {
					return g.Hostname
				}
				return ""
			},
			shown: func(g *Gateway) string { return g.Hostname },
			check: CheckHostname,
		},
	}, {
		Name: "default", Kind: KindBool, NotNull: true,
		Doc: Doc{
			File:   "true makes this the default gateway, which requests for unknown hosts reach, in place of the present one. Only for gateways of the operator's account.",
			Create: "true makes this the default gateway, which requests for unknown hosts reach, in place of the present one. The first gateway of the account default is it anyway. Other accounts cannot give this field.",
			Update: "true makes this the default gateway, in place of the present one, which cannot be set to false. Only gateways of the account default can be it.",
			Record: "Whether this is the default gateway, which requests for unknown hosts reach.",
			Patch:  "true makes it the default gateway, for unknown hosts; cannot be cleared",
		},
		Record: Record{First: true},
		Flag:   Flag{Name: "default", Usage: "make it the default gateway, which unknown hosts reach, in place of the present one", Column: "DEFAULT"},
		Form:   Form{Group: "Addressing", Label: "Default gateway", Hint: "It takes the requests whose host name no gateway has."},
		values: access[bool]{
			file:   boolValue(),
			member: func(p *Patch) *Member[bool] { return &p.Default },
			field:  func(g *Gateway) *bool { return &g.Default },
		},
	}, {
		Name: "upstream_url", Kind: KindText, NotNull: true, Required: true, Most: maxUpstreamURL, Example: "https://orders.internal",
		Doc: Doc{
			File:   "Base URL of the upstream service: http, https or h2c (cleartext HTTP/2). A new origin removes upstream_headers, the client certificate and its key, unless the file gives new ones.",
			Create: "Base URL of the upstream service. The scheme is http, https or h2c (cleartext HTTP/2); userinfo, a query and a fragment are not allowed. Required, unless config or the upstream default in upstreams has it.",
			Update: "Base URL of the upstream service. Changing its origin removes upstream_headers, the client certificate and its key. If the upstream default has several targets, it is the first of them, and a change is a 409.",
			Record: "Base URL of the upstream service: the first target of the upstream default.",
			Patch:  "cannot be cleared; another origin removes UpstreamHeaders and the client certificate",
		},
		Record: Record{First: true},
		Flag:   Flag{Name: "upstream-url", Usage: "base `URL` of the upstream service: http, https or h2c", Column: "UPSTREAM URL", Rank: -1},
		Form:   Form{Group: "Upstream", Label: "Address", Hint: "Another scheme, host or port drops the headers below, and the client certificate."},
		values: access[string]{
			file:   textValue(1, maxUpstreamURL),
			member: func(p *Patch) *Member[string] { return &p.UpstreamURL },
			get:    func(g *Gateway) string { return g.Upstream.URL },
			set:    func(g *Gateway, v string) { g.Upstream.setURL(v) },
			check:  checkUpstreamURL,
		},
	}, {
		Name: "global_rate_limit", Kind: KindLimit,
		Doc: Doc{
			File:   "Rate limit across all routes. null restores the default of the installation.",
			Create: "Rate limit across all routes.",
			Update: "Rate limit across all routes. Replaces the whole object; null restores the installation's default.",
			Record: "Rate limit across all routes; null for the installation's default.",
			Patch:  "replaced as a whole; default: the installation's",
		},
		Flag: Flag{Column: "GLOBAL LIMIT"},
		Form: Form{Group: "Limit of all requests"},
		Parts: []Part{{
			Name: "sustained", Kind: KindText,
			Flag: Flag{Name: "global-rate-limit", Usage: "`rate` limit across all routes, such as 6000/min"},
			Form: Form{Label: "Sustained", Placeholder: "1000/s"},
		}, {
			Name: "burst", Kind: KindText,
			Flag: Flag{Name: "global-burst", Usage: "capacity of the global limit, such as `200/s`"},
			Form: Form{Label: "Burst", Placeholder: "2000/s"},
		}},
		values: access[ratelimit.Config]{
			file:   globalLimitValue(),
			member: func(p *Patch) *Member[ratelimit.Config] { return &p.GlobalLimit },
			field:  func(g *Gateway) *ratelimit.Config { return &g.GlobalLimit },
			check:  checkGlobalLimit,
			pinned: true,
		},
	}, {
		Name: "anonymous_limit", Kind: KindLimit,
		Doc: Doc{
			File:   "Rate limit of each client address on public routes, where no key is needed. null, the default, means none.",
			Update: "Rate limit of each client address on public routes, where no key is needed. IPv6 addresses count by their /64. Replaces the whole object; null, the default, means none.",
			Record: "Rate limit of each client address on public routes. Absent if there is none.",
			Patch:  "replaced as a whole; default: none",
		},
		Record: Record{OmitEmpty: true},
		Flag:   Flag{Column: "ANONYMOUS LIMIT"},
		Form:   Form{Group: "Limit of public routes"},
		Parts: []Part{{
			Name: "sustained", Kind: KindText,
			Flag: Flag{Name: "anonymous-limit", Usage: "`rate` limit of each client address on public routes, such as 60/min"},
			Form: Form{Label: "Sustained", Placeholder: "60/min"},
		}, {
			Name: "burst", Kind: KindText,
			Flag: Flag{Name: "anonymous-burst", Usage: "capacity of that limit, such as `20/s`"},
			Form: Form{Label: "Burst", Placeholder: "20/s"},
		}},
		values: access[ratelimit.Config]{
			file:   globalLimitValue(),
			member: func(p *Patch) *Member[ratelimit.Config] { return &p.AnonymousLimit },
			get:    func(g *Gateway) ratelimit.Config { return g.Requests.AnonymousLimit.Config() },
			set: func(g *Gateway, c ratelimit.Config) {
				g.Requests.AnonymousLimit = AnonymousLimit{Sustained: c.Sustained, Burst: c.Burst}
			},
			check: checkAnonymousLimit,
		},
	}, {
		// Package control finds the plan with the name.
		Name: "default_plan", Kind: KindText, Most: maxPlanName, Example: "free",
		Doc: Doc{
			File:   "Name of the plan of keys that have none, and whose owner has none. null, the default, means none.",
			Create: "Name of the plan of keys that have none, and whose owner has none.",
			Update: "Name of the plan of keys that have none, and whose owner has none; null for none.",
			Record: "Name of the plan of keys that have none, and whose owner has none. Absent if there is none.",
			Patch:  "default: none",
		},
		Record: Record{OmitEmpty: true},
		Flag:   Flag{Name: "default-plan", Usage: "`name` of the plan of keys that have none, and whose owner has none", Column: "DEFAULT PLAN"},
		Form:   Form{Group: "Limit of all requests", Rank: 1, Label: "Default plan", Hint: "The name of the plan of keys that have none, and whose owner has none.", Placeholder: "free"},
		values: access[string]{
			file:   textValue(1, maxPlanName),
			member: func(p *Patch) *Member[string] { return &p.DefaultPlan },
			field:  func(g *Gateway) *string { return &g.DefaultPlan },
		},
	}, {
		Name: "timeout", Kind: KindDuration, Example: "30s",
		Doc: Doc{
			File:   "Timeout for the upstream's response headers, from 1s to 1h. Default: 60s.",
			Create: "Timeout for the upstream's response headers, as a Go duration from 1s to 1h. Default: 60s.",
			Update: "Timeout for the upstream's response headers; null restores the default, 60s.",
			Record: "Timeout for the upstream's response headers, as a Go duration.",
			Patch:  "Go duration, 1s to 1h; default: 60s",
		},
		Record: Record{Example: "60s"},
		Flag:   Flag{Name: "timeout", Usage: "timeout for the upstream's response headers, as a `duration` such as 30s", Column: "TIMEOUT"},
		Form:   Form{Group: "Upstream", Label: "Timeout", Hint: "To the response headers, from 1s to 1h.", Placeholder: "60s"},
		values: access[string]{
			file:   durationValue(),
			member: func(p *Patch) *Member[string] { return &p.Timeout },
			field:  func(g *Gateway) *string { return &g.Timeout },
			normal: DefaultTimeout,
			check:  CheckTimeout,
		},
	}, {
		Name: "upstream_headers", Kind: KindHeaders, Most: MaxUpstreamHeaders,
		Doc: Doc{
			File:   "Headers to set on every forwarded request, at most 16. Replaces all of them. The values are secret: write them as ${env:NAME}. *** keeps the value that the gateway has.",
			Update: "Headers to set on every forwarded request. Replaces all of them; null removes them. Their values are encrypted at rest and never returned.",
			Record: "Headers set on every forwarded request. Each value is shown as ***.",
			Patch:  "replaced as a whole, at most 16; default: none",
		},
		Flag: Flag{Name: "upstream-header", Usage: "header to set on every forwarded request, as `NAME=VALUE`; may be repeated", Column: "UPSTREAM HEADERS"},
		Form: Form{
			Group: "Upstream", Label: "Headers", Placeholder: "X-Api-Token: secret",
			Hint: "Set on every forwarded request, one “Name: value” in a line, at most 16. A change replaces all of them: write the value again where *** is shown.",
		},
		values: access[map[string]string]{
			file:   headersValue(),
			member: func(p *Patch) *Member[map[string]string] { return &p.UpstreamHeaders },
			get:    maskedHeaders,
			check:  checkFileHeaders,
		},
	}, {
		Name: "upstream_ca", Kind: KindCertificate,
		Doc: Doc{
			File:   "PEM certificates that replace the system's root certificates for an https upstream.",
			Update: "PEM certificates that replace the system's root certificates for this upstream; null restores the system's.",
			Patch:  "PEM; default: the system's root certificates",
		},
		Flag: Flag{Name: "upstream-ca", Usage: "`file` of PEM certificates that replace the system's roots for this upstream"},
		Form: Form{Group: "Connections to the upstream", Rank: 1, Label: "Root certificates", Hint: "PEM, in place of those of the system."},
		values: access[string]{
			file:   certificateValue(),
			member: func(p *Patch) *Member[string] { return &p.UpstreamCA },
			field:  func(g *Gateway) *string { return &g.Upstream.TLS.CA },
			check:  CheckUpstreamCA,
		},
	}, {
		Name: "upstream_client_certificate", Kind: KindCertificate,
		Doc: Doc{
			File:   "Client certificate for an https upstream, in PEM, followed by the certificates of its issuers. Requires upstream_client_key.",
			Update: "Client certificate for an https upstream, in PEM, followed by the certificates of its issuers. Requires upstream_client_key; null removes it, and then upstream_client_key must be null too.",
			Record: "Client certificate for the upstream, in PEM, as given. Absent if there is none.",
			Patch:  "PEM; cleared only together with the key",
		},
		Record: Record{OmitEmpty: true},
		Flag:   Flag{Name: "upstream-client-certificate", Usage: "`file` with the client certificate in PEM, followed by its intermediate certificates", File: certificateAndKey, Column: "UPSTREAM CLIENT"},
		Form:   Form{Group: "Connections to the upstream", Rank: 1, Label: "Client certificate", Hint: "PEM"},
		values: access[string]{
			file:   certificateValue(),
			member: func(p *Patch) *Member[string] { return &p.UpstreamClientCertificate },
			field:  func(g *Gateway) *string { return &g.Upstream.TLS.ClientCertificate },
			check:  CheckUpstreamClientCertificate,
		},
	}, {
		Name: "upstream_client_key", Kind: KindKey,
		Doc: Doc{
			File:   "Private key of the client certificate, in PEM without a passphrase. It is secret: write it as ${env:NAME}. *** keeps the key that the gateway has.",
			Update: "Private key of the client certificate, in PEM without a passphrase. It is encrypted at rest and never returned. If an update has no key, a new certificate must match the stored one.",
			Record: "*** if the client certificate's private key is stored. The key itself is never returned.",
			Patch:  "PEM, without a passphrase",
		},
		Record: Record{OmitEmpty: true, Example: Masked},
		Flag:   Flag{Name: "upstream-client-key", Usage: "`file` with the private key of the client certificate in PEM, or - for standard input", File: certificateAndKey},
		Form:   Form{Group: "Connections to the upstream", Rank: 1, Label: "Key of the client certificate", Hint: "PEM. The one that is stored is shown as ***."},
		values: access[string]{
			file:   keyValue(),
			member: func(p *Patch) *Member[string] { return &p.UpstreamClientKey },
			get: func(g *Gateway) string {
				if len(g.Upstream.TLS.ClientKey) > 0 {
					return Masked
				}
				return ""
			},
			check: checkFileClientKey,
		},
	}, {
		Name: "upstream_connect_timeout", Kind: KindDuration, Example: "2s",
		Doc: Doc{
			File:   "Timeout for connecting to the upstream, and again for the TLS handshake, from 100ms to 1m. Default: 10s.",
			Update: "Timeout for connecting to the upstream, and again for the TLS handshake, as a Go duration from 100ms to 1m; null restores the default, 10s.",
			Record: "Timeout for connecting to the upstream, as a Go duration. Absent for the default, 10s.",
			Patch:  "Go duration, 100ms to 1m; default: 10s",
		},
		Record: Record{OmitEmpty: true},
		Flag:   Flag{Name: "upstream-connect-timeout", Usage: "timeout for connecting to the upstream, as a `duration` such as 2s", Column: "CONNECT TIMEOUT"},
		Form:   Form{Group: "Connections to the upstream", Label: "Connect timeout", Hint: "100ms to 1m"},
		values: access[string]{
			file:   durationValue(),
			member: func(p *Patch) *Member[string] { return &p.UpstreamConnectTimeout },
			field:  func(g *Gateway) *string { return &g.Upstream.Timeouts.Connect },
			check:  CheckUpstreamConnectTimeout,
		},
	}, {
		Name: "upstream_idle_timeout", Kind: KindDuration, Example: "30s",
		Doc: Doc{
			File:   "How long an idle connection to the upstream stays open, from 1s to 1h. Default: 90s.",
			Update: "How long an idle connection to the upstream stays open, as a Go duration from 1s to 1h; null restores the default, 90s.",
			Record: "How long an idle connection to the upstream stays open, as a Go duration. Absent for the default, 90s.",
			Patch:  "Go duration, 1s to 1h; default: 90s",
		},
		Record: Record{OmitEmpty: true},
		Flag:   Flag{Name: "upstream-idle-timeout", Usage: "time after which an idle connection to the upstream is closed, as a `duration` such as 30s", Column: "IDLE TIMEOUT"},
		Form:   Form{Group: "Connections to the upstream", Label: "Idle timeout", Hint: "1s to 1h"},
		values: access[string]{
			file:   durationValue(),
			member: func(p *Patch) *Member[string] { return &p.UpstreamIdleTimeout },
			field:  func(g *Gateway) *string { return &g.Upstream.Timeouts.Idle },
			check:  CheckUpstreamIdleTimeout,
		},
	}, {
		Name: "upstream_max_connection_age", Kind: KindDuration, Example: "1m",
		Doc: Doc{
			File:   "Age after which a connection to the upstream is not used for new requests, from 1s to 24h. Default: 5m.",
			Update: "Age after which a connection to the upstream is not used for new requests, so that a name that moves to another address is followed, as a Go duration from 1s to 24h; null restores the default, 5m.",
			Record: "Age after which a connection to the upstream is not used for new requests, as a Go duration. Absent for the default, 5m.",
			Patch:  "Go duration, 1s to 24h; default: 5m",
		},
		Record: Record{OmitEmpty: true},
		Flag:   Flag{Name: "upstream-max-connection-age", Usage: "age after which a connection to the upstream is not used for new requests, as a `duration` such as 1m", Column: "MAX CONNECTION AGE"},
		Form:   Form{Group: "Connections to the upstream", Label: "Largest age", Hint: "1s to 24h", Placeholder: "5m"},
		values: access[string]{
			file:   durationValue(),
			member: func(p *Patch) *Member[string] { return &p.UpstreamMaxConnectionAge },
			field:  func(g *Gateway) *string { return &g.Upstream.MaxConnectionAge },
			check:  CheckUpstreamMaxConnectionAge,
		},
	}, {
		Name: "upstream_max_connections", Kind: KindCount, Most: MaxUpstreamConnections, Example: "200",
		Doc: Doc{
			File:   "Maximum number of open connections to the upstream, 1 to 100000. Default: unlimited.",
			Update: "Maximum number of open connections to the upstream. Time spent waiting for one counts toward timeout. Null, the default, means unlimited.",
			Record: "Maximum number of open connections to the upstream. Absent for unlimited.",
			Patch:  "1 to 100000; default: unlimited",
		},
		Record: Record{OmitEmpty: true},
		Flag:   Flag{Name: "upstream-max-connections", Usage: "maximum number of `connections` to the upstream; 0 means unlimited", Column: "MAX CONNECTIONS"},
		Form:   Form{Group: "Connections to the upstream", Label: "Most connections", Hint: "1 to 100000"},
		values: access[int64]{
			file:   countValue(1, MaxUpstreamConnections),
			member: func(p *Patch) *Member[int64] { return &p.UpstreamMaxConnections },
			field:  func(g *Gateway) *int64 { return &g.Upstream.MaxConnections },
			check:  CheckUpstreamMaxConnections,
		},
	}, {
		Name: "upstream_host", Kind: KindText, Most: maxUpstreamHost, Example: "preserve",
		Doc: Doc{
			File:   "Host that the upstream gets: target for that of upstream_url, preserve for the client's, or a name. Default: target.",
			Update: "Host header that the upstream gets: target for that of upstream_url, preserve for the client's, which signed requests (SigV4) need, or a name. With target or a name, Location, Content-Location and Refresh that name the upstream's own origin come back with the client's. Null, the default, means target.",
			Record: "Host header that the upstream gets: target for that of upstream_url, preserve for the client's, or a name.",
			Patch:  "target, preserve or a name; default: target",
		},
		Record: Record{Example: TargetHost},
		Flag:   Flag{Name: "upstream-host", Usage: "`host` that the upstream gets: target for that of its URL, preserve for the client's, or a name", Column: "UPSTREAM HOST"},
		Form:   Form{Group: "Upstream", Label: "Host", Hint: "What the service gets as Host: target for that of its address, preserve for the client's, or a name.", Placeholder: TargetHost},
		values: access[string]{
			file:   textValue(1, maxUpstreamHost),
			member: func(p *Patch) *Member[string] { return &p.UpstreamHost },
			get:    func(g *Gateway) string { return cmp.Or(g.Upstream.Host, TargetHost) },
			set: func(g *Gateway, v string) {
				if g.Upstream.Host = v; v == TargetHost {
					g.Upstream.Host = ""
				}
			},
			normal: TargetHost,
			check:  CheckUpstreamHost,
		},
	}, {
		Name: "cors", Kind: KindCORS,
		Doc: Doc{
			File:   "CORS settings. If set, the gateway answers preflight requests itself. Replaces all of them.",
			Create: "CORS settings. If set, the gateway answers preflight requests itself.",
			Update: "CORS settings. Replaces the whole object; null removes them.",
			Record: "CORS settings; null if preflight requests are forwarded to the upstream.",
			Patch:  "replaced as a whole; default: none",
		},
		Flag: Flag{Column: "CORS ORIGINS"},
		Form: Form{Group: "Browsers (CORS)"},
		Parts: []Part{{
			Name: "origins", Kind: KindList,
			Flag: Flag{Name: "cors-origin", Whole: true, Usage: "`origin` from which browsers may call; may be repeated"},
			Form: Form{Label: "Origins", Hint: "Separated by commas.", Placeholder: "https://app.example.com"},
		}, {
			Name: "methods", Kind: KindList,
			Flag: Flag{Name: "cors-method", Usage: "`method` that CORS requests may use; may be repeated"},
			Form: Form{Label: "Methods", Placeholder: "GET, POST"},
		}, {
			Name: "headers", Kind: KindList,
			Flag: Flag{Name: "cors-header", Usage: "request `header` that CORS requests may set; may be repeated"},
			Form: Form{Label: "Request headers", Placeholder: "Authorization, Content-Type"},
		}, {
			Name: "max_age", Kind: KindCount,
			Flag: Flag{Name: "cors-max-age", Usage: "`seconds` for which browsers may cache a preflight response"},
			Form: Form{Label: "Remembered for", Hint: "In seconds.", Placeholder: "600"},
		}},
		values: access[CORS]{
			file:   corsValue(),
			member: func(p *Patch) *Member[CORS] { return &p.CORS },
			get: func(g *Gateway) CORS {
				if g.CORS == nil {
					return CORS{}
				}
				return *g.CORS
			},
			set: func(g *Gateway, c CORS) {
				if g.CORS = nil; len(c.Origins) > 0 {
					c = c.Normal()
					g.CORS = &c
				}
			},
			check: checkCORS,
		},
	}, {
		Name: "max_body_bytes", Kind: KindCount, Example: "1048576",
		Doc: Doc{
			File:   "Maximum size of a request body, in bytes. Default: unlimited.",
			Create: "Maximum size of a request body, in bytes. Larger requests get a 413.",
			Update: "Maximum size of a request body, in bytes; null for unlimited.",
			Record: "Maximum size of a request body, in bytes; null for unlimited.",
			Patch:  "at least 1; default: unlimited",
		},
		Flag: Flag{Name: "max-body-bytes", Usage: "maximum size of a request body in `bytes`; 0 means unlimited", Column: "MAX BODY BYTES", Rank: 1},
		Form: Form{Group: "Upstream", Label: "Largest request body", Hint: "In bytes.", Unit: "bytes"},
		values: access[int64]{
			file:   countValue(1, 0),
			member: func(p *Patch) *Member[int64] { return &p.MaxBodyBytes },
			field:  func(g *Gateway) *int64 { return &g.MaxBodyBytes },
			check:  CheckMaxBodyBytes,
		},
	}, {
		Name: "key_headers", Kind: KindList, Most: MaxKeyHeaders, Example: "X-API-Key",
		Doc: Doc{
			File:   "Request headers that may hold the key, 1 to 4. Default: [Authorization].",
			Update: "Request headers that may hold the key; none of them reaches the upstream. Authorization holds it with the scheme Bearer, any other header as its whole value. A request may have only one of them. Null, the default, means Authorization alone; without it in the list, that header is forwarded.",
			Record: "Request headers that may hold the key.",
			Patch:  "1 to 4; default: Authorization",
		},
		Record: Record{Example: Authorization},
		Flag:   Flag{Name: "key-header", Usage: "request `header` that may hold the key, such as X-API-Key (default Authorization); may be repeated", Column: "KEY HEADERS"},
		Form: Form{
			Group: "Addressing", Label: "Key headers", Placeholder: "Authorization",
			Hint: "Request headers that may hold the key, separated by commas. Authorization means its scheme Bearer.",
		},
		values: access[[]string]{
			file:   keyHeadersValue(),
			member: func(p *Patch) *Member[[]string] { return &p.KeyHeaders },
			field:  func(g *Gateway) *[]string { return &g.Requests.KeyHeaders },
			shown:  func(g *Gateway) []string { return g.Requests.AllKeyHeaders() },
			check:  CheckKeyHeaders,
		},
	}, {
		// Package control finds the issuers with the names.
		Name: "issuers", Kind: KindList, Most: MaxIssuers, Example: "login",
		Doc: Doc{
			File:   "Names of the issuers whose tokens routes with auth token or any take, at most 16. Default: none.",
			Update: "Names of the issuers whose tokens routes with auth token or any take. No two may have the same value of issuer. Replaces the whole list; null, the default, means none.",
			Record: "Names of the issuers whose tokens routes with auth token or any take. Absent if there are none.",
			Patch:  "replaced as a whole, at most 16; default: none",
		},
		Record: Record{OmitEmpty: true},
		Flag:   Flag{Name: "issuer", Usage: "`name` of an issuer whose tokens routes with auth token or any take; may be repeated", Column: "ISSUERS"},
		Form: Form{
			Group: "Addressing", Rank: 1, Label: "Issuers of tokens", Placeholder: "login",
			Hint: "Names of the issuers whose tokens routes with auth token or any take, separated by commas.",
		},
		values: access[[]string]{
			file:   issuersValue(),
			member: func(p *Patch) *Member[[]string] { return &p.Issuers },
			get:    func(g *Gateway) []string { return g.Requests.Issuers },
			set: func(g *Gateway, list []string) {
				if g.Requests.Issuers = list; len(list) == 0 {
					g.Requests.Issuers = nil
				}
			},
			check: CheckIssuers,
		},
	}, {
		Name: "default_auth", Kind: KindText, Choices: authNames(), Example: string(AuthToken),
		Doc: Doc{
			File:   "What routes require that do not say it: key, token, any, or none for public routes. Default: key.",
			Create: "What routes require that do not say it: key, token, any, or none for public routes.",
			Update: "What routes require that do not say it: key, token, any, or none for public routes. A change is in force for all of them at once. Null, the default, means key.",
			Record: "What routes require that do not say it.",
			Patch:  "key, token, any or none; default: key",
		},
		Record: Record{Example: string(DefaultAuth)},
		Flag:   Flag{Name: "default-auth", Usage: "what routes require that do not say it: `key`, token, any or none", Column: "DEFAULT AUTH"},
		Form:   Form{Group: "Addressing", Rank: 1, Label: "Callers of routes", Hint: "What routes need that do not say it. With none they are public."},
		values: access[string]{
			file:   choiceValue(authNames()),
			member: func(p *Patch) *Member[string] { return &p.DefaultAuth },
			get:    func(g *Gateway) string { return string(g.AuthOf("")) },
			set: func(g *Gateway, v string) {
				if g.Requests.DefaultAuth = Auth(v); g.Requests.DefaultAuth == DefaultAuth {
					g.Requests.DefaultAuth = ""
				}
			},
			normal: string(DefaultAuth),
			check:  CheckDefaultAuth,
		},
	}, {
		// Package control checks that the installation gets certificates.
		Name: "acme", Kind: KindBool, Example: "false",
		Doc: Doc{
			File:   "Whether Keygate gets a certificate for the hostname from a certificate authority, and renews it. It needs a hostname of the gateway's own, and a server with --acme-email. Default: false.",
			Create: "Whether Keygate gets a certificate for the hostname from a certificate authority, and renews it. It needs a hostname that is given, and a server with --acme-email.",
			Update: "Whether Keygate gets a certificate for the hostname from a certificate authority, and renews it. It needs a hostname that is given, and a server with --acme-email. Null, the default, means false: the certificate is deleted.",
			Record: "Whether Keygate gets a certificate for the hostname from a certificate authority.",
			Patch:  "default: false; needs a Hostname",
		},
		Flag: Flag{Name: "acme", Usage: "get a certificate for the hostname from a certificate authority, and renew it", Column: "ACME"},
		Form: Form{Group: "Addressing", Label: "Certificate by ACME", Hint: "Keygate gets a certificate for the hostname, and renews it."},
		values: access[bool]{
			file:   boolValue(),
			member: func(p *Patch) *Member[bool] { return &p.ACME },
			field:  func(g *Gateway) *bool { return &g.Requests.ACME },
		},
	}, {
		Name: "allow_encoded_slashes", Kind: KindBool, Example: "false",
		Doc: Doc{
			File:   "Whether %2F and %5C in a path are part of their segment. Default: false, and they are rejected.",
			Update: "Whether %2F and %5C in a path are part of their segment, for routes and scopes alike, and forwarded as sent. Null, the default, means false: they are rejected with a 400.",
			Record: "Whether %2F and %5C in a path are part of their segment.",
			Patch:  "default: false",
		},
		Flag: Flag{Name: "allow-encoded-slashes", Usage: "treat %2F in a path as a part of its segment", Column: "ENCODED SLASHES"},
		Form: Form{Group: "Addressing", Label: "Allow encoded slashes", Hint: "%2F and %5C are then part of their segment."},
		values: access[bool]{
			file:   boolValue(),
			member: func(p *Patch) *Member[bool] { return &p.AllowEncodedSlashes },
			field:  func(g *Gateway) *bool { return &g.Requests.AllowEncodedSlashes },
		},
	}, {
		Name: "cut_streams", Kind: KindBool, Example: "true",
		Doc: Doc{
			File:   "Whether long exchanges (upgrades, streams, long bodies) are cut within 1 s when their key is revoked, expires or no longer allows them. Default: true.",
			Update: "Whether long exchanges (upgrades, streams, long bodies) are cut within 1 s when their key is revoked, expires, or no longer allows them. Null, the default, means true.",
			Record: "Whether long exchanges are cut when their key is revoked, expires, or no longer allows them.",
			Patch:  "default: true",
		},
		Flag: Flag{Name: "cut-streams", Usage: "end upgrades, streams and long bodies within 1 s when their key is revoked, expires or no longer allows them", Column: "CUT STREAMS"},
		Form: Form{Group: "Addressing", Label: "Cut streams", Hint: "Upgrades, streams and long bodies end within 1 s when their key is revoked, expires or no longer allows them."},
		values: access[bool]{
			file:   boolValue(),
			member: func(p *Patch) *Member[bool] { return &p.CutStreams },
			get:    func(g *Gateway) bool { return !g.Requests.KeepStreams },
			set:    func(g *Gateway, v bool) { g.Requests.KeepStreams = !v },
			normal: true,
		},
	}, {
		Name: "drain_timeout", Kind: KindDuration, Example: DefaultDrainTimeout,
		Doc: Doc{
			File:   "How long requests, streams and tunnels at a target go on that was drained or removed, from 1s to 24h. Then they end. Default: 30s.",
			Update: "How long requests, streams and tunnels at a target go on that was drained or removed, as a Go duration from 1s to 24h. Then they end. Null restores the default, 30s. A change concerns targets that are taken away after it.",
			Record: "How long requests, streams and tunnels at a target go on that was drained or removed, as a Go duration.",
			Patch:  "Go duration, 1s to 24h; default: 30s",
		},
		Flag: Flag{Name: "drain-timeout", Usage: "how long requests at a target go on that was drained or removed, as a `duration` such as 30s", Column: "DRAIN TIMEOUT"},
		Form: Form{Group: "Addressing", Label: "Drain timeout", Hint: "How long requests at a target go on that was drained or removed, from 1s to 24h. Then they end."},
		values: access[string]{
			file:   durationValue(),
			member: func(p *Patch) *Member[string] { return &p.DrainTimeout },
			get:    func(g *Gateway) string { return cmp.Or(g.Requests.DrainTimeout, DefaultDrainTimeout) },
			set: func(g *Gateway, v string) {
				if g.Requests.DrainTimeout = v; v == DefaultDrainTimeout {
					g.Requests.DrainTimeout = ""
				}
			},
			normal: DefaultDrainTimeout,
			check:  CheckDrainTimeout,
		},
	}, allowIPsRow(), denyIPsRow(), maintenanceRow(), requestHeadersRow(), responseHeadersRow(), {
		Name: "self_service", Kind: KindSwitches,
		Doc: Doc{
			File:   "What holders of keys may do themselves, at paths below /.keygate/ of the gateway. An absent field stays. Default: nothing.",
			Update: "What holders of keys may do themselves, at paths below /.keygate/ of the gateway, which then reach no route. An absent field stays; null, the default, means nothing.",
			Record: "What holders of keys may do themselves, at paths below /.keygate/ of the gateway.",
			Patch:  "absent fields stay; default: nothing",
		},
		Flag: Flag{Column: "SELF-SERVICE"},
		Form: Form{Group: "Holders of keys"},
		Parts: []Part{{
			Name: "usage", Kind: KindBool,
			Flag: Flag{Name: "self-service-usage", Usage: "let holders of keys see their usage, at /.keygate/usage"},
			Form: Form{Label: "See their usage", Hint: "GET /.keygate/usage with a key says what is left of its quotas."},
		}, {
			Name: "rotate", Kind: KindBool,
			Flag: Flag{Name: "self-service-rotate", Usage: "let holders of keys rotate them, at /.keygate/rotate"},
			Form: Form{Label: "Rotate their key", Hint: "POST /.keygate/rotate gives the holder of a key a new one, once a day. Revoking the old key revokes the new one too."},
		}},
		values: access[SelfServicePatch]{
			file:   selfServiceValue(),
			member: func(p *Patch) *Member[SelfServicePatch] { return &p.SelfService },
			get:    func(g *Gateway) SelfServicePatch { return g.Requests.SelfService.Patch() },
			set: func(g *Gateway, p SelfServicePatch) {
				g.Requests.SelfService = p.Apply(g.Requests.SelfService)
			},
			normal: SelfService{}.Patch(),
		},
	}, {
		Name: "split", Kind: KindSplit, Most: MaxSplitEntries,
		Doc: Doc{
			File:   "Which requests go to another upstream than that of their route, on all routes without a split of their own. The first entry whose when holds decides, else the one with a weight. null, the default, means none.",
			Create: "Which requests go to another upstream than that of their route, on all routes without a split of their own.",
			Update: "Which requests go to another upstream than that of their route, on all routes without a split of their own. The first entry whose when holds decides, else the one with a weight. Replaces the whole list; null, the default, means none.",
			Record: "Which requests go to another upstream than that of their route, on all routes without a split of their own. Absent if there is none.",
			Patch:  "replaced as a whole; default: none",
		},
		Record: Record{OmitEmpty: true},
		Flag:   Flag{Name: "split", Usage: "`entry` of the split: the upstream, then =PERCENT, :header:NAME=VALUE, :key:KEY_ID,… or :owner:ID,…, as in next=5% or next:header:X-Beta=1; ,random and ,fallback may follow a percentage, and ,fallback any entry; may be repeated, and replaces all entries; an empty value removes them", Column: "SPLIT"},
		Form:   Form{Group: "Split of requests", Label: "Split", Hint: "The first condition that holds decides, else the percentage. All other requests go to the upstream of their route. One entry in a line, as in next:header:X-Beta=1 or next=5%; ,random behind a percentage takes any request, and ,fallback lets the other side serve while one is down.", Placeholder: "next=5%"},
		values: access[Split]{
			file:   splitValue(),
			member: func(p *Patch) *Member[Split] { return &p.Split },
			get:    func(g *Gateway) Split { return g.Requests.Split },
			set: func(g *Gateway, s Split) {
				if g.Requests.Split = s; len(s) == 0 {
					g.Requests.Split = nil
				}
			},
			check: checkSplit,
		},
	}, {
		Name: "error_format", Kind: KindText, Choices: fault.Formats(), Example: string(fault.FormatOpenAI),
		Doc: Doc{
			File:   "Form of the gateway's own errors: keygate, openai or problem (RFC 9457). Default: keygate.",
			Update: "Form of the gateway's own errors: keygate, openai as the clients of OpenAI read them, or problem (RFC 9457). Statuses and headers are the same. Null, the default, means keygate.",
			Record: "Form of the gateway's own errors.",
			Patch:  "keygate, openai or problem; default: keygate",
		},
		Record: Record{Example: string(fault.FormatKeygate)},
		Flag:   Flag{Name: "error-format", Usage: "`form` of the gateway's own errors: keygate, openai, or problem (RFC 9457)", Column: "ERROR FORMAT"},
		Form:   Form{Group: "Addressing", Label: "Form of errors", Hint: "Of the gateway's own errors. OpenAI's clients read openai; problem is RFC 9457."},
		values: access[string]{
			file:   choiceValue(fault.Formats()),
			member: func(p *Patch) *Member[string] { return &p.ErrorFormat },
			get:    func(g *Gateway) string { return cmp.Or(g.Requests.ErrorFormat, string(fault.FormatKeygate)) },
			set: func(g *Gateway, v string) {
				if g.Requests.ErrorFormat = v; v == string(fault.FormatKeygate) {
					g.Requests.ErrorFormat = ""
				}
			},
			normal: string(fault.FormatKeygate),
			check:  CheckErrorFormat,
		},
	}, {
		Name: "validate", Kind: KindText, Choices: ValidateModes(), Example: string(ValidateReport),
		Doc: Doc{
			File:   "Whether requests are held against the OpenAPI document of the gateway: off, report, which only counts those that do not meet it, or enforce, which refuses them. Default: off.",
			Update: "Whether requests are held against the OpenAPI document of the gateway: off, report, which only counts those that do not meet it, or enforce, which refuses them. Null, the default, means off.",
			Record: "Whether requests are held against the OpenAPI document of the gateway.",
			Patch:  "off, report or enforce; default: off",
		},
		Record: Record{Example: string(ValidateOff)},
		Flag:   Flag{Name: "validate", Usage: "`mode` in which requests are held against the OpenAPI document: off, report or enforce", Column: "VALIDATE"},
		Form:   Form{Group: "OpenAPI document", Label: "Requests that do not meet it", Hint: "off lets them pass, report counts them, and enforce refuses them."},
		values: access[string]{
			file:   choiceValue(ValidateModes()),
			member: func(p *Patch) *Member[string] { return &p.Validate },
			get:    func(g *Gateway) string { return string(g.Requests.Validate.OrOff()) },
			set:    func(g *Gateway, v string) { g.Requests.Validate = ValidateMode(v).stored() },
			normal: string(ValidateOff),
			check:  CheckValidate,
		},
	}}
}

// checkFileHeaders is CheckUpstreamHeaders for a file, where a value may be Masked.
func checkFileHeaders(h map[string]string) error {
	return CheckUpstreamHeaders(unmasked(h))
}

// unmasked returns headers with a valid value in place of Masked.
func unmasked(h map[string]string) map[string]string {
	given := maps.Clone(h)
	for name, value := range given {
		if value == Masked {
			given[name] = ""
		}
	}
	return given
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
	return fault.Prefixed("global_rate_limit", cmp.Or(c.Validate(), CheckGlobalLimit(c)))
}

func checkAnonymousLimit(c ratelimit.Config) error {
	return fault.Prefixed("anonymous_limit", cmp.Or(c.Validate(), CheckAnonymousLimit(c)))
}

func checkSplit(s Split) error { return fault.Prefixed(splitField, s.Check()) }

func checkCORS(c CORS) error {
	c = c.Normal()
	return fault.Prefixed("cors", c.Validate())
}

// maskedHeaders returns the headers that g sets, with Masked for the values; nil if there are none.
func maskedHeaders(g *Gateway) map[string]string {
	return masked(g.Upstream.Headers)
}
