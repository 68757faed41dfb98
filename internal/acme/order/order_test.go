package order

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/keygate/keygate/internal/acme"
	"github.com/keygate/keygate/internal/acme/serve"
	"github.com/keygate/keygate/internal/canary"
	"github.com/keygate/keygate/internal/certificate"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/keygatetest/acmetest"
)

func TestMain(m *testing.M) {
	// Pebble's validator has no end.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/letsencrypt/pebble/v2/va.VAImpl.processTasks"), goleak.IgnoreAnyFunction("github.com/letsencrypt/pebble/v2/va.(*VAImpl).processTasks"))
}

// memory is the store of a test, and Control, Leads and Sealer.
type memory struct {
	mu       sync.Mutex
	now      time.Time
	lead     canary.Lead
	records  map[string]*acme.Certificate
	account  *acme.Account
	expiring []string
	set      *serve.Set
}

func newMemory(t *testing.T, hostnames ...string) *memory {
	t.Helper()
	m := &memory{now: time.Now(), lead: canary.Lead{Claimant: "p", Epoch: 1}, records: map[string]*acme.Certificate{}}
	for _, name := range hostnames {
		m.records[name] = &acme.Certificate{ID: name, AccountID: "a", GatewayID: "g", Hostname: name, Progress: acme.Progress{NextAt: m.now}}
	}
	var err error
	if m.set, err = serve.New(serve.Config{Source: m, Open: m.Open}); err != nil {
		t.Fatal(err)
	}
	if err := m.set.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	return m
}

func (m *memory) Now() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.now
}

func (m *memory) advanceTo(at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now = at
}

func (m *memory) Seal(plain []byte) ([]byte, error) { return append([]byte("sealed"), plain...), nil }

func (m *memory) Open(sealed []byte) ([]byte, error) {
	return []byte(strings.TrimPrefix(string(sealed), "sealed")), nil
}

func (m *memory) EachCertificate(_ context.Context, f func(*acme.Certificate), _ func(string, error)) error {
	m.mu.Lock()
	list := maps.Clone(m.records)
	m.mu.Unlock()
	for _, c := range list {
		f(c)
	}
	return nil
}

func (m *memory) ServedCertificate(_ context.Context, id string) (*acme.Certificate, error, error) {
	c := m.get(id)
	return &c, nil, nil
}

func (m *memory) get(id string) acme.Certificate {
	m.mu.Lock()
	defer m.mu.Unlock()
	return *m.records[id]
}

func (m *memory) TakeCanaryLead(context.Context, string) (canary.Lead, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lead, m.lead.Claimant == "p", nil
}

func (m *memory) DueCertificates(_ context.Context, limit int) (due []acme.Certificate, _ error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.records {
		if !c.DueAt().After(m.now) && len(due) < limit {
			due = append(due, *c)
		}
	}
	return due, nil
}

// change changes a record and has it served, as every node does before the call returns.
func (m *memory) change(ctx context.Context, l canary.Lead, id string, change func(c *acme.Certificate)) error {
	m.mu.Lock()
	if l != m.lead {
		m.mu.Unlock()
		return fault.New(fault.Conflict, "another process leads")
	}
	next := *m.records[id]
	change(&next)
	m.records[id] = &next
	m.mu.Unlock()
	return m.set.Read(ctx, id)
}

func (m *memory) BeginOrder(ctx context.Context, l canary.Lead, id string, c acme.Challenge) error {
	return m.change(ctx, l, id, func(of *acme.Certificate) { of.Begin(m.now, c) })
}

func (m *memory) PutChallenge(ctx context.Context, l canary.Lead, id string, c acme.Challenge) error {
	return m.change(ctx, l, id, func(of *acme.Certificate) { of.Challenge = c })
}

func (m *memory) FinishOrder(ctx context.Context, l canary.Lead, id string, i *acme.Issued) error {
	return m.change(ctx, l, id, func(of *acme.Certificate) { of.Put(m.now, i) })
}

