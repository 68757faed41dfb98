package control

import (
	"fmt"
	"slices"
	"strings"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
)

// upstreamEdit is a gateway.UpstreamPatch whose settings were each checked by themselves.
type upstreamEdit struct {
	gatewayEdit        // of the gateway that Gateway.Alone returns
	name        string // in the API
	replaces    bool   // settings that the patch does not have get their defaults, except for the targets
}

// readUpstream checks each setting of p by itself. In a file, *** stands for a secret that the upstream has.
func (s *Service) readUpstream(p *gateway.UpstreamPatch, fromFile bool) (*upstreamEdit, error) {
	e := &upstreamEdit{gatewayEdit: *s.newEdit(&p.Patch, fromFile), name: p.Name}
	e.ofUpstream = true
	var problems []error
	for _, setting := range gateway.UpstreamSettings() {
		problems = append(problems, s.putSetting(&e.gatewayEdit, nil, &p.Patch, &setting))
	}
	return e, gateway.OfUpstream(fault.Join(problems...))
}

// apply changes the upstream of g, or adds it. Errors name the fields of the upstream.
func (e *upstreamEdit) apply(g *gateway.Gateway) error {
	u := gateway.Upstream{Name: gateway.StoredUpstreamName(e.name)}
	if now := g.UpstreamNamed(e.name); now != nil {
		if e.replaces {
			u.URL, u.Targets = now.URL, now.Targets
		} else {
			u = *now
		}
	}
	alone := g.Alone(&u)
	if e.replaces {
		alone.Upstream.Timeout = ""
	}
	if err := e.applySettings(alone); err != nil {
		return gateway.OfUpstream(err)
	}
	if err := fault.Join(alone.Upstream.Check(), gateway.OfUpstream(e.checkUpstream(&alone.Upstream))); err != nil {
		return err
	}
	g.PutUpstream(alone.Upstream)
	return nil
}

// putUpstreams makes e set the list of upstreams of p, if there is one.
func (s *Service) putUpstreams(e *gatewayEdit, p *gateway.Patch) error {
	if e.hasList = p.Upstreams.Present; !e.hasList {
		return nil
	}
	problems := []error{fault.Prefixed(upstreamsField, gateway.CheckUpstreamNames(p.Upstreams.Value))}
	for i := range p.Upstreams.Value {
		entry := &p.Upstreams.Value[i]
		edit, err := s.readUpstream(entry, e.fromFile)
		e.upstreams = append(e.upstreams, edit)
		problems = append(problems, e.moved.named(i, inUpstreams(i, fault.Join(gateway.CheckUpstreamName(entry.Name), err))))
		if entry.Name == gateway.DefaultUpstream {
			problems = append(problems, givenTwice(i, p, entry))
		}
	}
	return fault.Join(problems...)
}

// upstreamsField is the field of a gateway's creation and of a configuration file with the list of upstreams.
const upstreamsField = "upstreams"

// inUpstreams returns an error of an upstream as one of item i of the list.
func inUpstreams(i int, err error) error {
	return fault.Prefixed(fmt.Sprintf("%s[%d]", upstreamsField, i), err)
}

// moved says which settings of a gateway withDefaultEntry has moved, and into which item of the list of upstreams.
type moved struct {
	item  int
	names map[string]string // of the settings of the gateway, by their names in the item
}

// withDefaultEntry returns p with the settings of the gateway that are those of its default upstream in the entry default of
// its list, if it has one. So they are applied together, and the secrets in either of them are for the targets of the entry.
// Settings that the entry has too stay. p does not change.
func withDefaultEntry(p *gateway.Patch) (*gateway.Patch, moved) {
	m := moved{item: slices.IndexFunc(p.Upstreams.Value, isDefaultEntry), names: map[string]string{}}
	if m.item < 0 {
		return p, m
	}
	together := *p
	together.Upstreams.Value = slices.Clone(p.Upstreams.Value)
	entry := &together.Upstreams.Value[m.item].Patch
	for _, row := range gateway.UpstreamSettings() {
		if name := row.GatewaySetting(); name != "" && row.IsGiven(&together) && !row.IsGiven(entry) {
			row.Move(&together, entry)
			m.names[row.Name] = name
		}
	}
	return &together, m
}

func isDefaultEntry(p gateway.UpstreamPatch) bool { return p.Name == gateway.DefaultUpstream }

// named returns an error of item i of the list of upstreams with the names that its fields had before they were moved.
func (m *moved) named(i int, err error) error {
	problems := slices.Clone(fault.ProblemsOf(err))
	if i != m.item || problems == nil {
		return err
	}
	for at := range problems {
		field := strings.TrimPrefix(problems[at].Field, fmt.Sprintf("%s[%d].", upstreamsField, i))
		name, _, _ := strings.Cut(field, ".")
		if was, ok := m.names[name]; ok {
			problems[at].Field = was + strings.TrimPrefix(field, name)
		}
	}
	return fault.InvalidAll(problems, fault.LeftOut(err))
}

