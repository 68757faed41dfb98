// Package redistest runs a real Redis server for a test. Where redis-server is not installed, the
// tests that need it are skipped; if the environment variable CI is true, they fail.
package redistest

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/keygatetest/needtest"
	"github.com/keygate/keygate/internal/keygatetest/porttest"
)

// Server is a Redis server of its own process, on a port of its own. It keeps nothing on disk unless
// options say so.
type Server struct {
	Addr string // host:port

	t       testing.TB
	options []string
	dir     string
	process *exec.Cmd
}

// Start starts a server and stops it when the test ends. Options are options of its command line,
// as in "--maxmemory-policy", "allkeys-lru".
func Start(t testing.TB, options ...string) *Server {
	t.Helper()
	Need(t)
	s := &Server{Addr: porttest.Reserve(t), t: t, options: options, dir: t.TempDir()}
	s.Restart()
	t.Cleanup(s.Kill)
	return s
}

// Need skips the test, or fails it in CI, if there is no redis-server.
func Need(t testing.TB) {
	t.Helper()
	needtest.Program(t, "redis-server", "redis-server")
}

// Restart starts the server again after Kill or Stop, at the same address, with what its options made it
// keep on disk.
func (s *Server) Restart() {
	s.t.Helper()
	_, port, _ := net.SplitHostPort(s.Addr)
	args := append([]string{"--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", s.dir}, s.options...)
	s.process = exec.Command("redis-server", args...)
	if err := s.process.Start(); err != nil {
		s.t.Fatalf("start redis-server: %v", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for !s.answers(ctx) {
		if ctx.Err() != nil {
			s.t.Fatal("redis-server does not answer")
		}
	}
}

// answers waits until the server answers a PING, or a little while.
func (s *Server) answers(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", s.Addr)
	if err != nil {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
		}
		return false
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	_ = conn.SetDeadline(deadline)
	if _, err := fmt.Fprint(conn, "PING\r\n"); err != nil {
		return false
	}
	answer := make([]byte, 5)
	n, err := conn.Read(answer)
	return err == nil && (string(answer[:n]) == "+PONG" || string(answer[:n]) == "-NOAU")
}

// Stop ends the server in order. With the option "--save", "3600 1" it keeps its data for Restart.
func (s *Server) Stop() {
	s.t.Helper()
	if s.process == nil {
		return
	}
	if err := s.process.Process.Signal(terminate); err != nil {
		s.t.Errorf("stop redis-server: %v", err)
	}
	_ = s.process.Wait()
	s.process = nil
}

// Kill kills the server, as kill -9 does. Everything that it has not written is lost.
func (s *Server) Kill() {
	if s.process == nil {
		return
	}
	_ = s.process.Process.Kill()
	_ = s.process.Wait()
	s.process = nil
}

// Do sends a command that is answered with OK, such as CONFIG SET maxmemory 1.
func (s *Server) Do(command string) {
	s.t.Helper()
	conn, err := net.Dial("tcp", s.Addr)
	if err != nil {
		s.t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
	if _, err := fmt.Fprint(conn, command, "\r\n"); err != nil {
		s.t.Fatal(err)
	}
	if answer, err := bufio.NewReader(conn).ReadString('\n'); err != nil || !strings.HasPrefix(answer, "+OK") {
		s.t.Fatalf("%s: %q, %v", command, answer, err)
	}
}

// Pause makes the server hang, as SIGSTOP does, until Resume.
func (s *Server) Pause() { s.signal(stop) }

// Resume ends a Pause.
func (s *Server) Resume() { s.signal(cont) }
