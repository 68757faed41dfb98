// Package order gets certificates by ACME and renews them, on the one of all nodes that leads (edge.md, section 3).
//
//	certificates that are due ─► look whether the hostname leads here ─► order ─► challenge, on every node ─► the CA validates
//	                                                                                                            │
//	                             back-off, last_error, certificate.failed ◄── whatever fails ◄──────────────────┤
//	                             in force on every node, certificate.renewed ◄──────────────────────────────────┘
//
// Every write has the epoch of the lead. If the process dies, or another one takes the lead, the attempt counts as one that failed, and
// the next leader begins a new order when its back-off has passed.
package order

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keygate/keygate/internal/acme"
	"github.com/keygate/keygate/internal/canary"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/service"
)

const (
	// Interval is the time between two looks.
	Interval = 5 * time.Second
	// atOnce is how many certificates are seen to at the same time, and most how many in a look.
	atOnce = 4
	most   = 16
	// orderTimeout bounds an attempt, askTimeout a question when a certificate is to be renewed.
	orderTimeout = 3 * time.Minute
	askTimeout   = 20 * time.Second
	// minAsk and maxAsk bound the time until the CA is asked again.
	minAsk = time.Minute
	maxAsk = 6 * time.Hour
	// minLife is how long a certificate is used at least, whatever the CA says, or a third of its life if that is less.
	minLife       = time.Hour
	complainEvery = time.Minute
)

// Leads says which process leads.
type Leads interface {
	// TakeCanaryLead returns the lead, and whether the process has it. It takes the lead if nobody has it, or if the process that has it
	// is not live.
	TakeCanaryLead(ctx context.Context, process string) (l canary.Lead, leads bool, err error)
}

// Control reads and changes certificates (package control). If the process does not lead, or the account is not active, a change is
// fault.Conflict; that of a certificate that is gone is fault.NotFound.
type Control interface {
	DueCertificates(ctx context.Context, limit int) ([]acme.Certificate, error)
	BeginOrder(ctx context.Context, lead canary.Lead, certificateID string, c acme.Challenge) error
	PutChallenge(ctx context.Context, lead canary.Lead, certificateID string, c acme.Challenge) error
	FinishOrder(ctx context.Context, lead canary.Lead, certificateID string, i *acme.Issued) error
	FailOrder(ctx context.Context, lead canary.Lead, certificateID, reason string) error
	NoteRenewal(ctx context.Context, lead canary.Lead, certificateID string, renewAt, askAt time.Time) error
	NoteExpiring(ctx context.Context, lead canary.Lead, certificateID string) error
	CertificateAccount(ctx context.Context, directory string) (*acme.Account, error)
	PutCertificateAccount(ctx context.Context, lead canary.Lead, a *acme.Account) error
}

// Sealer encrypts and decrypts private keys.
type Sealer interface {
	Seal(plain []byte) ([]byte, error)
	Open(sealed []byte) ([]byte, error)
}

// Binding is an account that a CA has outside of ACME (RFC 8555, section 7.3.4).
type Binding struct {
	KeyID string
	HMAC  string // base64url
}

// Config configures an Orderer. Leads, Control, Sealer, Process, Directory and Email are required.
type Config struct {
	Leads   Leads
	Control Control
	Sealer  Sealer
	Process string // names this process among all that ever used the store
	// Directory is the URL of the CA's directory, Email the contact of the account. Binding is nil for none.
	Directory, Email string
	Binding          *Binding
	// HTTP says that hostnames are validated at port 80, by HTTP-01. Otherwise they are at port 443, by TLS-ALPN-01.
	HTTP      bool
	UserAgent string
	// Resolver looks up hostnames; nil means the system's. Ports are those at which a hostname has to lead here; zero means 80 and 443.
	Resolver *net.Resolver
	Ports    Ports
	// Client makes the requests to the CA; nil means one with time-outs.
	Client *http.Client
	Now    func() time.Time // by the store's clock, nearly; nil means time.Now
	Chance func() float64   // from 0 to 1; nil means at random
	Log    *slog.Logger     // nil discards
}

// Ports are the ports at which hostnames are validated.
type Ports struct{ HTTP, TLS int }

// Stats counts attempts since the start.
type Stats struct{ Issued, Failed int64 }

// Orderer gets certificates while its process leads.
type Orderer struct {
	cfg            Config
	group          service.Group
	issued, failed atomic.Int64

	// Used by the looks alone.
	told time.Time

	mu      sync.Mutex
	account *session // nil until it is needed
}