// givenTwice refuses settings of the default upstream that are given as settings of the gateway too.
func givenTwice(i int, p *gateway.Patch, entry *gateway.UpstreamPatch) error {
	var problems []error
	if p.UpstreamURL.Present {
		problems = append(problems, fault.Invalid(upstreamsField, "has the upstream %s, whose first target is upstream_url: give one of the two", gateway.DefaultUpstream))
	}
	for _, row := range gateway.UpstreamSettings() {
		if name := row.GatewaySetting(); name != "" && row.IsGiven(&entry.Patch) && row.IsGiven(p) {
			problems = append(problems, inUpstreams(i, fault.Invalid(row.Name, "is the same setting as %s of the gateway, which is given too: leave one of them out", name)))
		}
	}
	return fault.Join(problems...)
}

// applyUpstreams changes the upstreams of g that are in the list, and removes all others but the default one.
func (e *gatewayEdit) applyUpstreams(g *gateway.Gateway) error {
	if !e.hasList {
		return nil
	}
	var problems []error
	for i, edit := range e.upstreams {
		problems = append(problems, e.moved.named(i, inUpstreams(i, edit.apply(g))))
	}
	for _, u := range slices.Clone(g.Others) {
		if !slices.ContainsFunc(e.upstreams, func(edit *upstreamEdit) bool { return edit.name == u.Name }) {
			g.RemoveUpstream(u.Name)
		}
	}
	return fault.Join(problems...)
}

// guardSecrets decides which secrets u, which was before until now, keeps (targets.md, section 1): those that are still for
// the same service. If others are not given again, the error is a validation error of upstream_headers, upstream_client_key or
// health.headers.
// A default upstream with one target loses them instead (contract, 3.3).
func (e *gatewayEdit) guardSecrets(before, u *gateway.Upstream) error {
	if !before.HasSecrets() || before.URL == "" { // a gateway that is being created has given them to none yet
		return nil
	}
	if u.Name == "" && isSingle(before) && isSingle(u) {
		switch {
		case originOf(before.URL) != originOf(u.URL):
			u.DropSecrets()
		case before.Host != u.Host || before.TLS.CA != u.TLS.CA:
			u.OfOrigin = true
		}
		return nil
	}
	reason := serviceChange(before, u)
	if reason == "" {
		// Targets that prove themselves from now on are those that had the secrets before, and no others.
		u.OfOrigin = u.OfOrigin || !before.ProvesHost() && u.ProvesHost()
		return nil
	}
	u.Headers, u.TLS.ClientKey, u.Health = nil, nil, u.Health.WithoutHeaders()
	const remedy = "must be given again in the same call, or set to null: secrets of an upstream are for the service that they were given for, but %s"
	var headers, key, health error
	if len(before.Headers) > 0 && !e.given.headers {
		headers = fault.Invalid("upstream_headers", remedy, reason)
	}
	if len(before.TLS.ClientKey) > 0 && !e.given.key {
		key = fault.Invalid("upstream_client_key", remedy, reason)
	}
	if len(before.Health.SealedHeaders()) > 0 && !e.given.health {
		health = fault.Invalid(healthHeaders, remedy, reason)
	}
	return fault.Join(headers, key, health)
}

// isSingle reports whether an upstream has one target whose requests all go to the name in its URL. SRV records lead to others.
func isSingle(u *gateway.Upstream) bool { return !u.Several() && !u.HasSRV() }

// serviceChange says why an upstream that changes may send its secrets to another service than before, or returns "" if it
// does not. What targets prove with a certificate for host, by the authorities of ca, is the service; where the data plane
// requires no such certificate (gateway.Upstream.ProvesHost), or the secrets were not given for it, it is the set of their
// origins.
func serviceChange(before, after *gateway.Upstream) string {
	if before.Host != after.Host || before.TLS.CA != after.TLS.CA {
		return "another host or ca makes it another one"
	}
	if !before.OfOrigin && before.ProvesHost() {
		if !after.ProvesHost() {
			return "the certificate of a target is no longer checked for host"
		}
		return ""
	}
	known := originsOf(before)
	for _, origin := range originsOf(after) {
		if !slices.Contains(known, origin) {
			return origin + " is not among the targets that they were given for"
		}
	}
	return ""
}

// originsOf returns the origins of the targets. The SRV records of a name lead to others than the name itself.
func originsOf(u *gateway.Upstream) []string {
	var origins []string
	for _, t := range u.AllTargets() {
		origin := originOf(t.URL)
		if t.Resolve == gateway.ResolveSRV {
			origin += " with resolve srv"
		}
		origins = append(origins, origin)
	}
	return origins
}
