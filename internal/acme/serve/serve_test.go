package serve_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/acme"
	"github.com/keygate/keygate/internal/acme/serve"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// records is the store of a test.
type records struct {
	mu   sync.Mutex
	byID map[string]acme.Certificate
	bad  map[string]bool // records that cannot be read
	err  error
}

func (r *records) put(c acme.Certificate) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byID == nil {
		r.byID, r.bad = map[string]acme.Certificate{}, map[string]bool{}
	}
	r.byID[c.ID] = c
}

// EachCertificate implements serve.Source.
func (r *records) EachCertificate(_ context.Context, f func(*acme.Certificate), bad func(string, error)) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, c := range r.byID {
		if r.bad[id] {
			bad(id, errors.New("damaged"))
			continue
		}
		f(&c)
	}
	return r.err
}

// ServedCertificate implements serve.Source.
func (r *records) ServedCertificate(_ context.Context, id string) (c *acme.Certificate, damaged, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	found, ok := r.byID[id]
	switch {
	case r.err != nil || !ok:
		return nil, nil, r.err
	case r.bad[id]:
		return nil, errors.New("damaged"), nil
	}
	return &found, nil, nil
}

func open(sealed []byte) ([]byte, error) {
	if plain, ok := strings.CutPrefix(string(sealed), "sealed"); ok {
		return []byte(plain), nil
	}
	return nil, errors.New("not sealed")
}

func newSet(t testing.TB, r *records) *serve.Set {
	t.Helper()
	s, err := serve.New(serve.Config{Source: r, Open: open})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

// newChain returns a self-signed certificate for a hostname in PEM, and its sealed key.
func newChain(t testing.TB, hostname string, serial int64) (chain string, sealed []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(serial), DNSNames: []string{hostname}, NotBefore: epoch, NotAfter: epoch.Add(90 * 24 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), append([]byte("sealed"), pkcs8...)
}

// certified returns a record with a certificate.
func certified(t testing.TB, id, accountID, hostname string) acme.Certificate {
	t.Helper()
	c := acme.Certificate{ID: id, AccountID: accountID, GatewayID: "g", Hostname: hostname, Version: 1}
	chain, sealed := newChain(t, hostname, 1)
	c.Put(epoch, &acme.Issued{Chain: chain, Key: sealed, NotBefore: epoch, NotAfter: epoch.Add(90 * 24 * time.Hour), RenewAt: epoch.Add(60 * 24 * time.Hour)})
	return c
}

// Guarantee: whatever is stored, changed and deleted, and whether all is read or one record after another, the set serves for each hostname
// the certificate of its newest record, answers its validation alone, and counts each record once.
func TestSetModel(t *testing.T) {
	made := map[string]acme.Certificate{}
	for _, id := range []string{"cert_1", "cert_2", "cert_3", "cert_4"} {
		for _, hostname := range []string{"a.example.com", "b.example.com"} {
			made[id+hostname] = certified(t, id, "acct", hostname)
		}
	}
	rapid.Check(t, func(r *rapid.T) {
		store := &records{}
		set := newSet(t, store)
		hostnames := map[string]string{} // by identifier: they never change
		for range rapid.IntRange(1, 15).Draw(r, "changes") {
			id := rapid.SampledFrom([]string{"cert_1", "cert_2", "cert_3", "cert_4"}).Draw(r, "id")
			if hostnames[id] == "" {
				hostnames[id] = rapid.SampledFrom([]string{"a.example.com", "b.example.com"}).Draw(r, "hostname")
			}
			c := made[id+hostnames[id]]
			switch rapid.SampledFrom([]string{"certificate", "first order", "validation", "gone"}).Draw(r, "change") {
			case "first order":
				c = acme.Certificate{ID: id, AccountID: "acct", Hostname: c.Hostname}
			case "validation":
				c.Challenge = acme.Challenge{Token: "token-" + id, KeyAuthorization: "authorization-" + id}
			case "gone":
				store.mu.Lock()
				delete(store.byID, id)
				store.mu.Unlock()
				c.ID = ""
			}
			if c.ID != "" {
				store.put(c)
			}
			var err error
			if rapid.Bool().Draw(r, "all") {
				err = set.Load(t.Context())
			} else {
				err = set.Read(t.Context(), id)
			}
			if err != nil {
				r.Fatal(err)
			}
			for _, hostname := range []string{"a.example.com", "b.example.com", "c.example.com"} {
				var want acme.Certificate
				for _, c := range store.byID {
					if c.Hostname == hostname && c.ID > want.ID {
						want = c
					}
				}
				if got := set.Certificate(hostname); (got == nil) != (want.Chain == "") || got != nil && !slices.Equal(got.Leaf.Raw, leaf(r, want.Chain).Raw) {
					r.Fatalf("%s: got %v, want the certificate of %q", hostname, got, want.ID)
				}
				if got := set.KeyAuthorization(hostname, "token-"+want.ID); got != want.Challenge.KeyAuthorization {
					r.Fatalf("%s: got %q, want %q", hostname, got, want.Challenge.KeyAuthorization)
				}
				if got := set.Challenge(hostname); (got == nil) != (want.Challenge.KeyAuthorization == "") {
					r.Fatalf("%s: got the validation %v of %+v", hostname, got, want.Challenge)
				}
			}
			if n := set.States(epoch); n[acme.Pending]+n[acme.Valid] != len(store.byID) {
				r.Fatalf("got %v of %d", n, len(store.byID))
			}
		}
	})
}

func leaf(r *rapid.T, chain string) *x509.Certificate {
	block, _ := pem.Decode([]byte(chain))
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		r.Fatal(err)
	}
	return c
}

