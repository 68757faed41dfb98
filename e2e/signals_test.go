package e2e

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/keygate/keygate/e2e/tally"
	"github.com/keygate/keygate/internal/certificate/certificatetest"
	"github.com/keygate/keygate/internal/keygatetest/awaittest"
	"github.com/keygate/keygate/internal/keygatetest/porttest"
)

// Guarantee: contract, section 1. SIGPIPE ends nothing: with the reader of standard output and standard
// error gone, the server serves, counts the lines that it cannot write, and stops with status 0.
func TestReaderOfTheLogGoesAway(t *testing.T) {
	t.Parallel()
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	s := &server{
		t: t, dataDir: filepath.Join(t.TempDir(), "data"), flags: []string{"--access-log", "stdout", "--log-level", "debug"}, stdio: writer,
		gateway: porttest.Reserve(t), admin: porttest.Reserve(t), ops: porttest.Reserve(t),
	}
	s.start()
	t.Cleanup(func() { s.end(syscall.SIGKILL) })
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	if err := reader.Close(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"keygate_access_log_lost_total", "keygate_log_lost_total"} {
		if !awaittest.Holds(func() bool {
			s.mustSend(http.StatusNotFound, "GET", "/nothing", "")
			return tally.Lost(s.metrics())[name] > 0
		}) {
			t.Errorf("no line of a log without a reader was counted in %s", name)
		}
	}
	if status := s.end(syscall.SIGTERM); status != 0 {
		t.Errorf("the server ended with status %d, want 0", status)
	}
}

// Guarantee: contract, section 1. SIGHUP reads certificates again and opens the access log again. It ends
// no request and not the server.
func TestHangupReloads(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cert, key := certificatetest.New(t, "localhost").Write(t, dir)
	log := filepath.Join(dir, "access.log")
	s := startServer(t, "--tls-cert", cert, "--tls-key", key, "--access-log", log)
	arrived, finish := make(chan struct{}), make(chan struct{})
	upstream := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		close(arrived)
		<-finish
	}))
	defer upstream.Close()
	s.newGateway(upstream.URL, nil)
	_, secret := s.newKey(nil)
	under := make(chan int, 1)
	go func() {
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
		req, _ := http.NewRequest(http.MethodGet, "https://"+s.gateway+"/a", nil)
		req.Header.Set("Authorization", "Bearer "+secret)
		resp, err := client.Do(req)
		if err != nil {
			under <- 0
			return
		}
		_ = resp.Body.Close()
		under <- resp.StatusCode
	}()
	<-arrived
	certificatetest.NewFor(t, "localhost", "renewed.example").Write(t, dir)
	if err := os.Rename(log, log+".moved"); err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	if !awaittest.Holds(func() bool {
		_, err := os.Stat(log)
		return err == nil && strings.Contains(s.output.String(), "renewed.example")
	}) {
		t.Errorf("SIGHUP did not open the access log again and read the certificate again:\n%s", s.output)
	}
	close(finish)
	if status := <-under; status != http.StatusOK {
		t.Errorf("the request under way got status %d, want 200", status)
	}
	if status := s.end(syscall.SIGTERM); status != 0 {
		t.Errorf("the server ended with status %d, want 0\n%s", status, s.output)
	}
}
