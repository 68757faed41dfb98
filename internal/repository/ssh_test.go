package repository_test

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/keygate/keygate/internal/repository"
)

// sshServer is sshd of this machine with a configuration of its own, on a port of loopback.
type sshServer struct {
	addr    string
	user    string
	key     string // a private key that it accepts
	hostKey string // its host key as a line of known_hosts has it: type and key
	dir     string
}

// newKey returns a private key in PEM and its public key.
func newKey(t testing.TB) (private string, public ssh.PublicKey) {
	t.Helper()
	pub, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(key, "")
	if err != nil {
		t.Fatal(err)
	}
	public, err = ssh.NewPublicKey(pub)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(block)), public
}

// newECDSAKey returns a public key of another type than newKey does.
func newECDSAKey(t testing.TB) ssh.PublicKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	public, err := ssh.NewPublicKey(&key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	return public
}

// serveSSH starts sshd. accept are lines of its configuration.
func serveSSH(t testing.TB, accept ...string) *sshServer {
	t.Helper()
	sshd, err := exec.LookPath("sshd")
	if err != nil {
		sshd = "/usr/sbin/sshd"
	}
	if _, err := os.Stat(sshd); err != nil {
		t.Fatal("this test needs sshd, of the Debian package openssh-server: run make deps")
	}
	dir := t.TempDir()
	write := func(name, content string) string {
		at := filepath.Join(dir, name)
		if err := os.WriteFile(at, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return at
	}
	hostPrivate, hostPublic := newKey(t)
	private, public := newKey(t)
	config := append([]string{
		"HostKey " + write("host", hostPrivate), "AuthorizedKeysFile " + write("authorized", string(ssh.MarshalAuthorizedKey(public))),
		"PidFile none", "StrictModes no", "UsePAM no", "PasswordAuthentication no", "KbdInteractiveAuthentication no", "LogLevel INFO",
	}, accept...)
	if os.Geteuid() == 0 {
		if err := os.MkdirAll("/run/sshd", 0o755); err != nil { // sshd started as root asks for it
			t.Fatal(err)
		}
	}
	addr := ""
	for range 10 { // another process may take the port
		port := freePort(t)
		at := write("config", strings.Join(append(config, "ListenAddress 127.0.0.1:"+port), "\n")+"\n")
		if startSSH(t, exec.Command(sshd, "-D", "-e", "-f", at), "127.0.0.1:"+port) {
			addr = "127.0.0.1:" + port
			break
		}
	}
	if addr == "" {
		t.Fatal("sshd ends at once")
	}
	user := os.Getenv("USER")
	if out, err := exec.Command("id", "-un").Output(); err == nil {
		user = strings.TrimSpace(string(out))
	}
	return &sshServer{
		addr: addr, user: user, key: private, dir: dir,
		hostKey: strings.TrimSpace(string(ssh.MarshalAuthorizedKey(hostPublic))),
	}
}

// startSSH starts sshd and waits until it listens at addr. It reports false if sshd ends.
func startSSH(t testing.TB, c *exec.Cmd, addr string) bool {
	t.Helper()
	out, err := c.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	listens, ended := make(chan struct{}, 1), make(chan struct{})
	go func() {
		defer close(ended)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if strings.HasPrefix(lines.Text(), "Server listening on ") {
				listens <- struct{}{}
			}
			fmt.Fprintln(&log, lines.Text())
		}
	}()
	t.Cleanup(func() {
		_ = c.Process.Kill()
		<-ended
		_ = c.Wait()
		if t.Failed() {
			t.Logf("sshd says:\n%s", &log)
		}
	})
	select {
	case <-listens:
		return true
	case <-ended:
		return false
	case <-time.After(time.Minute):
		t.Fatalf("sshd does not listen at %s", addr)
		return false
	}
}

