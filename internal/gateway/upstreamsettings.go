package gateway

import (
	"reflect"
	"strings"
)

// upstreamPrefix begins the names of the settings of a gateway that are those of its default upstream.
const upstreamPrefix = "upstream_"

// UpstreamSettings returns the table of the settings of an upstream, except for its name: those of Settings whose names
// begin with upstream_, without that prefix, and those that only upstreams have. The table has the order of an export, in
// which settings are also applied. A row reads and changes the upstream of a gateway that Gateway.Alone returns.
func UpstreamSettings() []Setting {
	rows := []Setting{{
		Name: "targets", Kind: KindTargets, NotNull: true, Required: true, Most: MaxTargets,
		Doc: Doc{
			File:   "Where the requests go: 1 to 256 targets with one scheme, and no two with the same URL. Replaces all of them; absent keeps those in force.",
			Update: "Where the requests go: targets with one scheme, and no two with the same URL. Replaces all of them; absent keeps those in force. Required for a new upstream.",
			Record: "Where the requests go.",
			Patch:  "1 to 256, replaced as a whole; cannot be cleared",
		},
		Flag: Flag{Name: "target", Usage: "`URL` of a target, as in https://10.0.0.1:8443; then perhaps weight=N, backup, drain and resolve=a or resolve=srv, separated by commas; may be repeated, and replaces all targets", Column: "TARGET"},
		values: access[[]Target]{
			file:   targetsValue(),
			member: func(p *Patch) *Member[[]Target] { return &p.Targets },
			get:    func(g *Gateway) []Target { return g.Upstream.AllTargets() },
			set:    func(g *Gateway, v []Target) { g.Upstream.SetTargets(v) },
			pinned: true,
			check:  CheckTargets,
		},
	}, {
		Name: "balance", Kind: KindText, Choices: Policies(), Example: string(RoundRobin),
		Doc: Doc{
			File:   "How a target is chosen: least_requests, round_robin or hash. Default: least_requests.",
			Update: "How a target is chosen: least_requests draws two by weight and takes the one with fewer requests in flight, round_robin takes one after the other by weight, hash keeps the requests of one hash_on together. Null, the default, means least_requests.",
			Record: "How a target is chosen.",
			Patch:  "default: least_requests",
		},
		Record: Record{Example: string(LeastRequests)},
		Flag:   Flag{Name: "balance", Usage: "how a target is chosen: `least_requests`, round_robin or hash", Column: "BALANCE"},
		Form:   Form{Group: "Upstream", Label: "Balance", Hint: "How a target is chosen: by requests in flight, one after the other, or by a hash."},
		values: access[string]{
			file:   choiceValue(Policies()),
			member: func(p *Patch) *Member[string] { return &p.Balance },
			get:    func(g *Gateway) string { return string(g.Upstream.Balance.PolicyOf()) },
			set: func(g *Gateway, v string) {
				b := &g.Upstream.Balance
				switch b.Policy = Policy(v); b.Policy {
				case Hash:
					return
				case LeastRequests:
					b.Policy = ""
				}
				b.HashOn = ""
			},
			normal: string(LeastRequests),
			check:  checkPolicy,
		},
	}, {
		Name: "hash_on", Kind: KindText, Most: int64(len(HashHeader) + maxHeaderName), Example: "header:X-Session",
		Doc: Doc{
			File:   "What keeps requests together with balance hash: principal (the caller's key), address, or header:NAME.",
			Update: "What keeps requests together with balance hash: principal (the key, those of a rotation as one), address (the client's, IPv6 by /64), or header: and the name of a request header. Required with hash.",
			Record: "What keeps requests together with balance hash; null otherwise.",
			Patch:  "principal, address or header:NAME; only with balance hash",
		},
		Flag: Flag{Name: "hash-on", Usage: "what keeps requests together with --balance hash: `principal`, address or header:NAME", Column: "HASH ON"},
		Form: Form{Group: "Upstream", Label: "Hash on", Hint: "What keeps requests together: principal for the key, address, or header: and a name.", Placeholder: "header:X-Session"},
		values: access[string]{
			file:   textValue(1, len(HashHeader)+maxHeaderName),
			member: func(p *Patch) *Member[string] { return &p.HashOn },
			field:  func(g *Gateway) *string { return &g.Upstream.Balance.HashOn },
			check:  checkHashOn,
		},
	}, {
		Name: "ejection", Kind: KindEjection,
		Doc: Doc{
			File:   "When failures in a row eject a target for some time. Absent parts have their defaults. false turns it off.",
			Update: "When failures in a row eject a target for some time. Replaces the whole object, whose absent parts have their defaults; false turns it off, null restores the default.",
			Record: "When failures in a row eject a target for some time; false if that is turned off.",
			Patch:  "replaced as a whole; default: 5 failures of connect or reset",
		},
		Flag: Flag{Name: "ejection", Usage: "when failures in a row eject a target: `false`, or parts such as failures=5,on=connect+reset; others are base, max and max-percent", Column: "EJECTION"},
		Form: Form{Group: "Ejection", Label: "Eject targets that fail", Hint: "An ejected target gets no requests for some time."},
		Parts: []Part{{
			Name: "failures", Kind: KindCount,
			Form: Form{Label: "Failures in a row", Hint: "1 to 1000"},
		}, {
			Name: "base", Kind: KindDuration,
			Form: Form{Label: "First ejection", Hint: "100ms to 24h, and longer each time that it fails again."},
		}, {
			Name: "max", Kind: KindDuration,
			Form: Form{Label: "Longest ejection", Hint: "100ms to 24h"},
		}, {
			Name: "max_percent", Kind: KindCount,
			Form: Form{Label: "Most targets at once", Hint: "In percent, for statuses and timeouts; one target in any case."},
		}, {
			Name: "on", Kind: KindList, Choices: failures(),
			Form: Form{Label: "What counts as a failure", Hint: "Statuses and timeouts count if at least two callers got them."},
		}},
		values: access[Ejection]{
			file:   ejectionValue(),
			member: func(p *Patch) *Member[Ejection] { return &p.Ejection },
			get:    func(g *Gateway) Ejection { return g.Upstream.EjectionOf() },
			set: func(g *Gateway, v Ejection) {
				if g.Upstream.Ejection = nil; !reflect.DeepEqual(v, DefaultEjection()) {
					g.Upstream.Ejection = &v
				}
			},
			normal: DefaultEjection(),
			check:  checkEjection,
		},
	}, {
		Name: "retries", Kind: KindRetries,
		Doc: Doc{
			File:   "When a request is tried again, with another target if there is one. Absent parts have their defaults.",
			Update: "When a request is tried again, with another target if there is one. Replaces the whole object, whose absent parts have their defaults; null restores the default.",
			Record: "When a request is tried again, with another target if there is one.",
			Patch:  "replaced as a whole; default: once, after connect or reset",
		},
		Flag: Flag{Name: "retries", Usage: "when a request is tried again: `parts` such as attempts=2,on=connect+503; others are budget-percent and idempotency-key", Column: "RETRIES"},
		Form: Form{Group: "Retries"},
		Parts: []Part{{
			Name: "attempts", Kind: KindCount,
			Form: Form{Label: "Retries of a request", Hint: "0 to 5"},
		}, {
			Name: "budget_percent", Kind: KindCount,
			Form: Form{Label: "Budget", Hint: "Retries of the last 10 seconds, in percent of the requests; 30 are allowed in any case."},
		}, {
			Name: "idempotency_key", Kind: KindBool,
			Form: Form{Label: "Retry with Idempotency-Key", Hint: "POST and PATCH with this header are tried again as GET is."},
		}, {
			Name: "on", Kind: KindList, Choices: failures(),
			Form: Form{Label: "What is tried again", Hint: "Of GET, HEAD, OPTIONS, PUT and DELETE. A request that no target has received is tried again in any case."},
		}},
		values: access[Retries]{
			file:   retriesValue(),
			member: func(p *Patch) *Member[Retries] { return &p.Retries },
			get:    func(g *Gateway) Retries { return g.Upstream.RetriesOf() },
			set: func(g *Gateway, v Retries) {
				if g.Upstream.Retries = nil; !reflect.DeepEqual(v, DefaultRetries()) {
					g.Upstream.Retries = &v
				}
			},
			normal: DefaultRetries(),
			check:  checkRetries,
		},
	}, {
		Name: "health", Kind: KindHealth,
		Doc: Doc{
			File:   "How the targets are checked: by exactly one of path, grpc and tcp. Absent parts have their defaults, but absent headers those in force. null, the default, means that they are not checked.",
			Update: "How the targets are checked: by exactly one of path, grpc and tcp. Replaces the whole object, whose absent parts have their defaults; absent headers keep those in force, as long as they are for the same service. Null, the default, means that the targets are not checked.",
			Record: "How the targets are checked; null if they are not.",
			Patch:  "replaced as a whole, but for absent headers; default: no checks",
		},
		Flag: Flag{Name: "health", Usage: "how the targets are checked: `path=/healthz`, grpc=SERVICE or tcp, then perhaps interval=10s, timeout, unhealthy, healthy and statuses=200-299+304, separated by commas", Column: "HEALTH"},
		Form: Form{Group: "Checks"},
		Parts: []Part{{
			Name: "path", Kind: KindText,
			Form: Form{Label: "Path", Hint: "Requested with GET, from the root of the target's address. Give this, or a gRPC service, or choose a connection alone.", Placeholder: "/healthz"},
		}, {
			Name: "grpc", Kind: KindText,
			Form: Form{Label: "gRPC service", Hint: "Whose health is asked for, of https or h2c targets; \"\" is the server as a whole."},
		}, {
			Name: "tcp", Kind: KindBool,
			Form: Form{Label: "A connection is enough", Hint: "Nothing is sent."},
		}, {
			Name: "interval", Kind: KindDuration,
			Form: Form{Label: "Interval", Hint: "1s to 1h"},
		}, {
			Name: "timeout", Kind: KindDuration,
			Form: Form{Label: "Timeout of a check", Hint: "100ms to 1m"},
		}, {
			Name: "unhealthy", Kind: KindCount,
			Form: Form{Label: "Bad checks", Hint: "So many in a row take a target out, 1 to 100."},
		}, {
			Name: "healthy", Kind: KindCount,
			Form: Form{Label: "Good checks", Hint: "So many in a row take it in again, 1 to 100."},
		}, {
			Name: "statuses", Kind: KindText,
			Form: Form{Label: "Good statuses", Hint: "With a path: codes and ranges. Empty means 200-399.", Placeholder: DefaultStatuses},
		}, {
			Name: "headers", Kind: KindHeaders,
			Flag: Flag{Name: "health-header", Usage: "header of checks, as `NAME=VALUE`, with --health; may be repeated, and replaces all of them"},
			Form: Form{Label: "Sent with checks", Hint: "Headers, one “Name: value” in a line. A change replaces all of them: write the value again where *** is shown.", Placeholder: "X-Probe: secret"},
		}},
		values: access[Health]{
			file:   healthValue(),
			member: func(p *Patch) *Member[Health] { return &p.Health },
			get:    func(g *Gateway) Health { return g.Upstream.HealthOf() },
			set:    func(g *Gateway, v Health) { g.Upstream.setHealth(v) },
			check:  checkHealth,
		},
	}, {
		Name: "refresh", Kind: KindDuration, Example: "5s",
		Doc: Doc{
			File:   "How often the names of targets with resolve a or srv are looked up, from 1s to 1h. Default: 10s.",
			Update: "How often the names of targets with resolve a or srv are looked up, as a Go duration from 1s to 1h. Null, the default, means 10s.",
			Record: "How often the names of targets with resolve a or srv are looked up, as a Go duration.",
			Patch:  "Go duration, 1s to 1h; default: 10s",
		},
		Record: Record{Example: DefaultRefresh},
		Flag:   Flag{Name: "refresh", Usage: "how often names of targets with resolve=a or resolve=srv are looked up, as a `duration` such as 5s", Column: "REFRESH"},
		Form:   Form{Group: "Upstream", Label: "Look up names every", Hint: "Of targets whose addresses are looked up, from 1s to 1h. Empty means 10s.", Placeholder: DefaultRefresh},
		values: access[string]{
			file:   durationValue(),
			member: func(p *Patch) *Member[string] { return &p.Refresh },
			get:    func(g *Gateway) string { return g.Upstream.RefreshOf() },
			set: func(g *Gateway, v string) {
				if g.Upstream.Refresh = v; v == DefaultRefresh {
					g.Upstream.Refresh = ""
				}
			},
			normal: DefaultRefresh,
			check:  checkRefresh,
		},
	}, {
		Name: "timeout", Kind: KindDuration, Example: "30s",
		Doc: Doc{
			File:   "Timeout for the response headers of all attempts together, from 1s to 1h. Default: the timeout of the gateway.",
			Update: "Timeout for the response headers, of all attempts together, as a Go duration from 1s to 1h. Null, the default, means the timeout of the upstream default, and for that one 60s.",
			Record: "Timeout for the response headers, as a Go duration; null for that of the upstream default.",
			Patch:  "Go duration, 1s to 1h; default: that of the upstream default",
		},
		Flag: Flag{Name: "timeout", Usage: "timeout for the response headers, of all attempts together, as a `duration` such as 30s", Column: "TIMEOUT"},
		Form: Form{Group: "Upstream", Label: "Timeout", Hint: "To the response headers, of all attempts together, from 1s to 1h. Empty means that of the upstream default."},
		values: access[string]{
			file:   durationValue(),
			member: func(p *Patch) *Member[string] { return &p.Timeout },
			field:  func(g *Gateway) *string { return &g.Upstream.Timeout },
			check:  CheckTimeout,
		},
	}}
	settings := Settings()
	for _, name := range []string{"host", "ca", "headers", "client_certificate", "client_key", "connect_timeout", "idle_timeout", "max_connection_age", "max_connections"} {
		rows = append(rows, *findSetting(settings, upstreamPrefix+name))
	}
	for i := range rows {
		rows[i].complete()
	}
	return rows
}