// New returns an Orderer that works after Start.
func New(cfg Config) (*Orderer, error) {
	if cfg.Leads == nil || cfg.Control == nil || cfg.Sealer == nil || cfg.Process == "" || cfg.Directory == "" || cfg.Email == "" {
		return nil, errors.New("acme/order: Config.Leads, Control, Sealer, Process, Directory and Email are required")
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Chance == nil {
		cfg.Chance = rand.Float64
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Client == nil {
		cfg.Client = newClient()
	}
	if cfg.Ports.HTTP == 0 {
		cfg.Ports.HTTP = 80
	}
	if cfg.Ports.TLS == 0 {
		cfg.Ports.TLS = 443
	}
	return &Orderer{cfg: cfg}, nil
}

// newClient returns a client for requests to the CA. A proxy of the environment is used, as for any other service.
func newClient() *http.Client {
	return &http.Client{
		Timeout: time.Minute,
		Transport: &http.Transport{
			Proxy:       http.ProxyFromEnvironment,
			DialContext: (&net.Dialer{Timeout: 10 * time.Second}).DialContext, TLSHandshakeTimeout: 10 * time.Second, ResponseHeaderTimeout: 30 * time.Second,
			MaxResponseHeaderBytes: 64 << 10, MaxIdleConns: atOnce, IdleConnTimeout: time.Minute, ForceAttemptHTTP2: true,
		},
	}
}

// Start begins to look, until Stop.
func (o *Orderer) Start(context.Context) error {
	err := o.group.Start(func(ctx context.Context) {
		service.Every(ctx, Interval, func(ctx context.Context) {
			if now, err := o.cfg.Now(), o.Look(ctx); err != nil && ctx.Err() == nil && now.Sub(o.told).Abs() >= complainEvery {
				o.told = now
				o.cfg.Log.Warn("looking after certificates failed; it is retried", "error", err)
			}
		})
	})
	if err != nil {
		return fmt.Errorf("start ordering certificates: %w", err)
	}
	return nil
}

// Stop ends the attempts under way, each of which then counts as one that failed.
func (o *Orderer) Stop(ctx context.Context) error {
	err := o.group.Stop(ctx)
	o.cfg.Client.CloseIdleConnections()
	if err != nil {
		return fmt.Errorf("stop ordering certificates: %w", err)
	}
	return nil
}

// Stats returns the counts of attempts.
func (o *Orderer) Stats() Stats { return Stats{Issued: o.issued.Load(), Failed: o.failed.Load()} }

// Look sees to the certificates for which something is due, if this process leads or can take the lead, and returns when that is done.
// Calls of it must not overlap. An error of one certificate does not keep others from being seen to.
func (o *Orderer) Look(ctx context.Context) error {
	lead, leads, err := o.cfg.Leads.TakeCanaryLead(ctx, o.cfg.Process)
	if err != nil {
		return fmt.Errorf("take the lead: %w", err)
	}
	if !leads {
		return nil
	}
	due, err := o.cfg.Control.DueCertificates(ctx, most)
	if err != nil {
		return fmt.Errorf("read due certificates: %w", err)
	}
	errs := make([]error, len(due))
	slots := make(chan struct{}, atOnce)
	var group sync.WaitGroup
	for i := range due {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			errs[i] = unlessGone(o.see(ctx, lead, &due[i]))
		})
	}
	group.Wait()
	return errors.Join(errs...)
}

// unlessGone returns err, or nil if the certificate is gone, its account is not active, or another process has taken the lead.
func unlessGone(err error) error {
	switch fault.CodeOf(err) {
	case fault.Conflict, fault.NotFound:
		return nil
	}
	return err
}

// see does what is due for a certificate.
func (o *Orderer) see(ctx context.Context, lead canary.Lead, c *acme.Certificate) error {
	now := o.cfg.Now()
	if at := c.ExpiringAt(); !at.IsZero() && !now.Before(at) {
		if err := o.cfg.Control.NoteExpiring(ctx, lead, c.ID); err != nil {
			return err
		}
	}
	switch {
	case !now.Before(c.NextAt):
		return o.attempt(ctx, lead, c)
	case !c.AskAt.IsZero() && !now.Before(c.AskAt):
		return o.ask(ctx, lead, c)
	}
	return nil
}

// attempt tries to get a certificate.
func (o *Orderer) attempt(ctx context.Context, lead canary.Lead, c *acme.Certificate) error {
	ours, cancel := context.WithTimeout(ctx, orderTimeout)
	defer cancel()
	looked := newLook()
	if err := o.cfg.Control.BeginOrder(ctx, lead, c.ID, looked); err != nil {
		return err
	}
	issued, err := o.obtain(ours, lead, c, looked)
	if err == nil {
		err = o.cfg.Control.FinishOrder(ctx, lead, c.ID, issued)
		if err == nil {
			o.issued.Add(1)
			o.cfg.Log.Info("certificate obtained", "hostname", c.Hostname, "until", issued.NotAfter.UTC(), "renewal", issued.RenewAt.UTC())
		}
		return err
	}
	if ctx.Err() != nil || unlessGone(err) == nil {
		return err
	}
	o.failed.Add(1)
	o.cfg.Log.Warn("a certificate could not be obtained; it is tried again", "hostname", c.Hostname, "certificate_id", c.ID, "error", err)
	return o.cfg.Control.FailOrder(ctx, lead, c.ID, reasonOf(err))
}

// obtain gets a certificate, if the hostname leads here.
func (o *Orderer) obtain(ctx context.Context, lead canary.Lead, c *acme.Certificate, looked acme.Challenge) (*acme.Issued, error) {
	if err := o.look(ctx, c.Hostname, looked); err != nil {
		return nil, err
	}
	with, err := o.session(ctx, lead)
	if err != nil {
		return nil, err
	}
	return o.order(ctx, with, lead, c)
}
