package certificate_test

import (
	"bytes"
	"crypto/tls"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/keygate/keygate/internal/certificate"
	"github.com/keygate/keygate/internal/certificate/certificatetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// logBuffer keeps what is logged.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *logBuffer) count(s string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Count(b.buf.String(), s)
}

// files is the pair of files of a test.
type files struct {
	t         *testing.T
	cert, key string
	log       *logBuffer
}

func newFiles(t *testing.T) *files {
	dir := t.TempDir()
	return &files{t, filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"), &logBuffer{}}
}

func (f *files) write(path string, content []byte) {
	f.t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		f.t.Fatal(err)
	}
}

func (f *files) open() (*certificate.Set, error) {
	return certificate.Open(certificate.Config{
		Files: []certificate.Files{{Cert: f.cert, Key: f.key}}, CertSetting: "tls-cert", KeySetting: "tls-key", Log: slog.New(slog.NewTextHandler(f.log, nil)),
	})
}

func name(t *testing.T, p *certificate.Set) string {
	t.Helper()
	c, err := p.TLS("h2").GetCertificate(&tls.ClientHelloInfo{})
	if err != nil {
		t.Fatal(err)
	}
	return c.Leaf.DNSNames[0]
}

// Guarantee: a new pair is in use after the next check of the files. A pair that does not
// match is logged once, and the previous one stays in use.
func TestReload(t *testing.T) {
	f := newFiles(t)
	one, two := certificatetest.New(t, "one.test"), certificatetest.New(t, "two.test")
	f.write(f.cert, one.Cert)
	f.write(f.key, one.Key)
	p, err := f.open()
	if err != nil {
		t.Fatal(err)
	}
	if got := name(t, p); got != "one.test" || p.Check() {
		t.Fatalf("the first certificate is %s, want one.test, unchanged", got)
	}
	f.write(f.cert, two.Cert) // its key follows later
	for range 3 {
		if p.Check() || name(t, p) != "one.test" {
			t.Fatal("a pair that does not match is in use")
		}
	}
	if n := f.log.count("do not match"); n != 1 {
		t.Errorf("the failure was logged %d times, want once", n)
	}
	f.write(f.key, two.Key)
	if !p.Check() || name(t, p) != "two.test" {
		t.Fatal("the new pair is not in use")
	}
	for _, broken := range []func(){
		func() { f.write(f.cert, []byte("nonsense")) },
		func() { f.write(f.cert, nil) },
		func() { _ = os.Remove(f.cert) },
		func() { f.write(f.cert, bytes.Repeat([]byte("x"), 1<<20+1)) },
	} {
		broken()
		if p.Check() || name(t, p) != "two.test" {
			t.Fatal("a broken pair is in use")
		}
	}
	f.write(f.cert, two.Cert)
	if p.Check() || f.log.count("in use again") != 1 {
		t.Error("restoring the files: want no change and one log line")
	}
	// Kubernetes updates files by changing a symbolic link.
	next := filepath.Join(filepath.Dir(f.cert), "next.pem")
	f.write(next, one.Cert)
	f.write(f.key, one.Key)
	_ = os.Remove(f.cert)
	if err := os.Symlink(next, f.cert); err != nil {
		t.Fatal(err)
	}
	if !p.Check() || name(t, p) != "one.test" {
		t.Error("the pair behind the changed link is not in use")
	}
}

// Guarantee: a started Set notices changed files without a call of Check.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFiles(t)
		one, two := certificatetest.New(t, "one.test"), certificatetest.New(t, "two.test")
		f.write(f.cert, one.Cert)
		f.write(f.key, one.Key)
		p, err := f.open()
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := p.Stop(t.Context()); err != nil {
				t.Error(err)
			}
		}()
		f.write(f.cert, two.Cert)
		f.write(f.key, two.Key)
		<-time.After(5 * time.Second)
		if got := name(t, p); got != "two.test" {
			t.Errorf("after 5 s the certificate is %s, want two.test", got)
		}
	})
}

// Guarantee: Open refuses files that cannot serve, and names the setting and the file.
func TestRefusals(t *testing.T) {
	good, other := certificatetest.New(t, "one.test"), certificatetest.New(t, "two.test")
	for _, tc := range []struct {
		name      string
		cert, key []byte
		want      []string
	}{
		{"no certificate", nil, good.Key, []string{"--tls-cert", "cert.pem", "does not exist"}},
		{"no key", good.Cert, nil, []string{"--tls-key", "key.pem", "does not exist"}},
		{"a pair that does not match", good.Cert, other.Key, []string{"--tls-cert", "--tls-key", "do not match"}},
		{"certificate and key swapped", good.Key, good.Cert, []string{"--tls-cert", "do not match"}},
		{"no PEM", []byte("x"), good.Key, []string{"--tls-cert", "do not match"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newFiles(t)
			if tc.cert != nil {
				f.write(f.cert, tc.cert)
			}
			if tc.key != nil {
				f.write(f.key, tc.key)
			}
			_, err := f.open()
			if err == nil {
				t.Fatal("Open succeeded, want an error")
			}
			for _, part := range tc.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("message %q lacks %q", err, part)
				}
			}
		})
	}
	t.Run("a directory", func(t *testing.T) {
		f := newFiles(t)
		f.cert = t.TempDir()
		f.write(f.key, good.Key)
		if _, err := f.open(); err == nil || !strings.Contains(err.Error(), "--tls-cert") {
			t.Errorf("got error %v, want one that names --tls-cert", err)
		}
	})
}

// Guarantee: a key that every user can read and an expired certificate are logged as
// warnings, and served.
func TestWarnings(t *testing.T) {
	f := newFiles(t)
	c := certificatetest.New(t, "one.test")
	f.write(f.cert, c.Cert)
	f.write(f.key, c.Key)
	if err := os.Chmod(f.key, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := certificate.Open(certificate.Config{
		Files: []certificate.Files{{Cert: f.cert, Key: f.key}}, CertSetting: "tls-cert", KeySetting: "tls-key", Log: slog.New(slog.NewTextHandler(f.log, nil)),
		Now: func() time.Time { return time.Now().Add(100 * 24 * time.Hour) },
	}); err != nil {
		t.Fatal(err)
	}
	if f.log.count("chmod 600") != 1 || f.log.count("has expired") != 1 {
		t.Errorf("want one warning each for the mode and the expiry, got %s", f.log.buf.String())
	}
}
