package limitstore

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/certificate/certificatetest"
	"github.com/keygate/keygate/internal/keygatetest/awaittest"
	"github.com/keygate/keygate/internal/keygatetest/porttest"
	"github.com/keygate/keygate/internal/keygatetest/redistest"
)

// openURL returns a store that is not connected.
func openURL(t *testing.T, url, node string) *Store {
	t.Helper()
	a, err := ParseAddress(url)
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(Config{Address: a, Installation: func() string { return "test" }, Node: node})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// checkShared checks that two nodes which use the store of the URL share limits, of several accounts,
// as soon as the store can be used.
func checkShared(t *testing.T, url string) {
	t.Helper()
	first, second := openURL(t, url, "a"), openURL(t, url, "b")
	for _, s := range []*Store{first, second} {
		awaitStore(t, s)
	}
	for account := range 8 { // in slots of several servers
		take := perDay(fmt.Sprintf("{account-%d}:key", account), 100)
		one(t, first, 3, take)
		if got := one(t, second, 4, take); used(&got.Takes[0]) != 7 {
			t.Errorf("account %d: two nodes have used %d, want 7", account, used(&got.Takes[0]))
		}
	}
}

// awaitStore waits until a store can be used.
func awaitStore(t *testing.T, s *Store) {
	t.Helper()
	awaittest.True(t, "the store can be used", func() bool { return s.Check(t.Context()) == nil })
}

// refusal returns the error of a store that cannot be used. It must not contain the password.
func refusal(t *testing.T, url, password string) string {
	t.Helper()
	err := openURL(t, url, "a").Check(t.Context())
	if err == nil {
		t.Fatalf("%s can be used", url)
	}
	if strings.Contains(err.Error(), password) {
		t.Errorf("the error contains the password: %v", err)
	}
	return err.Error()
}

// Guarantee: a store that asks for a user and a password is used with them; without them, or with others,
// the error says so and shows neither.
func TestStoreWithUser(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--user", "default", "off", "--user", "keygate", "on", ">hush7w", "allcommands", "~keygate:*", "resetchannels")
	checkShared(t, "redis://keygate:hush7w@"+server.Addr)
	if got := refusal(t, "redis://"+server.Addr, "hush7w"); !strings.Contains(got, "NOAUTH") {
		t.Errorf("without a user: %s", got)
	}
	if got := refusal(t, "redis://keygate:other8x@"+server.Addr, "other8x"); !strings.Contains(got, "WRONGPASS") {
		t.Errorf("with a wrong password: %s", got)
	}
}

// Guarantee: nodes share limits over a cluster of three servers, whichever servers have the buckets.
func TestCluster(t *testing.T) {
	t.Parallel()
	var addrs []string
	for range 3 {
		s := redistest.Start(t, "--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf", "--cluster-port", clusterPort(t))
		addrs = append(addrs, s.Addr)
	}
	out, err := exec.CommandContext(t.Context(), "redis-cli", append([]string{"--cluster", "create", "--cluster-yes"}, addrs...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("redis-cli --cluster create: %v\n%s", err, out)
	}
	for _, addr := range addrs { // each learns from the others that all slots are served
		host, port, _ := net.SplitHostPort(addr)
		for state := ""; !strings.Contains(state, "cluster_state:ok"); {
			out, err := exec.CommandContext(t.Context(), "redis-cli", "-h", host, "-p", port, "cluster", "info").Output()
			if err != nil {
				t.Fatalf("redis-cli cluster info: %v", err)
			}
			state = string(out)
		}
	}
	checkShared(t, "redis://"+strings.Join(addrs, ","))
}

func clusterPort(t *testing.T) string {
	t.Helper()
	_, port, _ := net.SplitHostPort(porttest.Reserve(t))
	return port
}

// Guarantee: the server that sentinels name is used; for a set that they do not know the error names it.
func TestSentinel(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	sentinel := porttest.Reserve(t)
	host, port, _ := net.SplitHostPort(server.Addr)
	_, sentinelPort, _ := net.SplitHostPort(sentinel)
	file := filepath.Join(t.TempDir(), "sentinel.conf")
	text := fmt.Sprintf("bind 127.0.0.1\nport %s\nsentinel monitor limits %s %s 1\n", sentinelPort, host, port)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	process := exec.CommandContext(ctx, "redis-server", file, "--sentinel")
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = process.Wait()
	})
	checkShared(t, "redis+sentinel://"+sentinel+"/limits")
	if got := refusal(t, "redis+sentinel://"+sentinel+"/others", "hush"); !strings.Contains(got, "others") {
		t.Errorf("for a set that the sentinel does not know: %s", got)
	}
}

