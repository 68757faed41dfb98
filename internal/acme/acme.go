// Package acme defines the certificates that Keygate gets for hostnames of gateways by ACME, RFC 8555 (edge.md, section 3).
//
//	gateway with acme ─► Certificate, one for each hostname ─► package order, on the one node that leads
//	                          │                                     │ look, challenge, order, certificate, renewal
//	                          ▼                                     ▼
//	                     change log ─► package serve of every node: certificates by SNI, and what validates a challenge
package acme

import (
	"strings"
	"time"

	"golang.org/x/net/publicsuffix"
)

// The bounds (docs/limits.md). Those of a week hold for accounts other than default.
const (
	// MaxOfAccount is the most certificates of an account, MaxInAll that of all accounts.
	MaxOfAccount = 1_000
	MaxInAll     = 10_000
	// NewNames is how many new names an account may have in a Week, and NewNamesOfDomain how many below a registered domain all
	// accounts together.
	NewNames         = 10
	NewNamesOfDomain = 30
	// Renewals is how many orders for a hostname an account may ask for in a Week: by a renewal, or by taking again a hostname of the week
	// that it has given up.
	Renewals = 5
	Week     = 7 * 24 * time.Hour
)

const (
	// MinBackoff is the time between the first two attempts that fail. It doubles up to MaxBackoff.
	MinBackoff = time.Minute
	// MaxBackoff is the longest time between two attempts that fail.
	MaxBackoff = 24 * time.Hour
	// expiringAhead is how long before its end a certificate that was not renewed is reported, or a sixth of its life.
	expiringAhead = 14 * 24 * time.Hour
	// maxError is the most bytes of LastError.
	maxError = 1000
)

// Certificate is the record of the certificate of a hostname. The hostname, the account and the gateway never change.
type Certificate struct {
	ID        string
	AccountID string
	GatewayID string
	Hostname  string // in lower case
	CreatedAt time.Time
	Version   int64
	// Key is the private key, PKCS #8, encrypted with the installation's secret key; nil before the first order.
	Key []byte

	Progress
}

// Progress is what orders change. The store keeps it as one JSON object, so its names are part of the stored form.
type Progress struct {
	// Chain is the certificate with its intermediates, in PEM; "" before the first order has succeeded.
	Chain     string    `json:"chain,omitempty"`
	NotBefore time.Time `json:"not_before,omitzero"`
	NotAfter  time.Time `json:"not_after,omitzero"`
	IssuedAt  time.Time `json:"issued_at,omitzero"` // when it was stored
	// RenewAt is when a renewal begins; the zero time without a certificate.
	RenewAt time.Time `json:"renew_at,omitzero"`
	// AskAt is when the CA is asked again when it wants the certificate renewed (ARI, RFC 9773); the zero time for never.
	AskAt time.Time `json:"ask_at,omitzero"`
	// NextAt is when the next attempt begins.
	NextAt time.Time `json:"next_at,omitzero"`
	// Failures is how many attempts in a row have failed. One that is under way counts.
	Failures int `json:"failures,omitempty"`
	// LastError says why the last attempt has failed; "" after one that succeeded.
	LastError string `json:"last_error,omitempty"`
	// FailureRaised is when certificate.failed was raised last for these failures.
	FailureRaised time.Time `json:"failure_raised,omitzero"`
	// ExpiryRaised is set if certificate.expiring was raised for the certificate.
	ExpiryRaised bool `json:"expiry_raised,omitempty"`
	// Challenge is what every node responds with to a validation; the zero value if nothing is being validated.
	Challenge Challenge `json:"challenge,omitzero"`
}

// Challenge is what proves to the CA that a hostname leads here. It is no secret: anybody who asks gets it.
type Challenge struct {
	Token            string `json:"token"`
	KeyAuthorization string `json:"key_authorization"`
}

// State says what a certificate is good for.
type State string

