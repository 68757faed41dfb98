package control

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"reflect"
	"time"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/ratelimit"
)

// fields is a record as the audit log shows it, by the contract's field names. Absent values are
// nil, and secrets "***".
type fields map[string]any

// differ returns the fields that differ. before or after is nil for a record that does not
// exist.
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
		"owner": orNil(k.Owner), "gateway_id": orNil(k.GatewayID), "rate_limit": keyLimitOrNil(k.RateLimit), "metadata": nil,
		"expires_at": timeOrNil(k.ExpiresAt), "revoked_at": timeOrNil(k.RevokedAt),
		"rotated_from": orNil(k.RotatedFrom), "rotated_to": orNil(k.RotatedTo),
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
	return fields{
		"path": r.Path, "methods": r.Methods, "auth": string(r.Auth), "source": string(r.Source),
		"rate_limit": limitOrNil(r.RateLimit),
	}
}

func gatewayDiff(before, after *gateway.Gateway) audit.Diff {
	d := differ(gatewayFields(before), gatewayFields(after))
	if before != nil && after != nil {
		secretsDiff(d, &before.Upstream, &after.Upstream)
	}
	return d
}

func gatewayFields(g *gateway.Gateway) fields {
	if g == nil {
		return nil
	}
	f := fields{
		"name": g.Name, "hostname": g.Hostname, "default": g.Default, "timeout": g.Timeout, "global_rate_limit": limitOrNil(g.GlobalLimit),
		"cors": nil, "max_body_bytes": numberOrNil(g.MaxBodyBytes), "revision": numberOrNil(g.Revision),
		"key_headers": g.Requests.AllKeyHeaders(), "allow_encoded_slashes": g.Requests.AllowEncodedSlashes, "cut_streams": !g.Requests.KeepStreams,
	}
	if g.CORS != nil {
		f["cors"] = *g.CORS
	}
	upstreamFields(f, &g.Upstream)
	return f
}

// digestOrNil returns a digest of certificates, which are too long to show.
func digestOrNil(certificates string) any {
	if certificates == "" {
		return nil
	}
	sum := sha256.Sum256([]byte(certificates))
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
