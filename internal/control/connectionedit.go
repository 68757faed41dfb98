package control

import (
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
)

// connectionEdit is a change of how a gateway connects to its upstream: a nil
// member stays as it is.
type connectionEdit struct {
	certificate    *string
	key            *[]byte // sealed
	connectTimeout *string
	idleTimeout    *string
	maxConnections *int64

	open func(sealed []byte) ([]byte, error)
}

// readConnection checks each member by itself.
func (s *Service) readConnection(p GatewayPatch) (connectionEdit, error) {
	e := connectionEdit{open: s.cfg.Sealer.Open}
	var err error
	if e.certificate, err = read(p.UpstreamClientCertificate, gateway.CheckUpstreamClientCertificate); err != nil {
		return e, err
	}
	key, err := read(p.UpstreamClientKey, gateway.CheckUpstreamClientKey)
	if err != nil {
		return e, err
	}
	if key != nil {
		e.key = new([]byte)
		if *key != "" {
			if *e.key, err = s.cfg.Sealer.Seal([]byte(*key)); err != nil {
				return e, err
			}
		}
	}
	if e.connectTimeout, err = read(p.UpstreamConnectTimeout, gateway.CheckUpstreamConnectTimeout); err != nil {
		return e, err
	}
	if e.idleTimeout, err = read(p.UpstreamIdleTimeout, gateway.CheckUpstreamIdleTimeout); err != nil {
		return e, err
	}
	e.maxConnections, err = read(p.UpstreamMaxConnections, gateway.CheckUpstreamMaxConnections)
	return e, err
}

// read returns what a member is to become, nil if it stays: the zero value for
// null, else what check lets pass.
func read[T any](o Optional[T], check func(T) error) (*T, error) {
	switch {
	case !o.Present:
		return nil, nil
	case o.Null:
		return new(T), nil
	default:
		return &o.Value, check(o.Value)
	}
}

// apply changes g, and checks what concerns several members at once.
func (e *connectionEdit) apply(g *gateway.Gateway) error {
	if e.connectTimeout != nil {
		g.UpstreamConnectTimeout = *e.connectTimeout
	}
	if e.idleTimeout != nil {
		g.UpstreamIdleTimeout = *e.idleTimeout
	}
	if e.maxConnections != nil {
		g.UpstreamMaxConnections = *e.maxConnections
	}
	if e.certificate != nil {
		g.UpstreamClientCertificate = *e.certificate
	}
	if e.key != nil {
		g.UpstreamClientKey = *e.key
	}
	switch certificate, key := g.UpstreamClientCertificate != "", len(g.UpstreamClientKey) > 0; {
	case !certificate && !key:
		return nil
	case !certificate:
		return fault.Invalid("upstream_client_certificate", "is required beside upstream_client_key: give both, or set both to null")
	case !key:
		return fault.Invalid("upstream_client_key", "is required beside upstream_client_certificate: give both, or set both to null")
	}
	if up, err := gateway.ParseUpstreamURL(g.UpstreamURL); err != nil || up.Scheme != "https" {
		return fault.Invalid("upstream_client_certificate", "is only for an https upstream: leave it and upstream_client_key out, or set both to null")
	}
	if e.certificate == nil && e.key == nil {
		return nil
	}
	plain, err := e.open(g.UpstreamClientKey)
	if err != nil {
		return fault.Invalid("upstream_client_key", "is stored under another secret key, and cannot be held against the certificate: give it again")
	}
	return gateway.CheckUpstreamClientPair(g.UpstreamClientCertificate, string(plain))
}
