package control

import (
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/ratelimit"
)

// gatewayEdit is a change of a gateway that was read and found right in
// itself: a nil member stays as it is.
type gatewayEdit struct {
	name         *string
	upstreamURL  *string
	hostname     *string // lower case; "" for the one that is made
	globalLimit  *ratelimit.Config
	timeout      *string
	headers      map[string][]byte // sealed; nil stays
	upstreamCA   *string
	cors         **gateway.CORS
	maxBodyBytes *int64

	connection connectionEdit
}

// readInput turns the body of a creation into an edit of an empty gateway: an
// empty member is an absent one.
func (s *Service) readInput(c *Caller, in GatewayInput) (gatewayEdit, error) {
	p := GatewayPatch{
		Name:         Optional[string]{Present: true, Value: in.Name},
		UpstreamURL:  Optional[string]{Present: true, Value: in.UpstreamURL},
		Hostname:     given(in.Hostname),
		GlobalLimit:  given(in.GlobalLimit),
		Timeout:      given(in.Timeout),
		UpstreamCA:   given(in.UpstreamCA),
		MaxBodyBytes: given(in.MaxBodyBytes),

		UpstreamClientCertificate: given(in.UpstreamClientCertificate),
		UpstreamClientKey:         given(in.UpstreamClientKey),
		UpstreamConnectTimeout:    given(in.UpstreamConnectTimeout),
		UpstreamIdleTimeout:       given(in.UpstreamIdleTimeout),
		UpstreamMaxConnections:    given(in.UpstreamMaxConnections),
	}
	if in.UpstreamHeaders != nil {
		p.UpstreamHeaders = Optional[map[string]string]{Present: true, Value: in.UpstreamHeaders}
	}
	if in.CORS != nil {
		p.CORS = Optional[gateway.CORS]{Present: true, Value: *in.CORS}
	}
	return s.readPatch(c, p)
}

func given[T comparable](value T) Optional[T] {
	var zero T
	return Optional[T]{Present: value != zero, Value: value}
}

// readPatch checks each member by itself, and that the account may take the
// hostname.
func (s *Service) readPatch(c *Caller, p GatewayPatch) (e gatewayEdit, err error) {
	if p.Name.Present {
		if err := gateway.CheckName(p.Name.Value); err != nil {
			return e, err
		}
		e.name = &p.Name.Value
	}
	if p.UpstreamURL.Present {
		if _, err := gateway.ParseUpstreamURL(p.UpstreamURL.Value); err != nil {
			return e, err
		}
		e.upstreamURL = &p.UpstreamURL.Value
	}
	if p.Hostname.Present {
		if e.hostname, err = s.readHostname(c, p.Hostname); err != nil {
			return e, err
		}
	}
	if p.GlobalLimit.Present {
		if err := checkGlobalLimit(p.GlobalLimit); err != nil {
			return e, err
		}
		e.globalLimit = &p.GlobalLimit.Value
	}
	if p.Timeout.Present {
		if p.Timeout.Null {
			p.Timeout.Value = gateway.DefaultTimeout
		}
		if err := gateway.CheckTimeout(p.Timeout.Value); err != nil {
			return e, err
		}
		e.timeout = &p.Timeout.Value
	}
	if p.UpstreamHeaders.Present {
		if e.headers, err = s.sealHeaders(p.UpstreamHeaders.Value); err != nil {
			return e, err
		}
	}
	if e.connection, err = s.readConnection(p); err != nil {
		return e, err
	}
	return e, e.readRest(p)
}