// UpstreamGroups returns the groups of UpstreamSettings in the form of the dashboard, in its order. The targets are in none.
func UpstreamGroups() []Group {
	return []Group{
		{Title: "Upstream"},
		{Title: "Checks", Text: "With a path, a gRPC service or a connection alone, each target is checked, and gets no requests while it fails."},
		{Title: "Ejection", Text: "Failures in a row take a target away for some time."},
		{Title: "Retries", Text: "A request that failed is tried again, with another target if there is one."},
		{Title: "Connections to the upstream", Text: "Empty means the default."},
	}
}

// complete makes s a row of UpstreamSettings.
func (s *Setting) complete() {
	s.Name, s.ofUpstream = strings.TrimPrefix(s.Name, upstreamPrefix), true
	s.Flag.Name, s.Flag.Column = strings.TrimPrefix(s.Flag.Name, "upstream-"), strings.TrimPrefix(s.Flag.Column, "UPSTREAM ")
	for _, text := range []*string{&s.Doc.File, &s.Doc.Create, &s.Doc.Update, &s.Doc.Record, &s.Doc.Patch} {
		*text = strings.ReplaceAll(strings.ReplaceAll(*text, "upstream_url", "the target's URL"), upstreamPrefix, "")
	}
	switch s.Name {
	case "ca":
		s.Doc.Record = "PEM certificates that replace the system's root certificates; null for those of the system."
	case "max_connections":
		s.Form.Hint = "Of each target, 1 to 100000"
	case "connect_timeout":
		const one, several = "10s.", "10s, or 1s with several targets."
		for _, text := range []*string{&s.Doc.File, &s.Doc.Update, &s.Doc.Record} {
			*text = strings.ReplaceAll(*text, one, several)
		}
	}
	s.Doc.Record = strings.ReplaceAll(strings.ReplaceAll(s.Doc.Record, "Absent for", "Null for"), "Absent if", "Null if")
}