func (m *memory) FailOrder(ctx context.Context, l canary.Lead, id, reason string) error {
	return m.change(ctx, l, id, func(of *acme.Certificate) { of.Fail(m.now, reason) })
}

func (m *memory) NoteRenewal(ctx context.Context, l canary.Lead, id string, renewAt, askAt time.Time) error {
	return m.change(ctx, l, id, func(of *acme.Certificate) {
		if of.AskAt = askAt; !renewAt.IsZero() {
			of.RenewAt, of.NextAt = renewAt, renewAt
		}
	})
}

func (m *memory) NoteExpiring(ctx context.Context, l canary.Lead, id string) error {
	return m.change(ctx, l, id, func(of *acme.Certificate) {
		of.ExpiryRaised = true
		m.expiring = append(m.expiring, id)
	})
}

func (m *memory) CertificateAccount(context.Context, string) (*acme.Account, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.account == nil {
		return nil, fault.Missing("account")
	}
	return m.account, nil
}

func (m *memory) PutCertificateAccount(_ context.Context, _ canary.Lead, a *acme.Account) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.account = a
	return nil
}

// installation is a memory, a CA, and listeners for both kinds of validation.
type installation struct {
	*memory
	ca     *acmetest.CA
	config Config
}

func portOf(t *testing.T, a net.Addr) int {
	t.Helper()
	return int(netip.MustParseAddrPort(a.String()).Port())
}

