package upstream_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
	"unique"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/upstream"
)

func pemOf(c *x509.Certificate) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw}))
}

// issuer is a certificate authority for tests.
type issuer struct {
	t    testing.TB
	cert *x509.Certificate
	key  crypto.Signer
}

func newIssuer(t testing.TB) *issuer {
	i := &issuer{t: t}
	i.cert, i.key = i.sign("issuer", time.Hour)
	return i
}

func (i *issuer) sign(name string, validity time.Duration) (*x509.Certificate, crypto.Signer) {
	i.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		i.t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: time.Now().Add(validity), BasicConstraintsValid: true,
	}
	parent, by := template, crypto.Signer(key)
	if i.cert == nil {
		template.IsCA = true
	} else {
		template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
		parent, by = i.cert, i.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), by)
	if err != nil {
		i.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		i.t.Fatal(err)
	}
	return cert, key
}

// client returns a client certificate with the given name, and its key.
func (i *issuer) client(name string, validity time.Duration) unique.Handle[[2]string] {
	i.t.Helper()
	cert, key := i.sign(name, validity)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		i.t.Fatal(err)
	}
	return unique.Make([2]string{pemOf(cert), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))})
}

// Guarantee: an upstream that asks for a client certificate gets the certificate of the origin and
// never another. An upstream that refuses it (none, expired, another issuer) is unreachable.
func TestClientCertificate(t *testing.T) {
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		for _, proto := range []string{"HTTP/1.1", "HTTP/2.0"} {
			t.Run(tls.VersionName(version)+" "+proto, func(t *testing.T) {
				ours, theirs := newIssuer(t), newIssuer(t)
				s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					_, _ = io.WriteString(w, r.Proto+" "+r.TLS.PeerCertificates[0].Subject.CommonName)
				}))
				s.EnableHTTP2 = proto == "HTTP/2.0"
				roots := x509.NewCertPool()
				roots.AddCert(ours.cert)
				s.TLS = &tls.Config{ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: roots, MaxVersion: version}
				s.Config.ErrorLog = quiet()
				s.StartTLS()
				t.Cleanup(s.Close)
				pools := newPools(t, upstream.Config{})
				origin := upstream.Origin{Scheme: "https", Host: s.Listener.Addr().String(), CA: pemOf(s.Certificate())}
				ask := func(client unique.Handle[[2]string], conns int) (string, error) {
					o := origin
					o.Client, o.MaxConns = client, conns
					_, body, err := send(t, pools, o, request("GET", "https://"+o.Host, "/"))
					return body, err
				}
				one, two := ours.client("one", time.Hour), ours.client("two", time.Hour)
				for range 2 { // the second time over kept connections
					for name, client := range map[string]unique.Handle[[2]string]{"one": one, "two": two} {
						for _, conns := range []int{0, 1} {
							if got, err := ask(client, conns); err != nil || got != proto+" "+name {
								t.Errorf("got %q, %v, want the certificate of %s", got, err, name)
							}
						}
					}
					for name, client := range map[string]unique.Handle[[2]string]{
						"none": {}, "expired": ours.client("late", -time.Hour), "another issuer's": theirs.client("one", time.Hour),
					} {
						if got, err := ask(client, 0); fault.CodeOf(err) != fault.UpstreamUnreachable {
							t.Errorf("%s: got %q, %v, want code upstream_unreachable", name, got, err)
						}
					}
				}
			})
		}
	}
}

// Guarantee: equal certificates share connections, different ones do not. Neither the error
// for an unusable pair nor a printed origin reveals the key.
func TestClientCertificateIdentity(t *testing.T) {
	pools := newPools(t, upstream.Config{})
	i := newIssuer(t)
	pair := i.client("one", time.Hour).Value()
	get := func(client unique.Handle[[2]string]) *upstream.H2Pool {
		t.Helper()
		p, err := pools.Multiplexed(upstream.Origin{Scheme: "https", Host: "a.test", Client: client})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	again := [2]string{strings.Clone(pair[0]), strings.Clone(pair[1])}
	if get(unique.Make(pair)) != get(unique.Make(again)) {
		t.Error("equal pairs have two pools")
	}
	if get(unique.Make(pair)) == get(i.client("one", time.Hour)) || get(unique.Make(pair)) == get(unique.Handle[[2]string]{}) {
		t.Error("different pairs share a pool")
	}
	o := upstream.Origin{Scheme: "https", Host: "a.test", Client: unique.Make([2]string{i.client("two", time.Hour).Value()[0], pair[1]})}
	_, err := pools.Multiplexed(o)
	if err == nil {
		t.Error("Multiplexed succeeded with the key of another certificate, want an error")
	}
	secret := strings.Split(pair[1], "\n")[1]
	if said := fmt.Sprintf("%v %v %+v %#v", err, o, o, o); strings.Contains(said, secret) {
		t.Errorf("the key is revealed: %s", said)
	}
}

func quiet() *log.Logger { return log.New(io.Discard, "", 0) }
