package cli_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/cli"
	"github.com/keygate/keygate/internal/keygatetest"
)

// followedLog is the output of a running "audit-log --follow -o json".
type followedLog struct {
	t      *testing.T
	stop   context.CancelFunc
	out    io.Reader
	lines  *bufio.Scanner
	seen   map[string]bool
	stderr bytes.Buffer // written by the command until exit
	exit   chan int
}

// followLog starts "audit-log --follow" on a server.
func followLog(t *testing.T, s *keygatetest.Server) *followedLog {
	t.Helper()
	return follow(t, s, s.AdminKey, "audit-log", "--follow", "-o", "json")
}

// follow starts a command that writes JSON lines until it is stopped.
func follow(t *testing.T, s *keygatetest.Server, key string, args ...string) *followedLog {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), scriptTimeout)
	t.Cleanup(stop)
	out, in := io.Pipe()
	f := &followedLog{t: t, stop: stop, out: out, lines: bufio.NewScanner(out), seen: map[string]bool{}, exit: make(chan int, 1)}
	go func() {
		defer in.Close()
		f.exit <- cli.Run(ctx, &cli.System{
			In: bytes.NewReader(nil), Out: in, Err: &f.stderr, Version: "test",
			Env: func(name string) (string, bool) {
				v, ok := map[string]string{"KEYGATE_URL": s.AdminURL(), "KEYGATE_API_KEY": key}[name]
				return v, ok
			},
		}, args)
	}()
	return f
}

// await reads records until found returns true for one. Each must be new, and none may
// be of a call that the command itself made.
func (f *followedLog) await(what string, found func(e *client.AuditEntry) bool) {
	f.t.Helper()
	for f.lines.Scan() {
		var e client.AuditEntry
		if err := json.Unmarshal(f.lines.Bytes(), &e); err != nil {
			f.t.Fatalf("%v: %s", err, f.lines.Bytes())
		}
		if e.Path == "/v1/audit-log" {
			f.t.Errorf("its own call is shown: %s", f.lines.Bytes())
		}
		if line := f.lines.Text(); f.seen[line] {
			f.t.Errorf("shown twice: %s", line)
		} else {
			f.seen[line] = true
		}
		if found(&e) {
			return
		}
	}
	f.t.Fatalf("it ended before %s was shown: error %v, standard error %q", what, f.lines.Err(), f.stderr.String())
}

// awaitRequest reads records up to the record of a request.
func (f *followedLog) awaitRequest(id string) {
	f.t.Helper()
	f.await(id, func(e *client.AuditEntry) bool { return e.RequestID == id })
}

// end stops the command and returns its exit status and standard error.
func (f *followedLog) end() (status int, stderr string) {
	f.stop()
	return f.wait()
}

// wait waits for the end of the command, and discards what it writes until then: otherwise the
// command would wait for its reader.
func (f *followedLog) wait() (status int, stderr string) {
	go func() { _, _ = io.Copy(io.Discard, f.out) }()
	status = <-f.exit
	return status, f.stderr.String()
}

// Guarantee: audit-log --follow shows the latest records and then each new one once,
// oldest first, without its own calls, and exits with 0 when it is stopped.
func TestFollowShowsNewRecordsUntilStopped(t *testing.T) {
	s := keygatetest.Start(t)
	up := keygatetest.NewUpstream(t)
	g, err := s.Admin.CreateGateway(t.Context(), client.CreateGatewayRequest{Name: "g", UpstreamURL: up.URL})
	if err != nil {
		t.Fatal(err)
	}
	call := func(path string) (requestID string) {
		t.Helper()
		res, err := http.Get(s.GatewayURL() + path)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		return res.Header.Get("X-Request-Id")
	}
	before := call("/before")
	f := followLog(t, s)
	f.awaitRequest(before)
	for _, path := range []string{"/one", "/two", "/three"} {
		f.awaitRequest(call(path))
	}
	if _, err := s.Admin.DeleteGateway(t.Context(), g.GatewayID); err != nil {
		t.Fatal(err)
	}
	f.await("the deletion", func(e *client.AuditEntry) bool {
		return e.AuditAction != nil && e.Action == "gateway.delete" && e.Target == g.GatewayID
	})
	if status, stderr := f.end(); status != 0 || stderr != "" {
		t.Errorf("exit status %d, standard error %q; want 0 and nothing", status, stderr)
	}
}

// Guarantee: explain --follow shows each matching request once, as soon as it is refused. It exits
// with 0 when it is stopped, and with another status when its key is revoked.
func TestFollowShowsRefusedRequests(t *testing.T) {
	s := keygatetest.Start(t)
	up := keygatetest.NewUpstream(t)
	g, err := s.Admin.CreateGateway(t.Context(), client.CreateGatewayRequest{Name: "g", UpstreamURL: up.URL})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Admin.CreateRoute(t.Context(), g.GatewayID, client.CreateRouteRequest{Path: "/orders", Methods: []string{http.MethodPost}}); err != nil {
		t.Fatal(err)
	}
	level := client.CreateKeyRequestLevelAccount
	key, err := s.Admin.CreateKey(t.Context(), client.CreateKeyRequest{Name: "on call", Level: &level, Scope: "read"})
	if err != nil {
		t.Fatal(err)
	}
	partner, err := s.Admin.CreateKey(t.Context(), client.CreateKeyRequest{Name: "partner", Scope: "read"})
	if err != nil {
		t.Fatal(err)
	}
	refused := func(key string) (requestID string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.GatewayURL()+"/orders", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+key)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		return res.Header.Get("X-Request-Id")
	}
	all := follow(t, s, s.AdminKey, "explain", "--follow", "-o", "json")
	own := follow(t, s, key.Secret, "explain", "--follow", "--key-id", "partner", "-o", "json")
	// The streams have begun when a request that is refused after another is shown.
	begun := make(chan struct{})
	go func() {
		for {
			select {
			case <-begun:
				return
			case <-t.Context().Done():
				return
			case <-time.After(20 * time.Millisecond):
				_ = refused(partner.Secret)
			}
		}
	}()
	shown := func(f *followedLog, id string) {
		t.Helper()
		f.await(id, func(e *client.AuditEntry) bool { return id == "" || e.RequestID == id })
	}
	shown(all, "")
	shown(own, "")
	close(begun)
	_ = refused("kg_unknown") // of another key
	last := refused(partner.Secret)
	shown(all, last)
	shown(own, last)
	if _, err := s.Admin.RevokeKey(t.Context(), key.KeyID); err != nil {
		t.Fatal(err)
	}
	if status, stderr := own.wait(); status == 0 || !strings.Contains(stderr, "the key was revoked") {
		t.Errorf("after the revocation: exit status %d, standard error %q", status, stderr)
	}
	if status, stderr := all.end(); status != 0 || stderr != "" {
		t.Errorf("exit status %d, standard error %q; want 0 and nothing", status, stderr)
	}
}

// Guarantee: flags that make no sense with --follow are refused.
func TestExplainFollowRefusesFlagsOfTheList(t *testing.T) {
	s := keygatetest.Start(t)
	for _, args := range [][]string{{"--since", "1h"}, {"--limit", "3"}, {"-o", "yaml"}, {"req_01jz8y5c3te9b8r2m6q4v7x0aa"}} {
		f := follow(t, s, s.AdminKey, append([]string{"explain", "--follow"}, args...)...)
		if status, stderr := f.end(); status != 2 || !strings.Contains(stderr, "cannot be used with") {
			t.Errorf("%v: exit status %d, standard error %q", args, status, stderr)
		}
	}
}
