package e2e

import (
	"errors"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/keygatetest/awaittest"
)

// underSystemd makes a command that starts keygate with sockets that were opened before, as systemd does.
func underSystemd(t *testing.T, sockets map[string]*os.File, env []string, args ...string) *exec.Cmd {
	t.Helper()
	var names []string
	var files []*os.File
	for name, file := range sockets {
		names, files = append(names, name), append(files, file)
	}
	cmd := exec.Command("sh", append([]string{"-c", `LISTEN_PID=$$ exec "$0" "$@"`, binary}, args...)...)
	cmd.ExtraFiles = files
	cmd.Env = append(os.Environ(), "LISTEN_FDS="+string(rune('0'+len(files))), "LISTEN_FDNAMES="+strings.Join(names, ":"))
	cmd.Env = append(cmd.Env, env...)
	return cmd
}

// socket opens a listener of 127.0.0.1 that outlives the processes that get a copy of it.
func socket(t *testing.T) (addr string, file *os.File) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	file, err = l.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	return l.Addr().String(), file
}

// Guarantee: docs/deploy.md, systemd. While a service is restarted, its sockets stay open: no connection is
// refused and no request fails. The service manager is told when the server is ready, that it is alive, and
// that it stops.
func TestRestartUnderSystemdLosesNothing(t *testing.T) {
	t.Parallel()
	sockets := map[string]*os.File{}
	s := &server{t: t, dataDir: filepath.Join(t.TempDir(), "data"), output: &syncBuffer{}}
	for name, addr := range map[string]*string{"gateway": &s.gateway, "admin": &s.admin, "ops": &s.ops} {
		*addr, sockets[name] = socket(t)
	}
	notices, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "notify"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = notices.Close() })
	await := func(want string) {
		t.Helper()
		if err := notices.SetReadDeadline(time.Now().Add(awaittest.Timeout)); err != nil {
			t.Fatal(err)
		}
		for buf := make([]byte, 1024); ; {
			n, err := notices.Read(buf)
			if err != nil {
				t.Fatalf("keygate did not tell %s: %v\n%s", want, err, s.output)
			}
			if string(buf[:n]) == want {
				return
			}
		}
	}
	env := []string{"NOTIFY_SOCKET=" + notices.LocalAddr().String(), "WATCHDOG_USEC=200000"}
	start := func() {
		s.cmd = underSystemd(t, sockets, env, "serve", "--data-dir", s.dataDir)
		s.cmd.Stdout, s.cmd.Stderr = s.output, s.output
		if err := s.cmd.Start(); err != nil {
			t.Fatal(err)
		}
		exited := make(chan error, 1)
		s.exited = exited
		go func(cmd *exec.Cmd) { exited <- cmd.Wait() }(s.cmd)
		await("READY=1")
		await("WATCHDOG=1")
	}
	start()
	t.Cleanup(func() { s.end(syscall.SIGKILL) })
	key, err := os.ReadFile(filepath.Join(s.dataDir, "admin.key"))
	if err != nil {
		t.Fatal(err)
	}
	s.key = strings.TrimSpace(string(key))
	s.newGateway(newEcho(t), nil)
	_, secret := s.newKey(nil)

	done := make(chan struct{})
	var clients sync.WaitGroup
	for range 4 {
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: awaittest.Timeout}
		clients.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.gateway+"/a", nil)
				if err != nil {
					t.Error(err)
					return
				}
				req.Header.Set("Authorization", "Bearer "+secret)
				resp, err := client.Do(req)
				if err != nil {
					t.Errorf("a request during a restart: %v", err)
					return
				}
				_ = resp.Body.Close()
				if resp.StatusCode != http.StatusOK {
					t.Errorf("a request during a restart got %d, want 200", resp.StatusCode)
					return
				}
			}
		})
	}
	for range 2 {
		if status := s.end(syscall.SIGTERM); status != 0 {
			t.Errorf("keygate exited with %d, want 0\n%s", status, s.output)
		}
		await("STOPPING=1")
		start()
	}
	close(done)
	clients.Wait()
}

// Guarantee: a socket that cannot be used is an error that says what to change in the socket unit.
func TestSocketsOfSystemdThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	_, tcp := socket(t)
	datagrams, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer datagrams.Close()
	udp, err := datagrams.(*net.UDPConn).File()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = udp.Close() })
	for name, test := range map[string]struct {
		sockets map[string]*os.File
		want    string
		flags   []string
	}{
		"an unknown name":   {map[string]*os.File{"keygate.socket": tcp}, "FileDescriptorName=", nil},
		"datagrams":         {map[string]*os.File{"gateway": udp}, "set ListenStream=", nil},
		"of another role":   {map[string]*os.File{"admin": tcp}, "--role=gateway does not serve", []string{"--role=gateway", "--database-url=postgres://127.0.0.1:1/x"}},
		"one of two is bad": {map[string]*os.File{"gateway": tcp, "second": tcp}, "socket second of systemd", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := underSystemd(t, test.sockets, nil, append([]string{"serve", "--data-dir", t.TempDir()}, test.flags...)...)
			out, err := cmd.CombinedOutput()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(string(out), test.want) {
				t.Errorf("keygate ended with %v, want exit status 1 and a message with %q:\n%s", err, test.want, out)
			}
		})
	}
}