func start(t *testing.T, o acmetest.Options, hostnames ...string) *installation {
	t.Helper()
	m := newMemory(t, hostnames...)
	web := httptest.NewServer(m.set.Handler(func(host string) string {
		name, _, _ := strings.Cut(host, ":")
		return name
	}))
	t.Cleanup(web.Close)
	certificates, err := certificate.Open(certificate.Config{Issued: m.set, CertSetting: "tls-cert", KeySetting: "tls-key"})
	if err != nil {
		t.Fatal(err)
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", certificates.TLS("http/1.1"))
	if err != nil {
		t.Fatal(err)
	}
	var conns sync.WaitGroup
	conns.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			conns.Go(func() {
				_ = c.SetDeadline(time.Now().Add(time.Minute))
				_ = c.(*tls.Conn).Handshake()
				_ = c.Close()
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		conns.Wait()
	})
	o.HTTPPort, o.TLSPort = portOf(t, web.Listener.Addr()), portOf(t, l.Addr())
	i := &installation{memory: m, ca: acmetest.Start(t, o)}
	for _, name := range hostnames {
		i.ca.Zone.SetHost(name, "127.0.0.1")
	}
	i.config = Config{
		Leads: m, Control: m, Sealer: m, Process: "p", Directory: i.ca.Directory, Email: "ops@example.com", HTTP: true, Resolver: i.ca.Zone.Resolver(),
		Ports: Ports{HTTP: o.HTTPPort, TLS: o.TLSPort}, Client: i.ca.Client, Now: m.Now,
	}
	return i
}

func (i *installation) orderer(t *testing.T) *Orderer {
	t.Helper()
	o, err := New(i.config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(i.ca.Client.CloseIdleConnections)
	return o
}

func look(t *testing.T, o *Orderer) {
	t.Helper()
	if err := o.Look(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Guarantee: a certificate is ordered once, and renewed at its time, not before; the account with the CA is made once, also over starts of
// the process. The old certificate is served until the new one is. All of this works by both kinds of validation, although the CA refuses
// some nonces and reuses some authorizations.
func TestOrderAndRenewal(t *testing.T) {
	for name, web := range map[string]bool{"HTTP-01": true, "TLS-ALPN-01": false} {
		t.Run(name, func(t *testing.T) {
			i := start(t, acmetest.Options{}, "a.example.com", "b.example.com")
			i.config.HTTP = web
			o := i.orderer(t)
			look(t, o)
			first := i.get("a.example.com")
			if first.Chain == "" || first.LastError != "" || first.Failures != 0 || i.get("b.example.com").Chain == "" {
				t.Fatalf("got %+v", first)
			}
			account := i.account.Location
			look(t, o)
			i.advanceTo(first.RenewAt.Add(-time.Minute))
			look(t, o)
			if i.get("a.example.com").Chain != first.Chain {
				t.Fatal("it was renewed before its time")
			}
			due := i.get("a.example.com")
			i.advanceTo(due.NextAt)
			look(t, i.orderer(t)) // of a process that has started again
			second := i.get("a.example.com")
			if second.Chain == first.Chain || bytes.Equal(second.Key, first.Key) || !second.IssuedAt.Equal(due.NextAt) {
				t.Fatalf("it was not renewed: %+v", second)
			}
			if i.account.Location != account {
				t.Error("there is another account with the CA")
			}
			served := i.set.Certificate("a.example.com")
			leaf, err := leafOf(second.Chain)
			if err != nil || served == nil || !served.Leaf.Equal(leaf) {
				t.Error("the new certificate is not served")
			}
		})
	}
}

// Guarantee: an account is bound to the one that the CA has given out of band.
func TestBinding(t *testing.T) {
	shared := base64.RawURLEncoding.EncodeToString(bytes.Repeat([]byte("k"), 48))
	i := start(t, acmetest.Options{Binding: shared}, "a.example.com")
	look(t, i.orderer(t))
	if c := i.get("a.example.com"); c.Chain != "" || !strings.Contains(c.LastError, "the certificate authority says: ") {
		t.Errorf("without a binding: got %+v", c)
	}
	i.advanceTo(i.get("a.example.com").NextAt)
	i.config.Binding = &Binding{KeyID: "kid-1", HMAC: shared}
	look(t, i.orderer(t))
	if c := i.get("a.example.com"); c.Chain == "" {
		t.Errorf("with a binding: got %+v", c)
	}
}

// Guarantee: if the CA does not know the account any more, another one is made.
func TestForgottenAccount(t *testing.T) {
	i := start(t, acmetest.Options{}, "a.example.com")
	o := i.orderer(t)
	_, sealed, err := o.newKey()
	if err != nil {
		t.Fatal(err)
	}
	i.account = &acme.Account{Directory: i.ca.Directory, Key: sealed, Location: strings.Replace(i.ca.Directory, "/dir", "/my-account/none", 1)}
	for range 2 {
		look(t, o)
		i.advanceTo(i.get("a.example.com").NextAt)
	}
	if c := i.get("a.example.com"); c.Chain == "" {
		t.Errorf("got %+v", c)
	}
}

// Guarantee: the error of a look does not say what is at an address that a tenant has chosen, nor anything of what it sends, and the
// authority is not asked.
func TestLookShowsNothing(t *testing.T) {
	i := start(t, acmetest.Options{}, "a.example.com")
	open := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("internal secret")) }))
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	t.Cleanup(open.Close)
	texts := map[string]bool{}
	for _, web := range []bool{true, false} {
		for _, at := range []*httptest.Server{open, closed} {
			i.config.HTTP = web
			i.config.Ports = Ports{portOf(t, at.Listener.Addr()), portOf(t, at.Listener.Addr())}
			look(t, i.orderer(t))
			c := i.get("a.example.com")
			for _, port := range strings.FieldsFunc(c.LastError, func(r rune) bool { return r < '0' || r > '9' }) {
				c.LastError = strings.ReplaceAll(c.LastError, port, "N")
			}
			texts[c.LastError] = true
			i.advanceTo(c.NextAt)
		}
	}
	if len(texts) != 1 || i.ca.Orders() != 0 {
		t.Errorf("got the errors %v, and %d orders", texts, i.ca.Orders())
	}
}

