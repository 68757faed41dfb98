package control

import (
	"fmt"
	"maps"
	"slices"

	"github.com/keygate/keygate/internal/gateway"
)

// restorable returns the part of the section of an old revision that a rollback of g can restore, and a
// warning for each of the rest. A revision has no secrets, so the secrets of g stay, as long as
// upstream_url keeps its origin. default is left out, because it would change another gateway too.
func restorable(section gateway.Patch, g *gateway.Gateway) (gateway.Patch, []string) {
	section.Default = gateway.Member[bool]{}
	var warnings []string
	headers, hasKey := g.Upstream.Headers, len(g.Upstream.TLS.ClientKey) > 0
	moves := section.UpstreamURL.Present && originOf(section.UpstreamURL.Value) != originOf(g.Upstream.URL)
	if moves {
		headers, hasKey = nil, false
	}
	if h := &section.UpstreamHeaders; h.Value != nil {
		h.Value = maps.Clone(h.Value)
		for _, name := range slices.Sorted(maps.Keys(h.Value)) {
			if len(headers[name]) == 0 {
				delete(h.Value, name)
				warnings = append(warnings, fmt.Sprintf("upstream_headers.%s was not restored, because revisions hold no secrets: set it again", name))
			}
		}
	}
	certificate, key := &section.UpstreamClientCertificate, &section.UpstreamClientKey
	wantsCertificate, wantsKey := certificate.Present && !certificate.Null, key.Present && !key.Null
	same := hasKey && (!wantsCertificate || certificate.Value == g.Upstream.TLS.ClientCertificate)
	if (wantsCertificate || wantsKey) && !same {
		*certificate, *key = gateway.Member[string]{}, gateway.Member[string]{}
		warnings = append(warnings, "upstream_client_certificate and upstream_client_key were not restored, because revisions hold no secrets: set them again")
	}
	return section, warnings
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
	return changes
}
