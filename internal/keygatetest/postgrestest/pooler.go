package postgrestest

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keygate/keygate/internal/keygatetest/needtest"
	"github.com/keygate/keygate/internal/keygatetest/porttest"
)

// pgbouncer returns the path of PgBouncer, which is not in the PATH of every user on Debian, or "".
func pgbouncer() string {
	for _, name := range []string{"pgbouncer", "/usr/sbin/pgbouncer"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

// Pooler is a PgBouncer before a server.
type Pooler struct {
	Addr   string // host and port
	server *Server
}

// URL returns the URL of a database of the server through the pooler. url leads to the server itself.
func (p *Pooler) URL(url string) string { return strings.Replace(url, p.server.Addr, p.Addr, 1) }

// Pooler starts a PgBouncer in front of the server, and ends it with the test. mode is its pool_mode: "session",
// "transaction" or "statement". Its other settings are the defaults, except for larger pools.
func (s *Server) Pooler(t testing.TB, mode string) *Pooler {
	t.Helper()
	program := pgbouncer()
	if program == "" {
		needtest.Missing(t, "PgBouncer is not installed (Debian: apt-get install pgbouncer)")
	}
	p := &Pooler{Addr: porttest.Reserve(t), server: s}
	dir, err := os.MkdirTemp("", "keygate-pgbouncer-") //nolint:usetesting // another user must get to it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := p.start(t, program, dir, mode); err != nil {
		text, _ := os.ReadFile(filepath.Join(dir, "log"))
		t.Fatalf("start PgBouncer: %v\n%s", err, text)
	}
	return p
}

// start writes the configuration, starts the process and waits until it accepts connections.
func (p *Pooler) start(t testing.TB, program, dir, mode string) error {
	t.Helper()
	host, port, err := net.SplitHostPort(p.Addr)
	if err != nil {
		return err
	}
	toHost, toPort, err := net.SplitHostPort(p.server.Addr)
	if err != nil {
		return err
	}
	files := map[string]string{
		"users": fmt.Sprintf("\"keygate\" %q\n\"postgres\" %[1]q\n", p.server.Password),
		"pgbouncer.ini": fmt.Sprintf("[databases]\n* = host=%s port=%s\n[pgbouncer]\nlisten_addr = %s\nlisten_port = %s\nunix_socket_dir =\n"+
			"auth_type = plain\nauth_file = %s\npool_mode = %s\ndefault_pool_size = 100\nmax_client_conn = 300\n", toHost, toPort, host, port, filepath.Join(dir, "users"), mode),
		"log": "",
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return err
		}
		if err := ownDirectory(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	if err := ownDirectory(dir); err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(dir, "log"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer log.Close()
	c := exec.Command(program, filepath.Join(dir, "pgbouncer.ini")) //nolint:noctx // it ends with the test
	c.Dir, c.Stdout, c.Stderr, c.SysProcAttr = dir, log, log, attributes()
	exited, err := startProcess(c)
	if err != nil {
		return err
	}
	t.Cleanup(func() {
		select {
		case <-exited:
			text, _ := os.ReadFile(filepath.Join(dir, "log"))
			t.Errorf("PgBouncer ended by itself: %v\n%s", c.ProcessState, text)
		default:
			_ = c.Process.Kill() // it keeps nothing
			<-exited
		}
	})
	return p.await(exited)
}

// await waits until the pooler passes connections on.
func (p *Pooler) await(exited <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(context.Background(), startTime)
	defer cancel()
	for {
		c, err := pgx.Connect(ctx, p.URL(p.server.URL("postgres")))
		if err == nil {
			return c.Close(ctx)
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-exited:
			return errExited
		case <-ctx.Done():
			return err
		}
	}
}