// Guarantee: a record that cannot be read, a key that cannot be decrypted, and a chain that does not fit its key keep no other certificate from
// being served, and an error of the store leaves what is served.
func TestDamagedRecords(t *testing.T) {
	store := &records{}
	good, other := certified(t, "cert_1", "acct", "good.example.com"), certified(t, "cert_2", "acct", "other.example.com")
	sealed, mixed := certified(t, "cert_3", "acct", "sealed.example.com"), certified(t, "cert_4", "acct", "mixed.example.com")
	sealed.Key, mixed.Key = []byte("wrong"), good.Key
	for _, c := range []acme.Certificate{good, other, sealed, mixed} {
		store.put(c)
	}
	store.bad["cert_2"] = true
	set := newSet(t, store)
	serves := func(want ...string) {
		t.Helper()
		for _, c := range []acme.Certificate{good, other, sealed, mixed} {
			if got := set.Certificate(c.Hostname) != nil; got != slices.Contains(want, c.Hostname) {
				t.Errorf("%s: served: %v", c.Hostname, got)
			}
		}
	}
	serves("good.example.com")
	store.bad["cert_2"] = false
	if err := set.Read(t.Context(), "cert_2"); err != nil {
		t.Fatal(err)
	}
	serves("good.example.com", "other.example.com")
	store.err = errors.New("gone")
	if set.Read(t.Context(), "cert_1") == nil || set.Load(t.Context()) == nil {
		t.Error("an error of the store is not returned")
	}
	serves("good.example.com", "other.example.com")
	store.err, store.bad["cert_1"] = nil, true
	if err := set.Read(t.Context(), "cert_1"); err != nil {
		t.Fatal(err)
	}
	serves("other.example.com")
}

