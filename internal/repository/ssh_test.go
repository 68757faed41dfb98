package repository_test

import (
	"bufio"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"fmt"
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

// serveSSH starts sshd. accept are lines of its configuration.
func serveSSH(t *testing.T, accept ...string) *sshServer {
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
	port := freePort(t)
	config := append([]string{
		"ListenAddress 127.0.0.1:" + port, "HostKey " + write("host", hostPrivate), "AuthorizedKeysFile " + write("authorized", string(ssh.MarshalAuthorizedKey(public))),
		"PidFile none", "StrictModes no", "UsePAM no", "PasswordAuthentication no", "KbdInteractiveAuthentication no", "LogLevel ERROR",
	}, accept...)
	if os.Geteuid() == 0 {
		if err := os.MkdirAll("/run/sshd", 0o755); err != nil { // sshd started as root asks for it
			t.Fatal(err)
		}
	}
	c := exec.Command(sshd, "-D", "-e", "-f", write("config", strings.Join(config, "\n")+"\n"))
	out, err := c.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	read := make(chan struct{})
	go func() {
		defer close(read)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			fmt.Fprintln(&log, lines.Text())
		}
	}()
	t.Cleanup(func() {
		_ = c.Process.Kill()
		<-read
		_ = c.Wait()
		if t.Failed() {
			t.Logf("sshd says:\n%s", &log)
		}
	})
	addr := "127.0.0.1:" + port
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for tick := time.NewTicker(10 * time.Millisecond); ; {
		if conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr); err == nil {
			_ = conn.Close()
			break
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal("sshd does not start")
		}
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

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

// Guarantee: the file is read over ssh, with version 2 of the protocol and with the old one that a
// server speaks that takes no variables, with the host key pinned by the first call or known.
// Another host key, a key that the server does not accept and a repository that it does not
// have are refused with what to do.
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
			wantKind(t, err, repository.HostKey, "not in known_hosts: "+hostKey)
			wrong.KnownHosts = "example.com " + server.hostKey
			_, err = head(t, c, wrong)
			wantKind(t, err, repository.HostKey, "known_hosts has no key of "+server.addr)
			wrong.KnownHosts, wrong.HostKey = "", "ssh-ed25519 "+ssh.FingerprintSHA256(other)
			_, err = head(t, c, wrong)
			wantKind(t, err, repository.HostKey, hostKey+", and before "+wrong.HostKey)
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