// Guarantee: a process that loses the lead in an order stores nothing of it.
func TestLostLead(t *testing.T) {
	i := start(t, acmetest.Options{}, "a.example.com")
	i.ca.Hold()
	done := make(chan error, 1)
	o := i.orderer(t)
	go func() { done <- o.Look(context.WithoutCancel(t.Context())) }()
	select {
	case <-i.ca.Arrived():
	case err := <-done:
		t.Fatalf("the order has ended: %v, %+v", err, i.get("a.example.com"))
	}
	i.mu.Lock()
	i.lead = canary.Lead{Claimant: "q", Epoch: 2}
	i.mu.Unlock()
	i.ca.Release()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if c := i.get("a.example.com"); c.Chain != "" || c.Failures != 1 {
		t.Errorf("got %+v", c)
	}
}

// Guarantee: a certificate that the CA cannot renew is reported once before its end.
func TestExpiring(t *testing.T) {
	i := start(t, acmetest.Options{}, "a.example.com")
	o := i.orderer(t)
	look(t, o)
	i.ca.Zone.Remove("a.example.com")
	c := i.get("a.example.com")
	i.advanceTo(c.ExpiringAt())
	for range 3 {
		look(t, o)
		i.advanceTo(i.get("a.example.com").NextAt)
	}
	if len(i.expiring) != 1 {
		t.Errorf("it was reported %d times", len(i.expiring))
	}
	if now := i.get("a.example.com"); now.Chain != c.Chain || now.LastError == "" {
		t.Errorf("got %+v", now)
	}
}

// Guarantee: whatever an authority says, a certificate is used for an hour, or a third of its life, and is renewed before its end.
func TestRenewalTimesAreBounded(t *testing.T) {
	issued := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, life := range []time.Duration{time.Hour, 24 * time.Hour, 90 * 24 * time.Hour} {
		leaf := &x509.Certificate{NotBefore: issued.Add(-time.Hour), NotAfter: issued.Add(life)}
		for _, at := range []time.Time{{}, issued, issued.Add(life / 2), issued.Add(2 * life)} {
			got := used(at, issued, leaf)
			if got.Before(issued.Add(min(time.Hour, life/3))) || got.After(issued.Add(life-life/10)) {
				t.Errorf("of %v, asked for %v: got %v", life, at, got)
			}
		}
	}
}

// Guarantee: a certificate that cannot serve the hostname is not taken.
func TestCertificateThatDoesNotFit(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	good := x509.Certificate{PublicKey: &key.PublicKey, DNSNames: []string{"a.example.com"}, NotAfter: now.Add(time.Hour)}
	if err := fits(&good, key, "a.example.com", now); err != nil {
		t.Error(err)
	}
	for what, err := range map[string]error{
		"another key": fits(&good, other, "a.example.com", now), "another hostname": fits(&good, key, "b.example.com", now),
		"an end": fits(&good, key, "a.example.com", now.Add(time.Hour)),
	} {
		if err == nil {
			t.Errorf("a certificate with %s is taken", what)
		}
	}
	for _, err := range []error{errors.New("dial tcp 10.0.0.1: connection refused"), &publicError{"text", errors.New("10.0.0.1")}} {
		if strings.Contains(reasonOf(err), "10.0.0.1") {
			t.Errorf("the account is shown %q", reasonOf(err))
		}
	}
}

// Guarantee: an authority that can be asked for certificates is found, with whether its accounts need a binding; another server is not.
func TestExamine(t *testing.T) {
	for shared, want := range map[string]bool{"": false, "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W": true} {
		ca := acmetest.Start(t, acmetest.Options{Binding: shared, HTTPPort: 1, TLSPort: 1})
		if _, err := Examine(t.Context(), ca.Directory); err == nil {
			t.Error("an authority that the system does not trust is taken")
		}
		if needs, err := examine(t.Context(), ca.Directory, ca.Client); err != nil || needs != want {
			t.Errorf("got %v, %v, want %v", needs, err, want)
		}
		if ca.Orders() != 0 {
			t.Error("it is asked for a certificate")
		}
	}
	for _, text := range []string{"{}", "no JSON", `{"newNonce": "https://x/"}`} {
		other := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(text)) }))
		if _, err := examine(t.Context(), other.URL, other.Client()); err == nil {
			t.Errorf("a server that says %s is taken", text)
		}
		other.Close()
	}
}
