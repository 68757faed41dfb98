// Package serve is what every node has in memory of certificates by ACME: it picks them by server name, and responds when a CA
// validates a hostname, by HTTP-01 and by TLS-ALPN-01 (edge.md, section 3).
package serve

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/mholt/acmez/v3"
	upstream "github.com/mholt/acmez/v3/acme"

	"github.com/keygate/keygate/internal/acme"
)

// Source is the store.
type Source interface {
	// EachCertificate calls f for each certificate, and bad for one whose record cannot be read.
	EachCertificate(ctx context.Context, f func(*acme.Certificate), bad func(certificateID string, err error)) error
	// ServedCertificate returns a certificate; nil if there is none, or if its record cannot be read: then damaged says why.
	ServedCertificate(ctx context.Context, certificateID string) (c *acme.Certificate, damaged, err error)
}

// Config configures a Set. All fields but Log are required.
type Config struct {
	Source Source
	// Open decrypts a private key.
	Open func(sealed []byte) ([]byte, error)
	Log  *slog.Logger // nil discards
}

// Set is the certificates of all hostnames. It is safe for concurrent use.
type Set struct {
	cfg Config

	mu     sync.RWMutex
	byID   map[string]*entry
	byName map[string]*entry // by hostname
}

// entry is a certificate. It does not change, apart from what once guards.
type entry struct {
	record acme.Certificate // without the key
	cert   *tls.Certificate // nil before the first order has succeeded

	once      sync.Once
	challenge *tls.Certificate // of TLS-ALPN-01, made when it is asked for
}

// New returns an empty Set: call Load next.
func New(cfg Config) (*Set, error) {
	if cfg.Source == nil || cfg.Open == nil {
		return nil, errors.New("acme/serve: Config.Source and Config.Open are required")
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Set{cfg: cfg, byID: map[string]*entry{}, byName: map[string]*entry{}}, nil
}

// Load reads all certificates.
func (s *Set) Load(ctx context.Context) error {
	s.mu.RLock()
	old := s.byID
	s.mu.RUnlock()
	byID := map[string]*entry{}
	err := s.cfg.Source.EachCertificate(ctx, func(c *acme.Certificate) { byID[c.ID] = s.entryOf(c, old[c.ID]) }, s.logDamaged)
	if err != nil {
		return err
	}
	byName := make(map[string]*entry, len(byID))
	for _, e := range byID {
		claim(byName, e)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.byID, s.byName = byID, byName
	return nil
}

// Read reads one certificate, and forgets it if it is gone.
func (s *Set) Read(ctx context.Context, certificateID string) error {
	c, damaged, err := s.cfg.Source.ServedCertificate(ctx, certificateID)
	if err != nil {
		return err
	}
	if damaged != nil {
		s.logDamaged(certificateID, damaged)
	}
	s.mu.RLock()
	old := s.byID[certificateID]
	s.mu.RUnlock()
	var next *entry
	if c != nil {
		next = s.entryOf(c, old)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if old != nil && s.byName[old.record.Hostname] == old {
		delete(s.byName, old.record.Hostname)
	}
	if next == nil {
		delete(s.byID, certificateID)
		for _, e := range s.byID {
			if old != nil && e.record.Hostname == old.record.Hostname {
				claim(s.byName, e)
			}
		}
		return nil
	}
	s.byID[certificateID] = next
	claim(s.byName, next)
	return nil
}

// claim gives a hostname to its newest certificate: another gateway may have had the name before.
func claim(byName map[string]*entry, e *entry) {
	if has := byName[e.record.Hostname]; has == nil || has.record.ID <= e.record.ID {
		byName[e.record.Hostname] = e
	}
}

func (s *Set) logDamaged(certificateID string, err error) {
	s.cfg.Log.Error("a stored certificate cannot be read and is not served", "certificate_id", certificateID, "error", err)
}

// entryOf returns the entry of a certificate; old is the one that it had.
func (s *Set) entryOf(c *acme.Certificate, old *entry) *entry {
	e := &entry{record: *c}
	e.record.Key = nil
	switch {
	case c.Chain == "":
	case old != nil && old.cert != nil && old.record.Chain == c.Chain:
		e.cert = old.cert
	default:
		var err error
		if e.cert, err = s.pair(c); err != nil {
			s.logDamaged(c.ID, err)
		}
	}
	return e
}

// pair returns a certificate with its key.
func (s *Set) pair(c *acme.Certificate) (*tls.Certificate, error) {
	der, err := s.cfg.Open(c.Key)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair([]byte(c.Chain), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
	if err != nil {
		return nil, fmt.Errorf("the certificate does not fit its key: %w", err)
	}
	if pair.Leaf == nil {
		if pair.Leaf, err = x509.ParseCertificate(pair.Certificate[0]); err != nil {
			return nil, err
		}
	}
	return &pair, nil
}

func (s *Set) find(name string) *entry {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.byName[name]
}

// Certificate implements certificate.Issued.
func (s *Set) Certificate(name string) *tls.Certificate {
	if e := s.find(name); e != nil {
		return e.cert
	}
	return nil
}

// Challenge implements certificate.Issued.
func (s *Set) Challenge(name string) *tls.Certificate {
	e := s.find(name)
	if e == nil || e.record.Challenge.KeyAuthorization == "" {
		return nil
	}
	e.once.Do(func() {
		cert, err := acmez.TLSALPN01ChallengeCert(upstream.Challenge{
			KeyAuthorization: e.record.Challenge.KeyAuthorization, Identifier: upstream.Identifier{Type: "dns", Value: name},
		})
		if err != nil {
			s.cfg.Log.Error("the certificate for the validation of a hostname cannot be made", "hostname", name, "error", err)
			return
		}
		e.challenge = cert
	})
	return e.challenge
}

// KeyAuthorization returns the response to a validation by HTTP-01 of a name in lower case; "" if it is not the one that is under way.
func (s *Set) KeyAuthorization(name, token string) string {
	e := s.find(name)
	if e == nil || token == "" || e.record.Challenge.Token != token {
		return ""
	}
	return e.record.Challenge.KeyAuthorization
}

// States returns how many certificates there are in each state at now.
func (s *Set) States(now time.Time) map[acme.State]int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	n := map[acme.State]int{acme.Pending: 0, acme.Valid: 0, acme.Failed: 0, acme.Expired: 0}
	for _, e := range s.byID {
		n[e.record.State(now)]++
	}
	return n
}

// FirstExpiry returns when the first of the certificates that have not expired at now does; the zero time if there are none.
func (s *Set) FirstExpiry(now time.Time) (first time.Time) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, e := range s.byID {
		if t := e.record.NotAfter; e.record.State(now) == acme.Valid && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	return first
}

// HasExpired reports whether a certificate of an account has expired at now.
func (s *Set) HasExpired(now time.Time, accountID string) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, e := range s.byID {
		if e.record.AccountID == accountID && e.record.State(now) == acme.Expired {
			return true
		}
	}
	return false
}
