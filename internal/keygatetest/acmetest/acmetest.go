// Package acmetest runs a certificate authority that speaks ACME, Pebble, in the process of a test. It listens on 127.0.0.1 alone, and
// refuses some nonces and reuses some authorizations at random, as Pebble does by default.
package acmetest

import (
	"crypto/x509"
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/letsencrypt/pebble/v2/ca"
	"github.com/letsencrypt/pebble/v2/db"
	"github.com/letsencrypt/pebble/v2/va"
	"github.com/letsencrypt/pebble/v2/wfe"

	"github.com/keygate/keygate/internal/keygatetest/dnstest"
)

// CA is a certificate authority.
type CA struct {
	Directory string // URL
	// Client makes requests to it.
	Client *http.Client
	// Zone has the names that it validates.
	Zone *dnstest.Zone

	own     *x509.Certificate // of the directory
	issuer  *ca.CAImpl
	db      *db.MemoryStore
	orders  atomic.Int64
	mu      sync.Mutex
	arrived chan struct{} // receives an element for each request that is held
	release chan struct{} // nil if none is
}

// Options are the options of Start.
type Options struct {
	// HTTPPort and TLSPort are the ports at which names are validated.
	HTTPPort, TLSPort int
	// Binding makes accounts need that of the key ID kid-1 and this key in base64url; "" for no need.
	Binding string
	// Life is the validity of certificates in seconds; 0 means 90 days.
	Life uint64
}

// Start starts a certificate authority, until the test ends. It sets variables of the environment, so the test must not be parallel.
func Start(t *testing.T, o Options) *CA {
	t.Helper()
	t.Setenv("PEBBLE_VA_NOSLEEP", "1")
	c := &CA{Zone: &dnstest.Zone{}, arrived: make(chan struct{}, 100)}
	silent := log.New(io.Discard, "", 0)
	store := db.NewMemoryStore()
	if o.Binding != "" {
		if err := store.AddExternalAccountKeyByID("kid-1", o.Binding); err != nil {
			t.Fatal(err)
		}
	}
	if o.Life == 0 {
		o.Life = 90 * 24 * 3600
	}
	c.db = store
	c.issuer = ca.New(silent, store, "", "ecdsa", 0, 1, map[string]ca.Profile{"default": {Description: "default", ValidityPeriod: o.Life}})
	validator := va.New(silent, o.HTTPPort, o.TLSPort, true, c.Zone.Serve(t), store)
	front := wfe.New(silent, store, validator, c.issuer, []string{"ca.test"}, true, o.Binding != "", 0, 0)
	handler := front.Handler()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "/finalize-order/") {
			c.wait(r)
		}
		seen := &statusWriter{ResponseWriter: w}
		handler.ServeHTTP(seen, r)
		if r.Method == http.MethodPost && strings.Contains(r.URL.Path, "order-plz") && seen.status == http.StatusCreated {
			c.orders.Add(1) // one whose nonce was refused comes again
		}
	}))
	t.Cleanup(func() {
		c.Release()
		server.CloseClientConnections()
		server.Close()
	})
	c.Directory, c.Client, c.own = server.URL+wfe.DirectoryPath, server.Client(), server.Certificate()
	return c
}

// statusWriter keeps the status of a response.
type statusWriter struct {
	http.ResponseWriter

	status int
}

// WriteHeader implements http.ResponseWriter.
func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

// Hold makes the last request of each order wait until Release. Arrived receives an element for each.
func (c *CA) Hold() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.release == nil {
		c.release = make(chan struct{})
	}
}

// Arrived receives an element for each request that Hold makes wait.
func (c *CA) Arrived() <-chan struct{} { return c.arrived }

// Release ends Hold.
func (c *CA) Release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.release != nil {
		close(c.release)
		c.release = nil
	}
}

func (c *CA) wait(r *http.Request) {
	c.mu.Lock()
	release := c.release
	c.mu.Unlock()
	if release == nil {
		return
	}
	c.arrived <- struct{}{}
	select {
	case <-release:
	case <-r.Context().Done():
	}
}

// Orders returns how many orders there were.
func (c *CA) Orders() int64 { return c.orders.Load() }

// Roots returns the root certificate.
func (c *CA) Roots(t *testing.T) *x509.CertPool {
	t.Helper()
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(c.root(t)) {
		t.Fatal("the root certificate cannot be read")
	}
	return pool
}

// TrustFile writes a PEM file with the root certificate, and with that of the directory, and returns its path: a program whose
// environment has it as SSL_CERT_FILE trusts the authority and nothing else.
func (c *CA) TrustFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "trust.pem")
	own := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.own.Raw})
	if err := os.WriteFile(path, append(c.root(t), own...), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func (c *CA) root(t *testing.T) []byte {
	t.Helper()
	root := c.issuer.GetRootCert(0)
	if root == nil {
		t.Fatal("the certificate authority has no root certificate")
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.DER})
}
