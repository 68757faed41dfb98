// Package certificate loads the certificate and key of a TLS listener from files, and
// reloads them when the files change (contract, section 1, --tls-cert).
//
// Files are compared by content, not by modification time, so it does not matter whether
// a renewal writes a file in place, renames another over it, or changes a symbolic link.
// A pair that does not match, as between the writes of its two files, is logged once, and
// the previous pair stays in use.
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
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keygate/keygate/internal/service"
)

// Config configures a Pair.
type Config struct {
	// CertFile contains the certificate with its chain, KeyFile the private key, both in
	// PEM. Required.
	CertFile, KeyFile string
	// CertSetting and KeySetting are the names of the settings that gave the files, as in
	// "tls-cert", for messages. Required.
	CertSetting, KeySetting string
	// Interval is the time between two checks of the files. Zero means 2 s.
	Interval time.Duration
	// Now returns the current time, against which the certificate's validity is checked.
	// Nil means time.Now.
	Now func() time.Time
	// Log receives reloads and failures. Nil discards them.
	Log *slog.Logger
}

// Pair is a certificate with its key, which may be reloaded. It is safe for concurrent use.
type Pair struct {
	cfg     Config
	current atomic.Pointer[tls.Certificate]

	mu        sync.Mutex
	tried     [sha256.Size]byte // hash of the files' contents when they were last tried
	lastError string            // of the last check, so that it is logged once

	group service.Group
}

const (
	defaultEvery = 2 * time.Second
	maxFile      = 1 << 20 // bytes
)

// Open loads the pair. An error names the setting and the file.
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
	if info, err := os.Stat(cfg.KeyFile); err == nil && info.Mode().Perm()&0o007 != 0 && runtime.GOOS != "windows" {
		cfg.Log.Warn("private key is readable by every user of this machine: run chmod 600", "setting", cfg.KeySetting, "file", cfg.KeyFile)
	}
	p.logValidity(cert)
	return p, nil
}

// TLS returns the configuration of a listener: TLS 1.2 or later, session tickets, and the
// given ALPN protocols in order of preference.
func (p *Pair) TLS(protocols ...string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: protocols,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return p.current.Load(), nil
		},
	}
}

// NotAfter returns when the certificate in use expires.
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

// Check reads the files, and uses their pair if it is new and valid. It reports whether it
// did.
func (p *Pair) Check() (changed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	cert, digest, err := p.read()
	switch {
	case err != nil:
		if p.lastError != err.Error() {
			p.lastError = err.Error()
			p.cfg.Log.Error("changed certificate cannot be used; keeping the previous one", "error", err)
		}
		return false
	case digest == p.tried:
		if p.lastError != "" {
			p.cfg.Log.Info("certificate files match the certificate in use again", "setting", p.cfg.CertSetting, "file", p.cfg.CertFile)
		}
		p.lastError = ""
		return false
	}
	p.tried, p.lastError = digest, ""
	p.current.Store(cert)
	p.cfg.Log.Info("certificate reloaded", "setting", p.cfg.CertSetting, "file", p.cfg.CertFile,
		"names", cert.Leaf.DNSNames, "until", cert.Leaf.NotAfter.UTC())
	p.logValidity(cert)
	return true
}

func (p *Pair) logValidity(cert *tls.Certificate) {
	switch now := p.cfg.Now(); {
	case now.After(cert.Leaf.NotAfter):
		p.cfg.Log.Warn("certificate has expired", "setting", p.cfg.CertSetting, "file", p.cfg.CertFile, "on", cert.Leaf.NotAfter.UTC())
	case now.Before(cert.Leaf.NotBefore):
		p.cfg.Log.Warn("certificate is not valid yet", "setting", p.cfg.CertSetting, "file", p.cfg.CertFile, "from", cert.Leaf.NotBefore.UTC())
	}
}

// read loads the pair from the files. It returns nil if their contents are those that were
// last tried.
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
		return nil, digest, fmt.Errorf("--%s %s and --%s %s do not match: %w", p.cfg.CertSetting, p.cfg.CertFile, p.cfg.KeySetting, p.cfg.KeyFile, err)
	}
	return &pair, digest, nil
}

func readFile(setting, path string) ([]byte, error) {
	f, err := os.Open(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("--%s: file %s does not exist", setting, path)
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("--%s: Keygate's user is not permitted to read %s: change the file's owner or mode", setting, path)
	case err != nil:
		return nil, fmt.Errorf("--%s: %w", setting, err)
	}
	defer func() { _ = f.Close() }() // only read from
	content, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("--%s: %w", setting, err)
	case len(content) > maxFile:
		return nil, fmt.Errorf("--%s: %s is larger than 1 MiB, too large for a certificate or key", setting, path)
	}
	return content, nil
}