// Guarantee: a store over TLS is used if its certificate is trusted, and else the error says that it is
// not. A server without TLS is not used in clear.
func TestStoreOverTLS(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only on Linux an environment variable names the certificates to trust")
	}
	cert, key := certificate(t)
	t.Setenv("SSL_CERT_FILE", cert) // read by the first handshake of the process
	checkShared(t, "rediss://"+startTLS(t, cert, key))
	cert, key = certificate(t)
	if got := refusal(t, "rediss://"+startTLS(t, cert, key), "hush"); !strings.Contains(got, "certificate") {
		t.Errorf("with a certificate that is not trusted: %s", got)
	}
	if got := refusal(t, "rediss://"+redistest.Start(t).Addr, "hush"); !strings.Contains(got, "connect to rediss://") {
		t.Errorf("over TLS to a server without it: %s", got)
	}
}

// Guarantee: the certificates that the address names are read at each connect: when the certificates of the
// server and the client are replaced, a running store goes on with the new ones. A file that cannot be used is
// named.
func TestStoreReadsItsCertificatesAtEachConnect(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	ours, theirs := certificatetest.New(t, "client"), certificatetest.New(t, "server")
	write := func(files map[string][]byte) {
		for name, text := range files {
			if err := os.WriteFile(file(name), text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	atServer := func() {
		write(map[string][]byte{"server.pem": theirs.Cert, "server.key": theirs.Key, "clients.pem": ours.Cert})
	}
	atClient := func() {
		write(map[string][]byte{"roots.pem": theirs.Cert, "client.pem": ours.Cert, "client.key": ours.Key})
	}
	atServer()
	atClient()
	addr := porttest.Reserve(t)
	_, port, _ := net.SplitHostPort(addr)
	server := redistest.Start(t, "--tls-port", port, "--tls-cert-file", file("server.pem"), "--tls-key-file", file("server.key"),
		"--tls-ca-cert-file", file("clients.pem"), "--tls-auth-clients", "yes")
	address := "rediss://" + addr + "?sslrootcert=" + file("roots.pem")
	if refusal(t, address, "hush") == "" {
		t.Error("a client without a certificate is refused without a reason")
	}
	address += "&sslcert=" + file("client.pem") + "&sslkey=" + file("client.key")
	s := openURL(t, address, "a")
	if err := s.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	ours, theirs = certificatetest.New(t, "client"), certificatetest.New(t, "server")
	atServer()
	server.Kill()
	server.Restart()
	for range 2 { // the first finds that the connection is gone
		if err := s.Check(t.Context()); err == nil {
			t.Fatal("a server whose certificate is not in the file is trusted")
		}
	}
	atClient()
	awaitStore(t, s)

	write(map[string][]byte{"client.key": []byte("none")})
	a, err := ParseAddress(address)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := New(Config{Address: a, Installation: func() string { return "test" }, Node: "b"}); err == nil || !strings.Contains(err.Error(), file("client.key")) {
		t.Errorf("with a file that has no key: the error %v", err)
	}
}

// startTLS starts a server and returns its address for TLS.
func startTLS(t *testing.T, cert, key string) string {
	t.Helper()
	addr := porttest.Reserve(t)
	_, port, _ := net.SplitHostPort(addr)
	redistest.Start(t, "--tls-port", port, "--tls-cert-file", cert, "--tls-key-file", key, "--tls-auth-clients", "no")
	return addr
}

// certificate writes a certificate for 127.0.0.1 that signs itself.
func certificate(t *testing.T) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for file, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: der}, keyFile: {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return certFile, keyFile
}
