package control

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"reflect"
	"time"

	"github.com/keygate/keygate/internal/addrlist"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/cost"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/ratelimit"
)

// fields is a record as the audit log shows it, by the contract's field names. Absent values are
// nil, and secrets "***".
type fields map[string]any

// differ returns the fields that differ. before is nil if the record did not exist, and after if it
// does not exist any more.
func differ(before, after fields) audit.Diff {
	d := audit.Diff{}
	for name := range maps.Keys(before) {
		if !reflect.DeepEqual(before[name], after[name]) {
			d[name] = [2]any{before[name], after[name]}
		}
	}
	for name, value := range after {
		if _, ok := before[name]; !ok && value != nil {
			d[name] = [2]any{nil, value}
		}
	}
	return d
}

func keyDiff(before, after *apikey.Key) audit.Diff {
	return differ(keyFields(before), keyFields(after))
}

func keyFields(k *apikey.Key) fields {
	if k == nil {
		return nil
	}
	f := fields{
		"name": k.Name, "level": string(k.Level), "scope": k.Scope.String(), "key_prefix": k.Prefix,
		"owner": orNil(k.Owner), "gateway_id": orNil(k.GatewayID), "plan_id": orNil(k.PlanID), "rate_limit": keyLimitOrNil(k.RateLimit), "concurrency": numberOrNil(k.Concurrency), "metadata": nil,
		"expires_at": timeOrNil(k.ExpiresAt), "revoked_at": timeOrNil(k.RevokedAt),
		"rotated_from": orNil(k.RotatedFrom), "rotated_to": orNil(k.RotatedTo),
		addrlist.AllowField: textsOrNil(k.Addresses.Allow), addrlist.DenyField: textsOrNil(k.Addresses.Deny),
	}
	if k.Imported {
		f["imported"] = true
	}
	if len(k.Metadata) > 0 {
		f["metadata"] = k.Metadata
	}
	return f
}

func routeDiff(before, after *gateway.Route) audit.Diff {
	return differ(routeFields(before), routeFields(after))
}

func routeFields(r *gateway.Route) fields {
	if r == nil {
		return nil
	}
	f := fields{
		"path": r.Path, "methods": r.Methods, "auth": orNil(string(r.Auth)), "source": string(r.Source),
		"rate_limit": limitOrNil(r.RateLimit), "concurrency": concurrencyOrNil(r.Concurrency), "cost": costOrNil(r.Cost),
		"upstream": orNil(r.Upstream), "split": routeSplitOrNil(r.Split),
	}
	for _, name := range gateway.HandlingFields() {
		if value := r.Handling.Value(name); value != nil {
			f[name] = value
		}
	}
	return f
}

func gatewayDiff(before, after *gateway.Gateway) audit.Diff {
	d := differ(gatewayFields(before), gatewayFields(after))
	maps.Copy(d, upstreamsDiff(before, after))
	if before == nil || after == nil {
		return d
	}
	// Masked, the old and the new value of a secret read the same.
	secret := func(name string) { d[name] = [2]any{gatewayFields(before)[name], gatewayFields(after)[name]} }
	if !maps.EqualFunc(before.Upstream.Headers, after.Upstream.Headers, bytes.Equal) {
		secret("upstream_headers")
	}
	if !bytes.Equal(before.Upstream.TLS.ClientKey, after.Upstream.TLS.ClientKey) {
		secret("upstream_client_key")
	}
	return d
}

// upstreamName returns the name of the upstream of a route.
func upstreamName(r *gateway.Route) string { return cmp.Or(r.Upstream, gateway.DefaultUpstream) }

func gatewayFields(g *gateway.Gateway) fields {
	if g == nil {
		return nil
	}
	f := fields{"revision": numberOrNil(g.Revision)}
	for _, s := range gateway.Settings() {
		f[s.Name] = settingOrNil(s.Kind, s.Value(g))
	}
	return f
}

// settingOrNil returns the value of a setting of a gateway as the audit log has it.
func settingOrNil(kind gateway.Kind, value any) any {
	switch v := value.(type) {
	case string:
		if kind == gateway.KindCertificate {
			return digestOrNil(v)
		}
		return orNil(v)
	case int64:
		return numberOrNil(v)
	case ratelimit.Config:
		return limitOrNil(v)
	case gateway.CORS:
		if len(v.Origins) == 0 {
			return nil
		}
	case gateway.SelfServicePatch:
		if s := v.Apply(gateway.SelfService{}); s.Reserves() {
			return map[string]bool{"usage": s.Usage, "rotate": s.Rotate}
		}
		return nil
	case []string:
		return textsOrNil(v)
	case *gateway.Maintenance:
		if v == nil {
			return nil
		}
		return *v
	case *gateway.HeaderRules:
		if v == nil {
			return nil
		}
		return *v
	case gateway.Split:
		if len(v) == 0 {
			return nil
		}
		return v.Fields()
	case gateway.Ejection:
		return ejectionOrFalse(v)
	case gateway.Health:
		return healthOrNil(v)
	case map[string]string:
		if len(v) == 0 {
			return nil
		}
	}
	return value
}

// digestOrNil returns a digest of certificates, which are too long to show.
func digestOrNil(certificates string) any {
	if certificates == "" {
		return nil
	}
	return digest([]byte(certificates))
}

func digest(text []byte) string {
	sum := sha256.Sum256(text)
	return "sha256:" + hex.EncodeToString(sum[:])
}

func limitOrNil(c ratelimit.Config) any {
	if c.IsZero() {
		return nil
	}
	m := map[string]string{}
	for name, value := range map[string]string{
		"sustained": c.Sustained.String(), "burst": c.Burst.String(), "daily": c.Daily.String(), "per": c.Per,
	} {
		if value != "" {
			m[name] = value
		}
	}
	return m
}

func concurrencyOrNil(c ratelimit.Concurrency) any {
	if c.IsZero() {
		return nil
	}
	return c
}

// routeSplitOrNil returns the split of a route: nil for that of the gateway.
func routeSplitOrNil(s gateway.Split) any {
	if s == nil {
		return nil
	}
	return s.Fields()
}

func costOrNil(rules cost.Rules) any {
	if len(rules) == 0 {
		return nil
	}
	return rules
}

func keyLimitOrNil(l ratelimit.KeyLimit) any {
	if r, ok := l.Single(); ok {
		return r.String()
	}
	return limitOrNil(l.Config)
}

func orNil(s string) any {
	if s == "" {
		return nil
	}
	return s
}

func textsOrNil(list []string) any {
	if len(list) == 0 {
		return nil
	}
	return list
}

func numberOrNil(n int64) any {
	if n == 0 {
		return nil
	}
	return n
}

func timeOrNil(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.Format(time.RFC3339Nano)
}