func freePort(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

// Guarantee: the file is read over ssh, with version 2 of the protocol and with the old version,
// which a server speaks that ignores variables; the host key is pinned by the first call, or known
// before. Another host key, a key that the server does not accept and a repository that it does not
// have are refused, and the error says what to do.
func TestReadOverSSH(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	r := newRepo(t, filepath.Join(root, "it's"))
	r.write("api/openapi.yaml", "openapi: 3.1.0")
	r.write("api/other.yaml", "x")
	want := r.commit("first")
	for name, accept := range map[string]string{"version 2": "AcceptEnv GIT_PROTOCOL", "version 0": "AcceptEnv LANG"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := serveSSH(t, accept)
			c := client(t, repository.Config{})
			s := repository.Source{URL: "ssh://" + server.user + "@" + server.addr + r.dir, Credential: repository.Credential{SSHKey: server.key}}
			_, hostKey, err := c.Head(context.Background(), source(s))
			if err != nil {
				t.Fatal(err)
			}
			s.HostKey = hostKey
			f, err := read(t, c, s)
			if err != nil || f.Commit != want || string(f.Content) != "openapi: 3.1.0" || f.HostKey != hostKey || !strings.HasPrefix(hostKey, "ssh-ed25519 SHA256:") {
				t.Fatalf("got %+v, %v, with the host key %q", f, err, hostKey)
			}
			s.KnownHosts, s.HostKey = "# a comment\n["+strings.Replace(server.addr, ":", "]:", 1)+" "+server.hostKey+"\n", ""
			if _, err := read(t, c, s); err != nil {
				t.Error(err)
			}
			wrong := s
			_, other := newKey(t)
			wrong.KnownHosts = "[" + strings.Replace(server.addr, ":", "]:", 1) + " " + string(ssh.MarshalAuthorizedKey(other))
			_, err = head(t, c, wrong)
			wantKind(t, err, repository.HostKey, "not in known_hosts: "+hostKey+"; known_hosts has ssh-ed25519 "+ssh.FingerprintSHA256(other))
			wrong.KnownHosts = "example.com " + server.hostKey
			_, err = head(t, c, wrong)
			wantKind(t, err, repository.HostKey, "known_hosts has no key of "+server.addr)
			wrong.KnownHosts, wrong.HostKey = "", "ssh-ed25519 "+ssh.FingerprintSHA256(other)
			_, err = head(t, c, wrong)
			wantKind(t, err, repository.HostKey, hostKey+", and before "+wrong.HostKey)
			// Keys of another type than the server's.
			ecdsaKey := newECDSAKey(t)
			wrong.HostKey = "ecdsa-sha2-nistp256 " + ssh.FingerprintSHA256(ecdsaKey)
			_, err = head(t, c, wrong)
			wantKind(t, err, repository.HostKey, hostKey+", and before "+wrong.HostKey+". If this is right")
			wrong.KnownHosts, wrong.HostKey = "["+strings.Replace(server.addr, ":", "]:", 1)+" "+string(ssh.MarshalAuthorizedKey(ecdsaKey)), ""
			_, err = head(t, c, wrong)
			wantKind(t, err, repository.HostKey, "not in known_hosts: "+hostKey+"; known_hosts has ecdsa-sha2-nistp256 "+ssh.FingerprintSHA256(ecdsaKey))
			wrong = s
			wrong.Credential.SSHKey, _ = newKey(t)
			_, err = head(t, c, wrong)
			wantKind(t, err, repository.Unauthorized, "refuses the ssh_key")
			wrong = s
			wrong.URL = "ssh://" + server.user + "@" + server.addr + "/nowhere"
			_, err = head(t, c, wrong)
			wantKind(t, err, repository.NoRepository, "")
			wrong = s
			wrong.Credential = repository.Credential{}
			_, err = head(t, c, wrong)
			wantKind(t, err, repository.Unauthorized, "no ssh_key")
			wrong = s
			wrong.Public = true
			_, err = head(t, c, wrong)
			wantKind(t, err, repository.Refused, "the server's address is not allowed")
			wrong = s
			wrong.Branch = "none"
			_, err = head(t, c, wrong)
			wantKind(t, err, repository.NoBranch, "no branch none")
		})
	}
}

// Guarantee: a server cannot keep processors busy by asking for new keys of a connection again and again.
func TestServerThatAsksForNewKeys(t *testing.T) {
	t.Parallel()
	r := newRepo(t, filepath.Join(t.TempDir(), "repo"))
	r.write("api/openapi.yaml", rand.Text())
	noise := make([]byte, 1<<20)
	_, _ = rand.Read(noise)
	r.write("api/noise", string(noise))
	r.commit("first")
	server := serveSSH(t, "AcceptEnv LANG", "RekeyLimit 16K") // with the old version of the protocol, the pack has all files
	s := repository.Source{URL: "ssh://" + server.user + "@" + server.addr + r.dir, Credential: repository.Credential{SSHKey: server.key}}
	_, err := read(t, client(t, repository.Config{}), s)
	wantKind(t, err, repository.Malformed, "asks for new keys")
}

// Guarantee: a server that accepts a connection and says nothing is reported as too slow.
func TestSilentSSHServer(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(io.Discard, conn); _ = conn.Close() }()
		}
	}()
	t.Cleanup(func() { _ = l.Close() })
	c := client(t, repository.Config{})
	repository.SetStallTime(c, 20*time.Millisecond)
	private, _ := newKey(t)
	_, err = head(t, c, repository.Source{URL: "ssh://git@" + l.Addr().String() + "/x", Credential: repository.Credential{SSHKey: private}})
	wantKind(t, err, repository.TooSlow, "less than 16 KiB in 30 s")
}

// Guarantee: temporary files that an earlier process left are removed at a start, and nothing else.
func TestLeftoversAreRemoved(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"keygate-pack-1", "keygate-known-hosts-1", "other"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c, err := repository.New(repository.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 || left[0].Name() != "other" {
		t.Errorf("got %v, %v, want the other file alone", left, err)
	}
}