// Guarantee: states and ends are those of the records; an account hears of its own certificates alone.
func TestStates(t *testing.T) {
	store := &records{}
	a, b := certified(t, "cert_1", "a", "a.example.com"), certified(t, "cert_2", "b", "b.example.com")
	b.NotAfter = b.NotAfter.Add(-24 * time.Hour)
	failed := acme.Certificate{ID: "cert_3", AccountID: "a", Hostname: "c.example.com"}
	failed.LastError = "no"
	for _, c := range []acme.Certificate{a, b, failed, {ID: "cert_4", AccountID: "a", Hostname: "d.example.com"}} {
		store.put(c)
	}
	set := newSet(t, store)
	if n := set.States(epoch); n[acme.Valid] != 2 || n[acme.Failed] != 1 || n[acme.Pending] != 1 || n[acme.Expired] != 0 {
		t.Errorf("got %v", n)
	}
	if got := set.FirstExpiry(epoch); !got.Equal(b.NotAfter) {
		t.Errorf("the first end is %v, want %v", got, b.NotAfter)
	}
	at := b.NotAfter
	if got := set.FirstExpiry(at); !got.Equal(a.NotAfter) {
		t.Errorf("then the first end is %v, want %v", got, a.NotAfter)
	}
	if set.HasExpired(at, "a") || !set.HasExpired(at, "b") || set.HasExpired(epoch, "b") {
		t.Error("the wrong account has an expired certificate")
	}
	if n := set.States(at)[acme.Expired]; n != 1 {
		t.Errorf("%d have expired", n)
	}
	if got := newSet(t, &records{}).FirstExpiry(epoch); !got.IsZero() {
		t.Errorf("without certificates, the first end is %v", got)
	}
}

// Guarantee: the listener of validations returns the key authorization for the token and the hostname of the validation that is under way, to
// GET and HEAD alone, and redirects only hostnames of gateways.
func TestHandler(t *testing.T) {
	store := &records{}
	c := acme.Certificate{ID: "cert_1", Hostname: "a.example.com"}
	c.Challenge = acme.Challenge{Token: "token", KeyAuthorization: "token.thumbprint"}
	store.put(c)
	store.put(acme.Certificate{ID: "cert_2", Hostname: "b.example.com"})
	handler := newSet(t, store).Handler(func(host string) string {
		if host == "a.example.com" || host == "b.example.com" {
			return host
		}
		return ""
	})
	for _, one := range []struct {
		method, host, target, body, location string
		status                               int
	}{
		{"GET", "a.example.com", "/.well-known/acme-challenge/token", "token.thumbprint", "", 200},
		{"HEAD", "a.example.com", "/.well-known/acme-challenge/token", "token.thumbprint", "", 200}, // the server leaves the body out
		{"POST", "a.example.com", "/.well-known/acme-challenge/token", "", "", 404},
		{"GET", "a.example.com", "/.well-known/acme-challenge/other", "", "", 404},
		{"GET", "a.example.com", "/.well-known/acme-challenge/", "", "", 404},
		{"GET", "a.example.com", "/.well-known/acme-challenge/token/", "", "", 404},
		{"GET", "b.example.com", "/.well-known/acme-challenge/token", "", "", 404},
		{"GET", "b.example.com", "/.well-known/acme-challenge/", "", "", 404},
		{"GET", "c.example.com", "/.well-known/acme-challenge/token", "", "", 404},
		{"GET", "c.example.com", "/", "", "", 404},
		{"POST", "b.example.com", "/x?y=%20z", "", "https://b.example.com/x?y=%20z", 308},
		{"OPTIONS", "b.example.com", "*", "", "", 404},
	} {
		r := httptest.NewRequest(one.method, "http://x/", http.NoBody)
		r.Host, r.RequestURI = one.host, one.target
		r.URL.Path, _, _ = strings.Cut(one.target, "?")
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if got := fmt.Sprintf("%d %s %s", w.Code, w.Body, w.Header().Get("Location")); got != fmt.Sprintf("%d %s %s", one.status, one.body, one.location) {
			t.Errorf("%s %s of %s: got %s", one.method, one.target, one.host, got)
		}
	}
}

// Guarantee: a Set without a source, or without a way to decrypt keys, is refused.
func TestConfigIsComplete(t *testing.T) {
	for _, cfg := range []serve.Config{{Open: open}, {Source: &records{}}} {
		if _, err := serve.New(cfg); err == nil {
			t.Error("it is accepted")
		}
	}
}