func (e *gatewayEdit) readRest(p GatewayPatch) error {
	if p.UpstreamCA.Present {
		if !p.UpstreamCA.Null {
			if err := gateway.CheckUpstreamCA(p.UpstreamCA.Value); err != nil {
				return err
			}
		}
		e.upstreamCA = &p.UpstreamCA.Value
	}
	if p.CORS.Present {
		var cors *gateway.CORS
		if !p.CORS.Null {
			cors = &p.CORS.Value
			if err := cors.Validate(); err != nil {
				return fault.Prefixed("cors", err)
			}
		}
		e.cors = &cors
	}
	if p.MaxBodyBytes.Present {
		if !p.MaxBodyBytes.Null && p.MaxBodyBytes.Value <= 0 {
			return fault.Invalid("max_body_bytes", "must be at least 1, or null for no limit")
		}
		e.maxBodyBytes = &p.MaxBodyBytes.Value
	}
	return nil
}

func (s *Service) readHostname(c *Caller, h Optional[string]) (*string, error) {
	if h.Null {
		return new(string), nil
	}
	name, err := gateway.ParseHostname(h.Value, s.cfg.GatewayDomain)
	if err != nil {
		return nil, err
	}
	if !c.Account.MayTake(name) {
		return nil, fault.Invalid("hostname", "this account may not take %s: the operator names the hostnames that it may take", name)
	}
	return &name, nil
}

func checkGlobalLimit(l Optional[ratelimit.Config]) error {
	if l.Null {
		return nil
	}
	if err := l.Value.Validate(); err != nil {
		return fault.Prefixed("global_rate_limit", err)
	}
	return fault.Prefixed("global_rate_limit", gateway.CheckGlobalLimit(l.Value))
}

func (s *Service) sealHeaders(h map[string]string) (map[string][]byte, error) {
	if err := gateway.CheckUpstreamHeaders(h); err != nil {
		return nil, err
	}
	sealed := make(map[string][]byte, len(h))
	for name, value := range h {
		b, err := s.cfg.Sealer.Seal([]byte(value))
		if err != nil {
			return nil, err
		}
		sealed[name] = b
	}
	return sealed, nil
}

// apply changes g, and checks what concerns several members at once. Its maps
// and pointers are never those of g as it was.
func (e *gatewayEdit) apply(g *gateway.Gateway) error {
	if e.name != nil {
		g.Name = *e.name
	}
	if e.hostname != nil {
		g.Hostname, g.HostGiven = *e.hostname, *e.hostname != ""
	}
	if e.globalLimit != nil {
		g.GlobalLimit = *e.globalLimit
	}
	if e.timeout != nil {
		g.Timeout = *e.timeout
	}
	if e.cors != nil {
		g.CORS = *e.cors
	}
	if e.maxBodyBytes != nil {
		g.MaxBodyBytes = *e.maxBodyBytes
	}
	return e.applyUpstream(g)
}

func (e *gatewayEdit) applyUpstream(g *gateway.Gateway) error {
	if e.upstreamURL != nil && *e.upstreamURL != g.UpstreamURL {
		moved, err := moves(g.UpstreamURL, *e.upstreamURL)
		if err != nil {
			return err
		}
		if moved { // what authenticates to one server is not told to another
			g.UpstreamHeaders = nil
			g.UpstreamClientCertificate, g.UpstreamClientKey = "", nil
		}
		g.UpstreamURL = *e.upstreamURL
	}
	if e.headers != nil {
		g.UpstreamHeaders = e.headers
	}
	if len(g.UpstreamHeaders) == 0 {
		g.UpstreamHeaders = nil
	}
	if e.upstreamCA != nil {
		g.UpstreamCA = *e.upstreamCA
	}
	if g.UpstreamCA != "" {
		if up, err := gateway.ParseUpstreamURL(g.UpstreamURL); err != nil || up.Scheme != "https" {
			return fault.Invalid("upstream_ca", "is only for an https upstream: leave it out, or set it to null")
		}
	}
	return e.connection.apply(g)
}

// moves tells whether two upstream URLs have different origins.
func moves(from, to string) (bool, error) {
	after, err := gateway.ParseUpstreamURL(to)
	if err != nil {
		return false, err
	}
	before, err := gateway.ParseUpstreamURL(from)
	return err != nil || before.Origin() != after.Origin(), nil
}
