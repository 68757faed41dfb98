package control

import (
	"bytes"
	"crypto/subtle"
	"fmt"
	"maps"
	"slices"

	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
)

// UpstreamPatch changes how a gateway connects to its upstream, as part of a GatewayPatch.
type UpstreamPatch struct {
	URL               Optional[string]
	Headers           Optional[map[string]string] // replaces the whole map
	CA                Optional[string]
	ClientCertificate Optional[string]
	ClientKey         Optional[string]
	ConnectTimeout    Optional[string]
	IdleTimeout       Optional[string]
	MaxConnectionAge  Optional[string]
	MaxConnections    Optional[int64]
}

// putUpstream makes e set what p names. The URL comes first: a new origin drops
// headers and certificate, and p may give new ones.
func (s *Service) putUpstream(e *gatewayEdit, p UpstreamPatch) error {
	e.newClientPair = p.ClientCertificate.Present || p.ClientKey.Present
	return fault.Join(
		putURL(e, p.URL),
		s.putHeaders(e, p.Headers),
		put(e, p.CA, gateway.CheckUpstreamCA, func(g *gateway.Gateway) *string { return &g.Upstream.TLS.CA }),
		put(e, p.ClientCertificate, gateway.CheckUpstreamClientCertificate, func(g *gateway.Gateway) *string { return &g.Upstream.TLS.ClientCertificate }),
		s.putClientKey(e, p.ClientKey),
		put(e, p.ConnectTimeout, gateway.CheckUpstreamConnectTimeout, func(g *gateway.Gateway) *string { return &g.Upstream.Timeouts.Connect }),
		put(e, p.IdleTimeout, gateway.CheckUpstreamIdleTimeout, func(g *gateway.Gateway) *string { return &g.Upstream.Timeouts.Idle }),
		put(e, p.MaxConnectionAge, gateway.CheckUpstreamMaxConnectionAge, func(g *gateway.Gateway) *string { return &g.Upstream.MaxConnectionAge }),
		put(e, p.MaxConnections, gateway.CheckUpstreamMaxConnections, func(g *gateway.Gateway) *int64 { return &g.Upstream.MaxConnections }),
	)
}

func putURL(e *gatewayEdit, o Optional[string]) error {
	if !o.Present {
		return nil
	}
	after, err := gateway.ParseUpstreamURL(o.Value)
	if err != nil {
		return err
	}
	e.put(func(g *gateway.Gateway) {
		u := &g.Upstream
		if u.URL == o.Value {
			return
		}
		// Credentials for one server are not sent to another.
		if before, err := gateway.ParseUpstreamURL(u.URL); err != nil || before.Origin() != after.Origin() {
			u.Headers, u.TLS.ClientCertificate, u.TLS.ClientKey = nil, "", nil
		}
		u.URL = o.Value
	})
	return nil
}

// putHeaders makes e replace the headers.
func (s *Service) putHeaders(e *gatewayEdit, o Optional[map[string]string]) error {
	if !o.Present {
		return nil
	}
	sealed := make(map[string][]byte, len(o.Value))
	checked := make(map[string]string, len(o.Value))
	for name, value := range o.Value {
		if e.fromFile && value == gateway.Masked {
			checked[name] = "" // any valid value
			continue
		}
		checked[name] = value
		var err error
		if sealed[name], err = s.cfg.Sealer.Seal([]byte(value)); err != nil {
			return fmt.Errorf("seal upstream header %s: %w", name, err)
		}
	}
	if err := gateway.CheckUpstreamHeaders(checked); err != nil {
		return err
	}
	e.set = append(e.set, func(g *gateway.Gateway) error {
		before := g.Upstream.Headers
		var after map[string][]byte
		if len(o.Value) > 0 {
			after = make(map[string][]byte, len(o.Value))
		}
		var problems []error
		for _, name := range slices.Sorted(maps.Keys(o.Value)) {
			var err error
			after[name], err = e.keepSecret("upstream_headers."+name, before[name], sealed[name], o.Value[name])
			problems = append(problems, err)
		}
		g.Upstream.Headers = after
		return fault.Join(problems...)
	})
	return nil
}

