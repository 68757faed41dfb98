package control

import (
	"fmt"
	"maps"
	"slices"

	"github.com/keygate/keygate/internal/gateway"
)

// restorable returns the part of the section of an old revision that a rollback of g can restore, and a
// warning for each of the rest. A revision has no secrets, so the secrets of g stay, as long as
// they are for the same service. default is left out, because it would change another gateway too, and so is
// upstream_url if the default upstream has several targets now.
func restorable(section gateway.Patch, g *gateway.Gateway) (gateway.Patch, []string) {
	section.Default = gateway.Member[bool]{}
	var warnings []string
	if u := &section.UpstreamURL; u.Present && g.Upstream.Several() && u.Value != g.Upstream.URL {
		*u = gateway.Member[string]{}
		warnings = append(warnings, fmt.Sprintf("upstream_url was not restored, because the upstream %s has %d targets now: change its targets", gateway.DefaultUpstream, len(g.Upstream.Targets)))
	}
	together, _ := withDefaultEntry(&section)
	section = *together
	if !hasDefault(&section) {
		warnings = append(warnings, restoreSecrets(&section, &g.Upstream, withReach(g, gateway.Settings(), &section), "upstream_")...)
	}
	section.Upstreams.Value = slices.DeleteFunc(slices.Clone(section.Upstreams.Value), func(p gateway.UpstreamPatch) bool {
		gone := !p.Targets.Present && g.UpstreamNamed(p.Name) == nil
		if gone {
			warnings = append(warnings, fmt.Sprintf("%s.%s was not restored, because the file of the revision kept its targets, and it was deleted since: create it again", upstreamsField, p.Name))
		}
		return gone
	})
	for i := range section.Upstreams.Value {
		p := &section.Upstreams.Value[i]
		now := g.UpstreamNamed(p.Name)
		if now == nil {
			now = &gateway.Upstream{Name: gateway.StoredUpstreamName(p.Name)}
		}
		after := withReach(g.Alone(now), gateway.UpstreamSettings(), &p.Patch)
		warnings = append(warnings, restoreSecrets(&p.Patch, now, after, upstreamPath(p.Name, ""))...)
	}
	return section, warnings
}

// withReach returns the upstream of g with what p says about whom its secrets are sent to.
func withReach(g *gateway.Gateway, rows []gateway.Setting, p *gateway.Patch) *gateway.Upstream {
	after := *g
	for _, s := range rows {
		if change, err := s.Change(p); saysWhere(s.Name) && err == nil && change != nil {
			change(&after)
		}
	}
	return &after.Upstream
}

// restoreSecrets removes secrets from p that a rollback cannot restore, and returns a warning for each of them. prefix
// begins the names of the fields.
func restoreSecrets(p *gateway.Patch, now, after *gateway.Upstream, prefix string) (warnings []string) {
	headers, hasKey := now.Headers, len(now.TLS.ClientKey) > 0
	single := now.Name == "" && isSingle(now) && isSingle(after)
	moves := originOf(now.URL) != originOf(after.URL)
	if !single {
		moves = now.HasSecrets() && serviceChange(now, after) != ""
	}
	if moves {
		headers, hasKey = nil, false
	}
	const notRestored = "not restored, because revisions hold no secrets: set "
	h := &p.UpstreamHeaders
	if h.Value != nil {
		h.Value = maps.Clone(h.Value)
		for _, name := range slices.Sorted(maps.Keys(h.Value)) {
			if len(headers[name]) == 0 {
				delete(h.Value, name)
				warnings = append(warnings, fmt.Sprintf("%sheaders.%s was %sit again", prefix, name, notRestored))
			}
		}
	}
	if !h.Present && !single && moves && len(now.Headers) > 0 {
		*h = gateway.Member[map[string]string]{Present: true, Null: true}
		warnings = append(warnings, fmt.Sprintf("%sheaders were %sthem again", prefix, notRestored))
	}
	warnings = append(warnings, restoreHealth(p, now, after, moves, prefix+"health.headers")...)
	certificate, key := &p.UpstreamClientCertificate, &p.UpstreamClientKey
	wantsCertificate, wantsKey := certificate.Present && !certificate.Null, key.Present && !key.Null
	same := hasKey && (!wantsCertificate || certificate.Value == now.TLS.ClientCertificate)
	lost := !single && moves && len(now.TLS.ClientKey) > 0 && !certificate.Null
	if (wantsCertificate || wantsKey || lost) && !same {
		*certificate, *key = gateway.Member[string]{}, gateway.Member[string]{}
		if lost {
			certificate.Present, certificate.Null, key.Present, key.Null = true, true, true, true
		}
		warnings = append(warnings, fmt.Sprintf("%sclient_certificate and %[1]sclient_key were %[2]sthem again", prefix, notRestored))
	}
	return warnings
}

// restoreHealth is restoreSecrets for the headers of checks, in field. moves says that none of them stay.
func restoreHealth(p *gateway.Patch, now, after *gateway.Upstream, moves bool, field string) (warnings []string) {
	const notRestored = " not restored, because revisions hold no secrets: set "
	h, had := &p.Health, now.Health.SealedHeaders()
	if moves {
		if len(had) > 0 && !h.Present && after.Health != nil {
			*h = gateway.Member[gateway.Health]{Present: true, Value: after.HealthOf()}
			h.Value.Headers = nil
		}
		if len(had) > 0 && h.Present && !h.Null && h.Value.Headers == nil && h.Value.TakesHeaders() {
			h.Value.Headers = map[string]string{}
			warnings = append(warnings, field+" were"+notRestored+"them again")
		}
		had = nil
	}
	if h.Value.Headers == nil {
		return warnings
	}
	h.Value.Headers = maps.Clone(h.Value.Headers)
	for _, name := range slices.Sorted(maps.Keys(h.Value.Headers)) {
		if len(had[name]) == 0 {
			delete(h.Value.Headers, name)
			warnings = append(warnings, field+"."+name+" was"+notRestored+"it again")
		}
	}
	return warnings
}

// originOf returns the origin of a valid upstream URL.
func originOf(upstreamURL string) string {
	u, err := gateway.ParseUpstreamURL(upstreamURL)
	if err != nil {
		return upstreamURL
	}
	return u.Origin()
}

// settingChanges returns the settings in which two states of a gateway differ.
func settingChanges(before, after *gateway.Gateway) []SettingChange {
	diff := gatewayDiff(before, after)
	var changes []SettingChange
	for _, name := range gateway.SettingNames() {
		if values, differs := diff[name]; differs {
			changes = append(changes, SettingChange{Field: name, Before: values[0], After: values[1]})
		}
	}
	return append(changes, upstreamChanges(diff)...)
}
