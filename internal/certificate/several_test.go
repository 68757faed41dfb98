package certificate_test

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/certificate"
	"github.com/keygate/keygate/internal/certificate/certificatetest"
)

// directory is a directory of certificates of a test.
type directory struct {
	*files
	dir string
}

func newDirectory(t *testing.T) *directory { return &directory{newFiles(t), t.TempDir()} }

// put writes a new pair for the DNS names. cert and key are paths in the directory.
func (d *directory) put(cert, key string, names ...string) certificatetest.Pair {
	d.t.Helper()
	p := certificatetest.NewFor(d.t, names...)
	d.file(cert, p.Cert)
	d.file(key, p.Key)
	return p
}

func (d *directory) file(path string, content []byte) {
	d.t.Helper()
	path = filepath.Join(d.dir, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		d.t.Fatal(err)
	}
	d.write(path, content)
}

func (d *directory) remove(paths ...string) {
	d.t.Helper()
	for _, path := range paths {
		if err := os.Remove(filepath.Join(d.dir, path)); err != nil {
			d.t.Fatal(err)
		}
	}
}

func (d *directory) tryOpen(more ...certificate.Files) (*certificate.Set, error) {
	return certificate.Open(certificate.Config{
		Files: append(more, certificate.Files{Cert: d.dir}), CertSetting: "tls-cert", KeySetting: "tls-key", Log: slog.New(slog.NewTextHandler(d.log, nil)),
	})
}

func (d *directory) open() *certificate.Set {
	d.t.Helper()
	s, err := d.tryOpen()
	if err != nil {
		d.t.Fatal(err)
	}
	return s
}

// served returns the DNS names of the certificate that a TLS client gets.
func served(t *testing.T, s *certificate.Set, serverName string, version uint16) []string {
	t.Helper()
	near, far := net.Pipe()
	server := tls.Server(far, s.TLS("h2", "http/1.1"))
	done := make(chan error, 1)
	go func() {
		done <- server.HandshakeContext(t.Context())
		_ = far.Close()
	}()
	// The test trusts no authority: it only asks which certificate comes.
	client := tls.Client(near, &tls.Config{ServerName: serverName, InsecureSkipVerify: true, MinVersion: version, MaxVersion: version})
	defer func() { _ = near.Close() }()
	if err := client.HandshakeContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	_ = near.Close()
	<-done
	return client.ConnectionState().PeerCertificates[0].DNSNames
}

func wantServed(t *testing.T, s *certificate.Set, serverName string, want ...string) {
	t.Helper()
	if got := served(t, s, serverName, tls.VersionTLS13); !slices.Equal(got, want) {
		t.Errorf("for %q: got the certificate for %v, want %v", serverName, got, want)
	}
}

// Guarantee: over TLS 1.2 and 1.3 a client gets the certificate for exactly its server name, else a
// certificate with a wildcard for the first label, else the first certificate, from files,
// certbot's and Kubernetes' directories alike.
func TestPick(t *testing.T) {
	d := newDirectory(t)
	first := certificatetest.NewFor(t, "first.test")
	f := newFiles(t)
	f.write(f.cert, first.Cert)
	f.write(f.key, first.Key)
	d.put("a.crt", "a.key", "a.test", "*.a.test")
	d.put("b.pem", "b.key", "x.a.test", "B.test")
	d.put("live/fullchain.pem", "live/privkey.pem", "certbot.test")
	d.file("live/chain.pem", first.Cert)
	d.put("secret/tls.crt", "secret/tls.key", "kubernetes.test")
	d.file("secret/ca.crt", first.Cert)
	d.put("..data/tls.crt", "..data/tls.key", "kubernetes.test") // behind the links of Kubernetes
	d.file("README", nil)
	s, err := d.tryOpen(certificate.Files{Cert: f.cert, Key: f.key})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"a.test": "a.test", "A.TEST": "a.test", "y.a.test": "a.test", "x.a.test": "x.a.test", "X.a.Test": "x.a.test", "b.test": "x.a.test",
		"z.y.a.test": "first.test", "": "first.test", "elsewhere.test": "first.test", "first.test": "first.test", "test": "first.test",
		"certbot.test": "certbot.test", "kubernetes.test": "kubernetes.test",
	} {
		for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
			if got := served(t, s, name, version); got[0] != want {
				t.Errorf("%s for %q: got the certificate for %v, want %s", tls.VersionName(version), name, got, want)
			}
		}
	}
}

