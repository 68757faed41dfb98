package order

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
	"unicode"

	"github.com/mholt/acmez/v3"
	protocol "github.com/mholt/acmez/v3/acme"

	"github.com/keygate/keygate/internal/acme"
	"github.com/keygate/keygate/internal/canary"
	"github.com/keygate/keygate/internal/fault"
)

// session is the account with the CA, and what speaks with it.
type session struct {
	account protocol.Account
	client  *protocol.Client
}

// Examine asks a CA for its directory, and returns whether accounts need a Binding. It changes nothing there.
func Examine(ctx context.Context, directory string) (needsBinding bool, err error) {
	client := newClient()
	defer client.CloseIdleConnections()
	return examine(ctx, directory, client)
}

func examine(ctx context.Context, directory string, with *http.Client) (needsBinding bool, err error) {
	found, err := (&protocol.Client{Directory: directory, HTTPClient: with}).GetDirectory(ctx)
	switch {
	case err != nil:
		return false, err
	case found.NewOrder == "" || found.NewAccount == "" || found.NewNonce == "":
		return false, errors.New("it is no directory of an authority that speaks ACME")
	}
	return found.Meta != nil && found.Meta.ExternalAccountRequired, nil
}

// session returns the account with the CA. It is made when it is needed first, and by the process that leads.
func (o *Orderer) session(ctx context.Context, lead canary.Lead) (*session, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.account != nil {
		return o.account, nil
	}
	stored, err := o.cfg.Control.CertificateAccount(ctx, o.cfg.Directory)
	if err != nil && fault.CodeOf(err) != fault.NotFound {
		return nil, err
	}
	with := &session{client: &protocol.Client{Directory: o.cfg.Directory, HTTPClient: o.cfg.Client, UserAgent: o.cfg.UserAgent, PollTimeout: orderTimeout}}
	if err == nil {
		key, err := o.openKey(stored.Key)
		if err != nil {
			return nil, fmt.Errorf("read the key of the account with the certificate authority: %w", err)
		}
		with.account = protocol.Account{Status: protocol.StatusValid, Location: stored.Location, PrivateKey: key}
	} else if err := o.register(ctx, with, lead); err != nil {
		return nil, err
	}
	o.account = with
	return with, nil
}

// register makes an account with the CA, and stores it.
func (o *Orderer) register(ctx context.Context, with *session, lead canary.Lead) error {
	key, sealed, err := o.newKey()
	if err != nil {
		return err
	}
	with.account = protocol.Account{Contact: []string{"mailto:" + o.cfg.Email}, TermsOfServiceAgreed: true, PrivateKey: key}
	if b := o.cfg.Binding; b != nil {
		if err := with.account.SetExternalAccountBinding(ctx, with.client, protocol.EAB{KeyID: b.KeyID, MACKey: b.HMAC}); err != nil {
			return fmt.Errorf("bind the account with the certificate authority: %w", err)
		}
	}
	if with.account, err = with.client.NewAccount(ctx, with.account); err != nil {
		return fmt.Errorf("make an account with the certificate authority: %w", err)
	}
	with.account.Status = protocol.StatusValid
	return o.cfg.Control.PutCertificateAccount(ctx, lead, &acme.Account{Directory: o.cfg.Directory, Key: sealed, Location: with.account.Location})
}