func (s *Service) putClientKey(e *gatewayEdit, o Optional[string]) error {
	if !o.Present {
		return nil
	}
	if o.Null {
		e.put(func(g *gateway.Gateway) { g.Upstream.TLS.ClientKey = nil })
		return nil
	}
	var sealed []byte
	if !e.fromFile || o.Value != gateway.Masked {
		if err := gateway.CheckUpstreamClientKey(o.Value); err != nil {
			return err
		}
		var err error
		if sealed, err = s.cfg.Sealer.Seal([]byte(o.Value)); err != nil {
			return fmt.Errorf("seal upstream_client_key: %w", err)
		}
	}
	e.set = append(e.set, func(g *gateway.Gateway) (err error) {
		key := &g.Upstream.TLS.ClientKey
		*key, err = e.keepSecret("upstream_client_key", *key, sealed, o.Value)
		return err
	})
	return nil
}

// keepSecret returns the sealed form of a secret after a change: before, if the change keeps it, and
// otherwise sealed. sealed is nil for ***, which keeps whatever secret there is. A file that gives the
// same secret again keeps it too, so that applying a file twice changes nothing the second time.
func (e *gatewayEdit) keepSecret(field string, before, sealed []byte, value string) ([]byte, error) {
	if sealed == nil {
		if len(before) == 0 {
			return nil, fault.Invalid(field, "*** keeps the secret that the gateway has, but it has none for this field and origin of upstream_url: write ${env:NAME} instead of ***, set that variable, and apply the file with keygate")
		}
		return before, nil
	}
	if e.fromFile && len(before) > 0 {
		if plain, err := e.open(before); err == nil && subtle.ConstantTimeCompare(plain, []byte(value)) == 1 {
			return before, nil
		}
	}
	return sealed, nil
}

// checkUpstream checks the settings that depend on each other.
func (e *gatewayEdit) checkUpstream(u *gateway.Upstream) error {
	parsed, err := gateway.ParseUpstreamURL(u.URL)
	isHTTPS := err == nil && parsed.Scheme == "https"
	if u.TLS.CA != "" && !isHTTPS {
		return fault.Invalid("upstream_ca", "needs an https upstream: leave it out, or set it to null")
	}
	switch certificate, key := u.TLS.ClientCertificate != "", len(u.TLS.ClientKey) > 0; {
	case !certificate && !key:
		return nil
	case !certificate:
		return fault.Invalid("upstream_client_certificate", "is required with upstream_client_key: give both, or set both to null")
	case !key:
		return fault.Invalid("upstream_client_key", "is required with upstream_client_certificate: give both, or set both to null")
	case !isHTTPS:
		return fault.Invalid("upstream_client_certificate", "needs an https upstream: leave it and upstream_client_key out, or set both to null")
	case !e.newClientPair:
		return nil
	}
	plain, err := e.open(u.TLS.ClientKey)
	if err != nil {
		return fault.Invalid("upstream_client_key", "was encrypted with another secret key, so it cannot be compared with the certificate: give it again")
	}
	return gateway.CheckUpstreamClientPair(u.TLS.ClientCertificate, string(plain))
}

// upstreamFields adds the settings of u to a gateway's fields in the audit log.
func upstreamFields(f fields, u *gateway.Upstream) {
	maps.Copy(f, fields{
		"upstream_url":                u.URL,
		"upstream_headers":            maskedHeaders(u.Headers),
		"upstream_ca":                 digestOrNil(u.TLS.CA),
		"upstream_client_certificate": digestOrNil(u.TLS.ClientCertificate),
		"upstream_client_key":         maskedKey(u.TLS.ClientKey),
		"upstream_connect_timeout":    orNil(u.Timeouts.Connect),
		"upstream_idle_timeout":       orNil(u.Timeouts.Idle),
		"upstream_max_connection_age": orNil(u.MaxConnectionAge),
		"upstream_max_connections":    numberOrNil(u.MaxConnections),
	})
}

// secretsDiff adds to d the secrets that changed: masked, the old and the new value
// read the same.
func secretsDiff(d audit.Diff, before, after *gateway.Upstream) {
	if !maps.EqualFunc(before.Headers, after.Headers, bytes.Equal) {
		d["upstream_headers"] = [2]any{maskedHeaders(before.Headers), maskedHeaders(after.Headers)}
	}
	if !bytes.Equal(before.TLS.ClientKey, after.TLS.ClientKey) {
		d["upstream_client_key"] = [2]any{maskedKey(before.TLS.ClientKey), maskedKey(after.TLS.ClientKey)}
	}
}

func maskedHeaders(headers map[string][]byte) any {
	if len(headers) == 0 {
		return nil
	}
	m := make(map[string]string, len(headers))
	for name := range headers {
		m[name] = gateway.Masked
	}
	return m
}

func maskedKey(key []byte) any {
	if len(key) == 0 {
		return nil
	}
	return gateway.Masked
}