// Guarantee: Open refuses a directory that is not usable as a whole, and names the files.
func TestDirectoryRefusals(t *testing.T) {
	for _, tc := range []struct {
		name string
		make func(d *directory)
		want []string
	}{
		{"empty", func(*directory) {}, []string{"has no certificate with its key"}},
		{"certificates without keys", func(d *directory) { d.file("ca.crt", certificatetest.NewFor(t, "a.test").Cert) }, []string{"has no certificate with its key"}},
		{"a key alone", func(d *directory) { d.put("a.crt", "b.key", "a.test") }, []string{"b.key has no certificate", "b.crt"}},
		{"certbot's key alone", func(d *directory) { d.put("x/cert.pem", "x/privkey.pem", "a.test") }, []string{"x/privkey.pem", "fullchain.pem"}},
		{"two certificates for a key", func(d *directory) {
			d.put("a.crt", "a.key", "a.test")
			d.file("a.pem", certificatetest.NewFor(t, "b.test").Cert)
		}, []string{"a.crt", "a.pem", "a.key", "remove one"}},
		{"the same name twice", func(d *directory) {
			d.put("a.crt", "a.key", "a.test", "c.test")
			d.put("b.crt", "b.key", "b.test", "C.test")
		}, []string{"a.crt", "b.crt", "name c.test"}},
		{"the same wildcard twice", func(d *directory) {
			d.put("a.crt", "a.key", "*.a.test")
			d.put("b/fullchain.pem", "b/privkey.pem", "*.a.test")
		}, []string{"a.crt", "b/fullchain.pem", "name *.a.test"}},
		{"a mismatched pair", func(d *directory) {
			d.put("a.crt", "a.key", "a.test")
			d.put("b.crt", "b.key", "b.test")
			d.file("b.key", certificatetest.NewFor(t, "b.test").Key)
		}, []string{"b.crt", "b.key", "do not match"}},
		{"no name and not the first", func(d *directory) {
			d.put("a.crt", "a.key", "a.test")
			d.put("b.crt", "b.key")
		}, []string{"b.crt", "no DNS name"}},
		{"a key that is a directory", func(d *directory) {
			d.file("a.crt", certificatetest.NewFor(t, "a.test").Cert)
			d.file("a.key/x", nil)
		}, []string{"a.key", "not a regular file"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := newDirectory(t)
			tc.make(d)
			_, err := d.tryOpen()
			if err == nil {
				t.Fatal("Open succeeded, want an error")
			}
			for _, part := range append(tc.want, "--tls-cert", d.dir) {
				if !strings.Contains(err.Error(), filepath.FromSlash(part)) {
					t.Errorf("message %q lacks %q", err, part)
				}
			}
		})
	}
	t.Run("a file that is also in the directory", func(t *testing.T) {
		d := newDirectory(t)
		d.put("a.crt", "a.key", "a.test")
		_, err := d.tryOpen(certificate.Files{Cert: filepath.Join(d.dir, "a.crt"), Key: filepath.Join(d.dir, "a.key")})
		if err == nil || !strings.Contains(err.Error(), "a.crt is given twice") {
			t.Errorf("got error %v, want one that says that a.crt is given twice", err)
		}
	})
}