// The states.
const (
	Pending State = "pending" // the first order has not ended yet
	Valid   State = "valid"   // it is served; LastError may say why a renewal failed
	Failed  State = "failed"  // there is no certificate, and the last attempt failed
	Expired State = "expired" // it is served, and clients refuse it
)

// State returns the state at now.
func (c *Certificate) State(now time.Time) State {
	switch {
	case c.Chain == "" && c.LastError == "":
		return Pending
	case c.Chain == "":
		return Failed
	case !now.Before(c.NotAfter):
		return Expired
	}
	return Valid
}

// ExpiringAt returns when the certificate is reported as expiring, unless it is renewed before: 14 days before its end, or a sixth of
// its life for one with a short life. It is the zero time for one that was reported, and without a certificate.
func (c *Certificate) ExpiringAt() time.Time {
	if c.Chain == "" || c.ExpiryRaised {
		return time.Time{}
	}
	return c.NotAfter.Add(-min(expiringAhead, c.NotAfter.Sub(c.NotBefore)/6))
}

// DueAt returns when something is to be done about the certificate.
func (c *Certificate) DueAt() time.Time {
	due := c.NextAt
	for _, at := range []time.Time{c.AskAt, c.ExpiringAt()} {
		if !at.IsZero() && at.Before(due) {
			due = at
		}
	}
	return due
}

// Backoff returns how long the next attempt waits after so many failures in a row: a minute, doubled by each further one, up to a day.
func Backoff(failures int) time.Duration {
	wait := MinBackoff
	for ; failures > 1 && wait < MaxBackoff; failures-- {
		wait *= 2
	}
	return min(wait, MaxBackoff)
}

// Begin notes that an attempt begins. It counts as a failure until it has succeeded, so that attempts which end with their process
// back off too.
func (c *Certificate) Begin(now time.Time, challenge Challenge) {
	c.Failures++
	c.NextAt = now.Add(Backoff(c.Failures))
	c.Challenge = challenge
}

// Fail notes that the attempt that has begun failed. It reports whether certificate.failed is due: at the first failure in a row, and
// then once a day.
func (c *Certificate) Fail(now time.Time, reason string) (raise bool) {
	if len(reason) > maxError {
		reason = strings.ToValidUTF8(reason[:maxError], "")
	}
	c.LastError, c.Challenge = reason, Challenge{}
	c.NextAt = now.Add(Backoff(c.Failures))
	if raise = c.FailureRaised.IsZero() || now.Sub(c.FailureRaised) >= MaxBackoff; raise {
		c.FailureRaised = now
	}
	return raise
}

// Issued is a new certificate.
type Issued struct {
	Chain               string
	Key                 []byte // encrypted
	NotBefore, NotAfter time.Time
	RenewAt, AskAt      time.Time
}

// Put stores a new certificate in c.
func (c *Certificate) Put(now time.Time, i *Issued) {
	c.Key = i.Key
	c.Progress = Progress{Chain: i.Chain, NotBefore: i.NotBefore, NotAfter: i.NotAfter, IssuedAt: now, RenewAt: i.RenewAt, AskAt: i.AskAt, NextAt: i.RenewAt}
}

// RenewAt returns when a certificate is renewed about which the CA says nothing: when a third of its life is left, earlier or later
// by up to a tenth of that third. chance is from 0 to 1.
func RenewAt(notBefore, notAfter time.Time, chance float64) time.Time {
	third := notAfter.Sub(notBefore) / 3
	return notAfter.Add(-third).Add(time.Duration(float64(third) * 0.1 * (2*chance - 1)))
}

// Domain returns the registered domain of a hostname: the part below a public suffix, as example.co.uk, or the hostname itself.
func Domain(hostname string) string {
	domain, err := publicsuffix.EffectiveTLDPlusOne(hostname)
	if err != nil {
		return hostname
	}
	return domain
}

// Account is the account with a CA.
type Account struct {
	Directory string // the URL of the CA's directory; it identifies the account
	Key       []byte // the private key, PKCS #8, encrypted with the installation's secret key
	Location  string // the URL of the account
}
