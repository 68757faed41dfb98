package postgrestest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keygate/keygate/internal/keygatetest/needtest"
	"github.com/keygate/keygate/internal/keygatetest/porttest"
)

// startTime bounds the start of a server.
const startTime = time.Minute

// Config configures a server.
type Config struct {
	Durable  bool     // sync to the disk, as a real server does
	Settings []string // such as "max_connections=10"
}

// Server is a PostgreSQL server. A test may stop and start it.
type Server struct {
	Addr     string // host and port
	Password string // of the users keygate and postgres

	cfg     Config
	bin     string // directory of the programs
	dir     string
	version int
	release func()        // gives the port back
	process *os.Process   // nil if it does not run
	exited  chan struct{} // closed when process has exited
	up      atomic.Bool
}

// Start starts a server for one test.
func Start(t testing.TB, cfg Config) *Server {
	t.Helper()
	need(t)
	s, err := start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.end(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// Open starts a server for a program that is not a test, such as a benchmark. The caller must call Close.
func Open(cfg Config) (*Server, error) {
	if programs() == "" {
		return nil, errors.New(missing)
	}
	return start(cfg)
}

// Close stops a server that Open started, and removes its files.
func (s *Server) Close() error { return s.end() }

const missing = "PostgreSQL is not installed (Debian: apt-get install postgresql)"

// programs returns the directory of PostgreSQL's programs, which is not in PATH on Debian, or "".
func programs() string {
	if path, err := exec.LookPath("initdb"); err == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil {
			return filepath.Dir(path)
		}
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	best, newest := "", 0
	for _, path := range found {
		version, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path))))
		if version > newest {
			best, newest = filepath.Dir(path), version
		}
	}
	return best
}

// need skips the test, or fails it in CI, if there is no PostgreSQL.
func need(t testing.TB) {
	t.Helper()
	if programs() == "" {
		needtest.Missing(t, missing)
	}
}

func start(cfg Config) (_ *Server, err error) {
	s := &Server{cfg: cfg, bin: programs(), Password: rand.Text()}
	if s.dir, err = os.MkdirTemp("", "keygate-postgres-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.end())
		}
	}()
	if s.Addr, s.release, err = porttest.Hold(); err != nil {
		return nil, err
	}
	if err := s.initialize(); err != nil {
		return nil, fmt.Errorf("initdb: %w", err)
	}
	if err := s.run(); err != nil {
		return nil, err
	}
	return s, s.Admin(context.Background(), `CREATE USER keygate PASSWORD '`+s.Password+`'`)
}

// initialize creates the files of the databases.
func (s *Server) initialize() error {
	if err := ownDirectory(s.dir); err != nil {
		return err
	}
	secret := filepath.Join(s.dir, "password")
	if err := os.WriteFile(secret, []byte(s.Password+"\n"), 0o644); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTime)
	defer cancel()
	c := exec.CommandContext(ctx, filepath.Join(s.bin, "initdb"), "-D", filepath.Join(s.dir, "data"), "-U", "postgres",
		"--auth=password", "--pwfile="+secret, "--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions")
	c.Dir, c.SysProcAttr = s.dir, attributes()
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	text, err := os.ReadFile(filepath.Join(s.dir, "data", "PG_VERSION"))
	if err != nil {
		return err
	}
	s.version, _ = strconv.Atoi(regexp.MustCompile(`^\d+`).FindString(string(text)))
	return nil
}

// run starts the process and waits until it accepts connections.
func (s *Server) run() error {
	host, port, err := net.SplitHostPort(s.Addr)
	if err != nil {
		return err
	}
	args := []string{"-D", filepath.Join(s.dir, "data"), "-p", port}
	settings := []string{"listen_addresses=" + host, "unix_socket_directories=", "max_connections=400", "shared_buffers=64MB", "log_min_messages=warning"}
	if !s.cfg.Durable {
		settings = append(settings, "fsync=off", "full_page_writes=off", "synchronous_commit=local")
	}
	for _, setting := range append(settings, s.cfg.Settings...) {
		args = append(args, "-c", setting)
	}
	log, err := os.OpenFile(filepath.Join(s.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	c := exec.Command(filepath.Join(s.bin, "postgres"), args...) //nolint:noctx // it ends with Stop
	c.Dir, c.Stdout, c.Stderr, c.SysProcAttr = s.dir, log, log, attributes()
	exited, err := startProcess(c)
	if err != nil {
		return err
	}
	s.process, s.exited = c.Process, exited
	if err := s.await(); err != nil {
		text, _ := os.ReadFile(log.Name())
		return fmt.Errorf("start PostgreSQL: %w\n%s", err, text)
	}
	s.up.Store(true)
	return nil
}

// startProcess starts a process. exited is closed when it has exited.
func startProcess(c *exec.Cmd) (exited chan struct{}, err error) {
	started, exited := make(chan error, 1), make(chan struct{})
	go func() { // ends with the process
		// The process ends with the thread that started it, so that none is left behind when
		// the tests are killed.
		runtime.LockOSThread()
		defer close(exited)
		err := c.Start()
		started <- err
		if err == nil {
			_ = c.Wait()
		}
	}()
	return exited, <-started
}

// await waits until the server accepts connections.
func (s *Server) await() error {
	ctx, cancel := context.WithTimeout(context.Background(), startTime)
	defer cancel()
	for {
		c, err := pgx.Connect(ctx, s.url("postgres", "postgres"))
		if err == nil {
			return c.Close(ctx)
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-s.exited:
			return errors.Join(errExited, err)
		case <-ctx.Done():
			return err
		}
	}
}

func (s *Server) running() bool { return s.up.Load() }

// Stop ends the server and the connections to it. Start starts it again.
func (s *Server) Stop(t testing.TB) {
	t.Helper()
	if err := s.stop(stopFast); err != nil {
		t.Fatal(err)
	}
}

// Crash ends the server as if it had failed: it recovers from its log at the next Start.
func (s *Server) Crash(t testing.TB) {
	t.Helper()
	if err := s.stop(stopAtOnce); err != nil {
		t.Fatal(err)
	}
}

// Kill kills all processes of the server, as kill -9 does: it recovers from its log at the next Start.
func (s *Server) Kill(t testing.TB) {
	t.Helper()
	if s.process == nil {
		return
	}
	s.up.Store(false)
	all, err := family(s.process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all { // the first is the parent of the others, so no new ones appear
		if err := p.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Fatal(err)
		}
	}
	<-s.exited
	s.process = nil
}

// Start starts the server again after Stop, Crash or Kill.
func (s *Server) Start(t testing.TB) {
	t.Helper()
	end := time.Now().Add(startTime)
	err := s.run()
	// Killed processes may use the shared memory for a moment longer, which a new server refuses.
	for errors.Is(err, errExited) && time.Now().Before(end) {
		err = s.run()
	}
	if err != nil {
		t.Fatal(err)
	}
}

var errExited = errors.New("the process has exited")

func (s *Server) stop(signal os.Signal) error {
	if s.process == nil {
		return nil
	}
	s.up.Store(false)
	if err := s.process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-s.exited
	s.process = nil
	return nil
}

// end stops the server for good and removes its files.
func (s *Server) end() error {
	err := s.stop(stopAtOnce)
	if s.release != nil {
		s.release()
	}
	return errors.Join(err, os.RemoveAll(s.dir))
}
