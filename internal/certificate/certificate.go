// Package certificate loads the certificates and keys of a TLS listener from files, picks
// one for each handshake by the server name that the client asks for, and reloads them when
// the files change (contract, section 1, --tls-cert).
//
// Files are compared by content, not by modification time, so it does not matter whether
// a renewal writes a file in place, renames another over it, or changes a symbolic link.
// A pair that does not match, as between the writes of its two files, is logged once, and its
// previous version stays in use. Other pairs are reloaded nevertheless.
package certificate

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keygate/keygate/internal/service"
)

// MaxCertificates is the maximum number of certificates of a Set.
const MaxCertificates = 1000

// Files names the files of a certificate and its key, or a directory of such files.
type Files struct {
	// Cert is the file with the certificate and its chain in PEM, or the directory.
	Cert string
	// Key is the file with the private key in PEM. It is "" if and only if Cert is a
	// directory.
	Key string
}

// Config configures a Set.
type Config struct {
	// Files lists the certificates and the directories of certificates. The first
	// certificate is the default one. At least one is required, unless there is Issued.
	Files []Files
	// Issued are certificates beside those of files; nil for none.
	Issued Issued
	// CertSetting and KeySetting are the names of the settings that gave the files, as in
	// "tls-cert", for messages. Required.
	CertSetting, KeySetting string
	// Interval is the time between two checks of the files. Zero means 2 s.
	Interval time.Duration
	// Now returns the current time, against which the certificates' validity is checked.
	// Nil means time.Now.
	Now func() time.Time
	// Log receives reloads and failures. Nil discards them.
	Log *slog.Logger
}

// Issued is certificates that are not in files. It is safe for concurrent use.
type Issued interface {
	// Certificate returns the certificate for exactly a name in lower case, or nil.
	Certificate(name string) *tls.Certificate
	// Challenge returns the certificate that proves to a certificate authority that the name leads here (RFC 8737), or nil if the
	// name is not being validated.
	Challenge(name string) *tls.Certificate
}

// ValidationProtocol is the ALPN protocol of the connections by which a certificate authority validates a name (RFC 8737). Nothing is
// sent over them.
const ValidationProtocol = "acme-tls/1"

// Set is the certificates of a listener with their keys, which may be reloaded. It is safe
// for concurrent use.
type Set struct {
	cfg     Config
	current atomic.Pointer[selection]

	mu     sync.Mutex
	logged map[string]string // by file: the error of the last check, so that it is logged once

	group service.Group
}

const defaultEvery = 2 * time.Second

// Open loads the certificates. An error names the setting and the file.
func Open(cfg Config) (*Set, error) {
	if cfg.Interval == 0 {
		cfg.Interval = defaultEvery
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	s := &Set{cfg: cfg, logged: map[string]string{}}
	first, failures := s.read(&selection{})
	if len(failures) > 0 {
		return nil, failures[0].err
	}
	s.current.Store(first)
	for _, p := range first.pairs {
		s.logWarnings(p)
	}
	return s, nil
}

// TLS returns the configuration of a listener: TLS 1.2 or later, session tickets, and the
// given ALPN protocols in order of preference. Each handshake gets the certificate for the
// server name that the client asks for, or the default one if no certificate has that name.
// Without a default one, the handshake fails with the alert unrecognized_name. With Issued, the
// validation of names by ValidationProtocol is answered.
func (s *Set) TLS(protocols ...string) *tls.Config {
	cfg := &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: protocols,
		GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
			return s.current.Load().pick(hello.ServerName, s.cfg.Issued), nil
		},
	}
	if s.cfg.Issued == nil {
		return cfg
	}
	validation := &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{ValidationProtocol},
		GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
			return s.cfg.Issued.Challenge(strings.ToLower(hello.ServerName)), nil
		},
	}
	cfg.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		if len(hello.SupportedProtos) == 1 && hello.SupportedProtos[0] == ValidationProtocol {
			return validation, nil
		}
		return nil, nil // this configuration
	}
	return cfg
}

// NotAfter returns when the first of the certificates of files expires; the zero time if there are none.
func (s *Set) NotAfter() (first time.Time) {
	for _, p := range s.current.Load().pairs {
		if t := p.cert.Leaf.NotAfter; first.IsZero() || t.Before(first) {
			first = t
		}
	}
	return first
}

// Start watches the files until Stop.
func (s *Set) Start(context.Context) error {
	err := s.group.Start(func(ctx context.Context) {
		service.Every(ctx, s.cfg.Interval, func(context.Context) { s.Check() })
	})
	if err != nil {
		return fmt.Errorf("start watching certificate files: %w", err)
	}
	return nil
}

// Stop ends what Start began. The set stays usable.
func (s *Set) Stop(ctx context.Context) error {
	if err := s.group.Stop(ctx); err != nil {
		return fmt.Errorf("stop watching certificate files: %w", err)
	}
	return nil
}

// Check reads the files, and uses the pairs that are new and valid. It reports whether a
// certificate was added, replaced or removed.
func (s *Set) Check() (changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	previous := s.current.Load()
	next, failures := s.read(previous)
	before := s.logged
	s.logged = map[string]string{}
	for _, f := range failures {
		s.logged[f.file] = f.err.Error()
		if before[f.file] != f.err.Error() {
			s.cfg.Log.Error("changed certificate cannot be used; keeping the previous one, if any", "error", f.err)
		}
	}
	changed = s.logChanges(previous, next, before)
	if changed {
		s.current.Store(next)
	}
	return changed
}

// logChanges logs what differs between two selections, and reports whether anything does. before
// has the errors of the previous check, by file.
func (s *Set) logChanges(previous, next *selection, before map[string]string) (changed bool) {
	old := previous.byFile()
	for _, p := range next.pairs {
		was := old[p.files.Cert]
		delete(old, p.files.Cert)
		_, failed := before[p.files.Cert]
		_, fails := s.logged[p.files.Cert]
		switch {
		case was == p && failed && !fails:
			s.cfg.Log.Info("certificate files match the certificate in use again", "setting", s.cfg.CertSetting, "file", p.files.Cert)
		case was == p:
		default:
			changed = true
			message := "certificate reloaded"
			if was == nil {
				message = "certificate added"
			}
			s.cfg.Log.Info(message, "setting", s.cfg.CertSetting, "file", p.files.Cert, "names", p.cert.Leaf.DNSNames, "until", p.cert.Leaf.NotAfter.UTC())
			s.logWarnings(p)
		}
	}
	for file := range old {
		changed = true
		s.cfg.Log.Info("certificate removed", "setting", s.cfg.CertSetting, "file", file)
	}
	return changed
}

// logWarnings warns about a key that everyone may read, and about a certificate that is not
// valid now. Both are served: a wrong clock must not stop the traffic.
func (s *Set) logWarnings(p *pair) {
	if p.keyMode&0o007 != 0 && runtime.GOOS != "windows" {
		s.cfg.Log.Warn("private key is readable by every user of this machine: run chmod 600", "setting", s.cfg.KeySetting, "file", p.files.Key)
	}
	switch now := s.cfg.Now(); {
	case now.After(p.cert.Leaf.NotAfter):
		s.cfg.Log.Warn("certificate has expired", "setting", s.cfg.CertSetting, "file", p.files.Cert, "on", p.cert.Leaf.NotAfter.UTC())
	case now.Before(p.cert.Leaf.NotBefore):
		s.cfg.Log.Warn("certificate is not valid yet", "setting", s.cfg.CertSetting, "file", p.files.Cert, "from", p.cert.Leaf.NotBefore.UTC())
	}
}