// Guarantee: certificates of a directory are added, replaced and removed without a restart.
func TestDirectoryReload(t *testing.T) {
	d := newDirectory(t)
	d.put("a.crt", "a.key", "a.test")
	s := d.open()
	if s.Check() {
		t.Error("an unchanged directory is reported as changed")
	}
	d.put("b.crt", "b.key", "b.test")
	if !s.Check() {
		t.Error("an added certificate is not reported as a change")
	}
	wantServed(t, s, "b.test", "b.test")
	d.put("b.crt", "b.key", "b.test", "c.test")
	if !s.Check() {
		t.Error("a replaced certificate is not reported as a change")
	}
	wantServed(t, s, "c.test", "b.test", "c.test")
	d.remove("b.crt", "b.key")
	if !s.Check() {
		t.Error("a removed certificate is not reported as a change")
	}
	wantServed(t, s, "b.test", "a.test")
	d.remove("a.crt", "a.key")
	if s.Check() {
		t.Error("the last certificate was removed")
	}
	wantServed(t, s, "a.test", "a.test")
	for message, want := range map[string]int{"certificate added": 1, "certificate reloaded": 1, "certificate removed": 1, "has no certificate with its key": 1} {
		if got := d.log.count(message); got != want {
			t.Errorf("%q was logged %d times, want %d", message, got, want)
		}
	}
}

// Guarantee: a pair that cannot be used is logged once, keeps its previous version, and does
// not stop the reload of others. A name in use stays with its certificate.
func TestBrokenPairStopsNoOther(t *testing.T) {
	d := newDirectory(t)
	d.put("a.crt", "a.key", "a.test")
	d.put("b.crt", "b.key", "b.test")
	s := d.open()
	d.file("a.crt", []byte("nonsense"))
	d.put("b.crt", "b.key", "b.test", "new.test")
	d.put("0.crt", "0.key", "b.test", "thief.test") // before b.crt, but b.test is b's
	for range 3 {
		s.Check()
	}
	wantServed(t, s, "a.test", "a.test")
	wantServed(t, s, "new.test", "b.test", "new.test")
	wantServed(t, s, "b.test", "b.test", "new.test")
	wantServed(t, s, "thief.test", "a.test")
	if d.log.count("do not match") != 1 || d.log.count("are both for the name b.test") != 1 {
		t.Errorf("want each failure logged once, got %s", d.log.buf.String())
	}
	d.remove("a.key") // and a.crt is nonsense still
	s.Check()
	wantServed(t, s, "a.test", "a.test")
	if err := os.Rename(d.dir, d.dir+".away"); err != nil {
		t.Fatal(err)
	}
	if s.Check() {
		t.Error("a directory that is away is reported as a change")
	}
	wantServed(t, s, "new.test", "b.test", "new.test")
}

// Guarantee: a directory has at most 10,000 entries, and a set at most 1,000 certificates;
// certificates in use stay.
func TestBounds(t *testing.T) {
	d := newDirectory(t)
	d.put("a.crt", "a.key", "a.test")
	s := d.open()
	for i := range certificate.MaxCertificates {
		for _, suffix := range []string{"crt", "key"} {
			if err := os.Link(filepath.Join(d.dir, "a."+suffix), filepath.Join(d.dir, fmt.Sprintf("x%d.%s", i, suffix))); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := d.tryOpen(); err == nil || !strings.Contains(err.Error(), "more than 1000 certificates") {
		t.Errorf("1,001 certificates: got error %v, want one that names the maximum", err)
	}
	if s.Check() {
		t.Error("1,001 certificates are in use, want the one before")
	}
	wantServed(t, s, "a.test", "a.test")
	many := newDirectory(t)
	many.put("a.crt", "a.key", "a.test")
	for i := range 10_000 {
		if err := os.Symlink("a.crt", filepath.Join(many.dir, fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := many.tryOpen(); err == nil || !strings.Contains(err.Error(), "more than 10000 entries") {
		t.Errorf("10,002 entries: got error %v, want one that names the maximum", err)
	}
}
