package control

import (
	"crypto/subtle"
	"fmt"
	"maps"
	"slices"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
)

// putHeaders makes e replace the headers.
func (s *Service) putHeaders(e *gatewayEdit, o Optional[map[string]string]) error {
	if !o.Present {
		return nil
	}
	const field = "upstream_headers"
	sealed, err := s.sealHeaders(e, field, o.Value, gateway.CheckUpstreamHeaders)
	if err != nil {
		return err
	}
	e.set = append(e.set, func(g *gateway.Gateway) (err error) {
		g.Upstream.Headers, err = e.keepHeaders(field, g.Upstream.Headers, sealed, o.Value)
		return err
	})
	return nil
}

// sealHeaders returns the sealed values of headers, which check checks, apart from those that a file keeps.
func (s *Service) sealHeaders(e *gatewayEdit, field string, headers map[string]string, check func(map[string]string) error) (map[string][]byte, error) {
	sealed := make(map[string][]byte, len(headers))
	checked := make(map[string]string, len(headers))
	for name, value := range headers {
		if e.fromFile && value == gateway.Masked {
			checked[name] = "" // any valid value
			continue
		}
		checked[name] = value
		var err error
		if sealed[name], err = s.cfg.Sealer.Seal([]byte(value)); err != nil {
			return nil, fmt.Errorf("seal %s %s: %w", field, name, err)
		}
	}
	return sealed, check(checked)
}

// keepHeaders returns the sealed headers after a change, of which keepSecret keeps some.
func (e *gatewayEdit) keepHeaders(field string, before, sealed map[string][]byte, given map[string]string) (after map[string][]byte, err error) {
	if len(given) > 0 {
		after = make(map[string][]byte, len(given))
	}
	var problems []error
	for _, name := range slices.Sorted(maps.Keys(given)) {
		var err error
		after[name], err = e.keepSecret(field+"."+name, before[name], sealed[name], given[name])
		problems = append(problems, err)
	}
	return after, fault.Join(problems...)
}

// healthHeaders is the field of the headers of checks.
const healthHeaders = "health.headers"

// putHealth makes e set the checks. Without headers, those in force stay.
func (s *Service) putHealth(e *gatewayEdit, setting *gateway.Setting, p *gateway.Patch) error {
	change, err := setting.Change(withUsableHeaders(e, p))
	if change == nil || err != nil {
		return err
	}
	e.put(change)
	headers := p.Health.Value.Headers
	if headers == nil {
		return nil
	}
	return s.putHealthHeaders(e, Optional[map[string]string]{Present: true, Value: headers})
}

// withUsableHeaders returns p with names of headers alone, whose values putHealthHeaders checks.
func withUsableHeaders(e *gatewayEdit, p *gateway.Patch) *gateway.Patch {
	names := *p
	if p.Health.Value.Headers != nil {
		names.Health.Value.Headers = map[string]string{}
		for name := range p.Health.Value.Headers {
			names.Health.Value.Headers[name] = ""
		}
	}
	return &names
}

// putHealthHeaders makes e replace the headers of checks.
func (s *Service) putHealthHeaders(e *gatewayEdit, o Optional[map[string]string]) error {
	if !o.Present {
		return nil
	}
	sealed, err := s.sealHeaders(e, healthHeaders, o.Value, gateway.CheckHealthHeaders)
	if err != nil {
		return err
	}
	e.set = append(e.set, func(g *gateway.Gateway) (err error) {
		h := g.Upstream.Health
		if h == nil || !h.TakesHeaders() {
			if len(o.Value) == 0 {
				return nil
			}
			return fault.Invalid(healthHeaders, "needs checks by path or grpc, which the upstream does not have: set its health first, or leave the headers out")
		}
		next := h.WithoutHeaders()
		next.Sealed, err = e.keepHeaders(healthHeaders, h.Sealed, sealed, o.Value)
		g.Upstream.Health = next
		return err
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

// keepSecret returns the sealed form that a secret has after a change: before, if the change keeps the
// secret, else sealed. sealed is nil for ***, which keeps the secret. A file that gives the same
// secret again keeps it too, so that applying a file a second time changes nothing.
func (e *gatewayEdit) keepSecret(field string, before, sealed []byte, value string) ([]byte, error) {
	if sealed == nil {
		if len(before) == 0 {
			if e.ofUpstream {
				return nil, fault.Invalid(field, "*** keeps the secret that the upstream has, but it has none for this field, or the file gives it other targets, another host or another ca: write ${env:NAME} instead of ***, set that variable, and apply the file with keygate")
			}
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
	return fault.Join(u.CheckResolved(), e.checkTLS(u))
}

// checkTLS checks the settings of TLS that depend on each other.
func (e *gatewayEdit) checkTLS(u *gateway.Upstream) error {
	parsed, err := gateway.ParseUpstreamURL(u.URL)
	isHTTPS := err == nil && parsed.Scheme == "https" || u.URL == "" // of a new gateway, whose file has the URL
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
