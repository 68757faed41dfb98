// Package certificate holds the certificate and key of a TLS listener, read
// from files and read again when these change (contract, section 1, --tls-cert).
//
// Files are compared by content, not by their times: a renewal that writes a
// file in place, renames one over it or turns a symbolic link is seen alike. A
// pair that does not fit, as between the writes of its two files, is logged once
// and the one before stays in use.
package certificate

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keygate/keygate/internal/service"
)

// Config names the files of a Pair.
type Config struct {
	// CertFile holds the certificate and those of its issuers, KeyFile the
	// private key, in PEM. Required.
	CertFile, KeyFile string
	// CertSetting and KeySetting are the settings that named the files, as in
	// "tls-cert", for messages. Required.
	CertSetting, KeySetting string
	// Interval is the time between two looks at the files. 0 is 2 s.
	Interval time.Duration
	// Now tells the time, for certificates that have expired. Nil is time.Now.
	Now func() time.Time
	// Log receives what became of a change. Nil discards.
	Log *slog.Logger
}

// Pair is a certificate with its key. It is safe for concurrent use.
type Pair struct {
	cfg     Config
	current atomic.Pointer[tls.Certificate]

	mu        sync.Mutex
	tried     [sha256.Size]byte // what the files held when they were last tried
	lastError string            // of the last look, so that it is logged once

	group service.Group
}

const (
	defaultEvery = 2 * time.Second
	maxFile      = 1 << 20 // bytes
)

// Open reads the pair. Its errors name the setting and the file.
func Open(cfg Config) (*Pair, error) {
	if cfg.Interval == 0 {
		cfg.Interval = defaultEvery
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	p := &Pair{cfg: cfg}
	cert, digest, err := p.read()
	if err != nil {
		return nil, err
	}
	p.tried = digest
	p.current.Store(cert)
	if info, err := os.Stat(cfg.KeyFile); err == nil && info.Mode().Perm()&0o007 != 0 {
		cfg.Log.Warn("every user of this machine may read the private key: run chmod 600", "setting", cfg.KeySetting, "file", cfg.KeyFile)
	}
	p.logValidity(cert)
	return p, nil
}

// TLS returns the settings of a listener that offers the given protocols of
// ALPN, the most wanted first: TLS 1.2 and later, with session tickets.
func (p *Pair) TLS(protocols ...string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: protocols,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return p.current.Load(), nil
		},
	}
}

// NotAfter returns the end of the certificate in use.
func (p *Pair) NotAfter() time.Time { return p.current.Load().Leaf.NotAfter }

// Start watches the files until Stop.
func (p *Pair) Start(context.Context) error {
	err := p.group.Start(func(ctx context.Context) {
		service.Every(ctx, p.cfg.Interval, func(context.Context) { p.Check() })
	})
	if err != nil {
		return fmt.Errorf("start watching certificate files: %w", err)
	}
	return nil
}

// Stop ends what Start began. The pair stays usable.
func (p *Pair) Stop(ctx context.Context) error {
	if err := p.group.Stop(ctx); err != nil {
		return fmt.Errorf("stop watching certificate files: %w", err)
	}
	return nil
}

// Check looks at the files now and uses the pair in them if it is a new one and
// holds. It reports whether it did.
func (p *Pair) Check() (changed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	cert, digest, err := p.read()
	switch {
	case err != nil:
		if p.lastError != err.Error() {
			p.lastError = err.Error()
			p.cfg.Log.Error("a changed certificate cannot be used; the one before stays in use", "error", err)
		}
		return false
	case digest == p.tried:
		if p.lastError != "" {
			p.cfg.Log.Info("the files hold the certificate in use again", "setting", p.cfg.CertSetting, "file", p.cfg.CertFile)
		}
		p.lastError = ""
		return false
	}
	p.tried, p.lastError = digest, ""
	p.current.Store(cert)
	p.cfg.Log.Info("a new certificate is in use", "setting", p.cfg.CertSetting, "file", p.cfg.CertFile,
		"names", cert.Leaf.DNSNames, "until", cert.Leaf.NotAfter.UTC())
	p.logValidity(cert)
	return true
}

func (p *Pair) logValidity(cert *tls.Certificate) {
	switch now := p.cfg.Now(); {
	case now.After(cert.Leaf.NotAfter):
		p.cfg.Log.Warn("the certificate has expired", "setting", p.cfg.CertSetting, "file", p.cfg.CertFile, "on", cert.Leaf.NotAfter.UTC())
	case now.Before(cert.Leaf.NotBefore):
		p.cfg.Log.Warn("the certificate is not valid yet", "setting", p.cfg.CertSetting, "file", p.cfg.CertFile, "from", cert.Leaf.NotBefore.UTC())
	}
}

// read reads both files and makes a certificate of them, unless they hold what
// was tried last.
func (p *Pair) read() (*tls.Certificate, [sha256.Size]byte, error) {
	var digest [sha256.Size]byte
	cert, err := readFile(p.cfg.CertSetting, p.cfg.CertFile)
	if err != nil {
		return nil, digest, err
	}
	key, err := readFile(p.cfg.KeySetting, p.cfg.KeyFile)
	if err != nil {
		return nil, digest, err
	}
	h := sha256.New()
	for _, content := range [][]byte{cert, key} {
		one := sha256.Sum256(content)
		h.Write(one[:])
	}
	h.Sum(digest[:0])
	if digest == p.tried && p.current.Load() != nil {
		return nil, digest, nil
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, digest, fmt.Errorf("--%s %s and --%s %s make no pair: %w", p.cfg.CertSetting, p.cfg.CertFile, p.cfg.KeySetting, p.cfg.KeyFile, err)
	}
	return &pair, digest, nil
}

func readFile(setting, path string) ([]byte, error) {
	f, err := os.Open(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("--%s: there is no file %s", setting, path)
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("--%s: the user that Keygate runs as may not read %s: change its owner or mode", setting, path)
	case err != nil:
		return nil, fmt.Errorf("--%s: %w", setting, err)
	}
	defer func() { _ = f.Close() }() // only read from
	content, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("--%s: %w", setting, err)
	case len(content) > maxFile:
		return nil, fmt.Errorf("--%s: %s is larger than 1 MiB and no certificate or key", setting, path)
	}
	return content, nil
}
