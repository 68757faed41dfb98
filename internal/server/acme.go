package server

import (
	"context"
	"crypto/tls"
	"time"

	"github.com/keygate/keygate/internal/acme/order"
	"github.com/keygate/keygate/internal/acme/serve"
	"github.com/keygate/keygate/internal/config"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/secret"
	"github.com/keygate/keygate/internal/snapshot"
)

// certificateExpired is why a server is degraded while a certificate by ACME of the operator's account has expired. Other accounts
// decide themselves whether their hostnames lead here.
const certificateExpired = "certificate_expired"

// issuedCertificates are the certificates by ACME that this node serves. set is nil without --acme-email, and until the store is open; no
// listener serves before.
type issuedCertificates struct{ set *serve.Set }

// Certificate implements certificate.Issued.
func (i *issuedCertificates) Certificate(name string) *tls.Certificate {
	return i.set.Certificate(name)
}

// Challenge implements certificate.Issued.
func (i *issuedCertificates) Challenge(name string) *tls.Certificate { return i.set.Challenge(name) }

// degraded returns certificateExpired or "".
func (i *issuedCertificates) degraded(s *Server) string {
	if i.set != nil && i.set.HasExpired(s.clock.WallTime(), s.operatorID) {
		return certificateExpired
	}
	return ""
}

// openIssued returns what puts certificates by ACME in force, or nil if this node has none.
func (s *Server) openIssued(box *secret.Box) (snapshot.Certificates, error) {
	if !s.cfg.Settings.ACME.On() {
		return nil, nil
	}
	set, err := serve.New(serve.Config{Source: s.db, Open: box.Open, Log: s.log})
	if err != nil {
		return nil, err
	}
	s.issued.set = set
	s.metrics.Labelled("keygate_certificates", "Certificates by ACME, by state: pending, valid, failed or expired.", "state", false, func() map[string]float64 {
		out := map[string]float64{}
		for state, n := range set.States(s.clock.WallTime()) {
			out[string(state)] = float64(n)
		}
		return out
	})
	s.metrics.Gauge("keygate_certificates_first_expiry_timestamp_seconds", "Expiry of the valid certificate by ACME that expires first, in seconds since 1970; 0 without one.", func() float64 {
		first := set.FirstExpiry(s.clock.WallTime())
		if first.IsZero() {
			return 0
		}
		return float64(first.Unix())
	})
	return set, nil
}

// buildOrderer builds what gets certificates by ACME, while this node leads.
func (s *Server) buildOrderer(ops *control.Service, box *secret.Box) (err error) {
	settings := &s.cfg.Settings.ACME
	if !settings.On() {
		return nil
	}
	cfg := order.Config{
		Leads: s.db, Control: ops, Sealer: box, Process: s.process, Directory: settings.Directory, Email: settings.Email, HTTP: settings.HTTPAddr != "",
		UserAgent: "Keygate/" + s.cfg.Version, Resolver: s.cfg.Resolver, Ports: s.cfg.ACMEPorts, Client: s.cfg.ACMEClient, Now: s.clock.WallTime, Log: s.log,
	}
	if settings.BindingKeyID != "" {
		cfg.Binding = &order.Binding{KeyID: settings.BindingKeyID, HMAC: string(settings.Binding)}
	}
	if s.orderer, err = order.New(cfg); err != nil {
		return err
	}
	s.metrics.Labelled("keygate_certificate_orders_total", "Attempts of this node to get a certificate by ACME, by result: issued or failed.", "result", true, func() map[string]float64 {
		n := s.orderer.Stats()
		return map[string]float64{"issued": float64(n.Issued), "failed": float64(n.Failed)}
	})
	return nil
}

// serveValidations serves --acme-http-addr, from now until everything else has stopped.
func (s *Server) serveValidations() {
	if s.listeners.acme == nil {
		return
	}
	known := func(host string) string { return s.follower.Current().KnownHost(host) }
	srv := newHTTPServer(s.leaving(s.issued.set.Handler(known)), s.log)
	srv.ReadTimeout, srv.WriteTimeout, srv.IdleTimeout, srv.MaxHeaderBytes = 10*time.Second, 10*time.Second, 10*time.Second, 16<<10
	slots := s.bound(srv, s.descriptors.acme, "acme-http")
	s.serve("acme-http", func() error { return srv.Serve(slots.Listener(s.listeners.acme)) })
	s.running.Push(func(ctx context.Context) error {
		err := srv.Close()
		ended, cancel := context.WithCancel(ctx)
		cancel() // nothing more is waited for
		slots.Stop(ended)
		return err
	})
}

// examineAuthority checks that the certificate authority can be asked. It makes no account.
func (f *findings) examineAuthority(ctx context.Context, settings *config.ACME) {
	const check = "certificate authority"
	needs, err := order.Examine(ctx, settings.Directory)
	switch {
	case err != nil:
		f.problem(check, "let this machine reach it, trust its root certificate, or correct --acme-directory", "%s cannot be used: %v", settings.Directory, err)
	case needs && settings.BindingKeyID == "":
		f.problem(check, "set --acme-eab-kid and --acme-eab-hmac-file to what it has given you", "%s needs an account of its own", settings.Directory)
	default:
		f.ok(check, "%s can be asked for certificates", settings.Directory)
	}
}