// forget makes the next attempt make a new account, if the CA no longer knows the present one.
func (o *Orderer) forget(ctx context.Context, with *session, lead canary.Lead, err error) {
	var problem protocol.Problem
	if !errors.As(err, &problem) || problem.Type != protocol.ProblemTypeAccountDoesNotExist {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.account != with {
		return
	}
	again := &session{client: with.client}
	if err := o.register(ctx, again, lead); err != nil {
		o.cfg.Log.Warn("the certificate authority does not know the account any more, and no other could be made", "error", err)
		return
	}
	o.account = again
}

// newKey returns a new private key, also as it is stored.
func (o *Orderer) newKey() (key crypto.Signer, sealed []byte, err error) {
	made, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make a key: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(made)
	if err != nil {
		return nil, nil, fmt.Errorf("encode a key: %w", err)
	}
	sealed, err = o.cfg.Sealer.Seal(der)
	return made, sealed, err
}

func (o *Orderer) openKey(sealed []byte) (crypto.Signer, error) {
	der, err := o.cfg.Sealer.Open(sealed)
	if err != nil {
		return nil, err
	}
	key, err := x509.ParsePKCS8PrivateKey(der)
	if err != nil {
		return nil, err
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, errors.New("the key cannot sign")
	}
	return signer, nil
}

// solver stores challenges, so that every node responds to validations.
type solver struct {
	o             *Orderer
	lead          canary.Lead
	certificateID string
}

// Present implements acmez.Solver. When it returns, every node responds.
func (s *solver) Present(ctx context.Context, c protocol.Challenge) error {
	return s.o.cfg.Control.PutChallenge(ctx, s.lead, s.certificateID, acme.Challenge{Token: c.Token, KeyAuthorization: c.KeyAuthorization})
}

// CleanUp implements acmez.Solver. The end of the attempt removes the challenge.
func (s *solver) CleanUp(context.Context, protocol.Challenge) error { return nil }

// order orders a certificate.
func (o *Orderer) order(ctx context.Context, with *session, lead canary.Lead, c *acme.Certificate) (*acme.Issued, error) {
	key, sealed, err := o.newKey()
	if err != nil {
		return nil, err
	}
	csr, err := acmez.NewCSR(key, []string{c.Hostname})
	if err != nil {
		return nil, fmt.Errorf("make the request for a certificate: %w", err)
	}
	params, err := acmez.OrderParametersFromCSR(with.account, csr)
	if err != nil {
		return nil, fmt.Errorf("make an order: %w", err)
	}
	if old, err := leafOf(c.Chain); err == nil && len(old.AuthorityKeyId) > 0 {
		params.Replaces = old
	}
	kind := protocol.ChallengeTypeTLSALPN01
	if o.cfg.HTTP {
		kind = protocol.ChallengeTypeHTTP01
	}
	client := acmez.Client{Client: with.client, ChallengeSolvers: map[string]acmez.Solver{kind: &solver{o, lead, c.ID}}}
	chains, err := client.ObtainCertificate(ctx, params)
	if err != nil {
		o.forget(ctx, with, lead, err)
		return nil, err
	}
	if len(chains) == 0 {
		return nil, errors.New("the certificate authority has sent no certificate")
	}
	leaf, err := leafOf(string(chains[0].ChainPEM))
	if err != nil {
		return nil, err
	}
	now := o.cfg.Now()
	if err := fits(leaf, key, c.Hostname, now); err != nil {
		return nil, err
	}
	issued := &acme.Issued{Chain: string(chains[0].ChainPEM), Key: sealed, NotBefore: leaf.NotBefore.UTC(), NotAfter: leaf.NotAfter.UTC()}
	issued.RenewAt = acme.RenewAt(issued.NotBefore, issued.NotAfter, o.cfg.Chance())
	window, ask := o.renewal(ctx, with, leaf, now)
	if !window.end.IsZero() {
		issued.RenewAt = window.pick(o.cfg.Chance())
	}
	issued.RenewAt, issued.AskAt = used(issued.RenewAt, now, leaf), ask
	return issued, nil
}

// used returns when a certificate that was issued at a time is renewed, if the CA wants that at another one: a CA that is wrong must
// not have certificates replaced all the time, and must not let them end.
func used(at, issued time.Time, leaf *x509.Certificate) time.Time {
	least := issued.Add(min(minLife, leaf.NotAfter.Sub(issued)/3))
	latest := leaf.NotAfter.Add(-leaf.NotAfter.Sub(issued) / 10)
	switch {
	case at.Before(least):
		at = least
	case at.After(latest):
		at = latest
	}
	return at.UTC()
}

// leafOf returns the first certificate of a chain.
func leafOf(chain string) (*x509.Certificate, error) {
	block, _ := pem.Decode([]byte(chain))
	if block == nil || block.Type != "CERTIFICATE" {
		return nil, errors.New("the chain has no certificate in PEM")
	}
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("read the certificate: %w", err)
	}
	return leaf, nil
}

// fits returns an error if a certificate cannot serve the hostname with the key.
func fits(leaf *x509.Certificate, key crypto.Signer, hostname string, now time.Time) error {
	public, hasEqual := key.Public().(interface{ Equal(crypto.PublicKey) bool })
	switch {
	case !hasEqual || !public.Equal(leaf.PublicKey):
		return errors.New("the certificate authority has sent a certificate for another key")
	case leaf.VerifyHostname(hostname) != nil:
		return errors.New("the certificate authority has sent a certificate for another hostname")
	case !now.Before(leaf.NotAfter):
		return errors.New("the certificate authority has sent a certificate that has expired: compare the clock of this machine")
	}
	return nil
}

// window is when a CA wants a certificate renewed; the zero value if it does not say.
type window struct{ start, end time.Time }

// pick returns a time in the window. chance is from 0 to 1.
func (w window) pick(chance float64) time.Time {
	return w.start.Add(time.Duration(float64(w.end.Sub(w.start)) * chance))
}

// renewal asks the CA when it wants a certificate renewed (ARI, RFC 9773), and returns when to ask again; the zero time for never.
func (o *Orderer) renewal(ctx context.Context, with *session, leaf *x509.Certificate, now time.Time) (w window, ask time.Time) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	info, err := with.client.GetRenewalInfo(ctx, leaf)
	if errors.Is(err, protocol.ErrUnsupported) {
		return window{}, time.Time{}
	}
	wait := maxAsk
	if err != nil {
		o.cfg.Log.Debug("the certificate authority does not say when to renew a certificate", "names", leaf.DNSNames, "error", err)
		return window{}, now.Add(wait).UTC()
	}
	if info.RetryAfter != nil {
		wait = min(max(time.Until(*info.RetryAfter), minAsk), maxAsk)
	}
	return window{info.SuggestedWindow.Start, info.SuggestedWindow.End}, now.Add(wait).UTC()
}

// ask asks the CA again. The time of the renewal stays as long as it is in the window.
func (o *Orderer) ask(ctx context.Context, lead canary.Lead, c *acme.Certificate) error {
	leaf, err := leafOf(c.Chain)
	if err != nil {
		return err
	}
	now := o.cfg.Now()
	with, err := o.session(ctx, lead)
	if err != nil {
		return errors.Join(err, o.cfg.Control.NoteRenewal(ctx, lead, c.ID, time.Time{}, now.Add(maxAsk)))
	}
	w, again := o.renewal(ctx, with, leaf, now)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var at time.Time
	if !w.end.IsZero() && (c.RenewAt.Before(w.start) || c.RenewAt.After(w.end)) {
		if at = used(w.pick(o.cfg.Chance()), c.IssuedAt, leaf); at.Equal(c.RenewAt) {
			at = time.Time{}
		}
	}
	return o.cfg.Control.NoteRenewal(ctx, lead, c.ID, at, again)
}

// reasonOf returns what the account is shown of an error: what the CA says, or what we have found. The rest is in the log.
func reasonOf(err error) string {
	var public *publicError
	var problem protocol.Problem
	switch {
	case errors.As(err, &public):
		return public.text
	case errors.As(err, &problem):
		return "the certificate authority says: " + clean(problemText(&problem))
	case errors.Is(err, context.DeadlineExceeded):
		return "the certificate authority has taken too long"
	}
	return "the certificate authority could not be used: the log of the server says why"
}

// problemText returns the detail of a problem, with those of its parts.
func problemText(p *protocol.Problem) string {
	parts := []string{p.Detail}
	for _, sub := range p.Subproblems {
		parts = append(parts, sub.Detail)
	}
	return strings.Join(parts, "; ")
}

// clean removes what is not printable.
func clean(text string) string {
	return strings.ToValidUTF8(strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text), "")
}
