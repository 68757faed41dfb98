//go:build linux

package main

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/keygate/keygate/bench/keygate"
	"github.com/keygate/keygate/bench/stats"
	"github.com/keygate/keygate/client"
)

const (
	followers = 1000 // gateways that follow the repository, polled each minute
	pushed    = 20   // commits with a push hook
	callPace  = 12 * time.Millisecond
)

// repositories measures the CPU of a server whose gateways follow a repository on this machine in which
// nothing changes, and then the time from a push hook until the new route of one of them is in force.
func repositories(ctx context.Context, o options, dir string, w io.Writer) (string, error) {
	service := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer service.Close()
	r := gitDirectory(filepath.Join(dir, "repository"))
	if err := r.create(ctx); err != nil {
		return "", err
	}
	s, err := keygate.Start(ctx, keygate.Config{Binary: o.binary, Dir: dir, Args: []string{"--repository-allow-file", string(r)}})
	if err != nil {
		return "", err
	}
	defer s.Stop()
	idle, err := cpuWhile(ctx, s, o.duration)
	if err != nil {
		return "", err
	}
	var host, gatewayID, secret string
	for i := range followers {
		g, err := s.Admin.CreateGateway(ctx, client.CreateGatewayRequest{Name: fmt.Sprintf("follower-%d", i), UpstreamURL: service.URL})
		if err != nil {
			return "", err
		}
		body, err := json.Marshal(map[string]string{"url": "file://" + string(r), "branch": "main", "path": "openapi.json", "kind": "spec"})
		if err != nil {
			return "", err
		}
		res, err := s.Admin.Do(ctx, &client.Request{Method: http.MethodPut, Path: "/v1/gateways/" + g.GatewayID + "/repository", Body: body, ContentType: "application/json"})
		if err != nil {
			return "", err
		}
		var made struct {
			HookSecret string `json:"hook_secret"`
		}
		if err := json.Unmarshal(res.Body, &made); err != nil {
			return "", err
		}
		host, gatewayID, secret = g.Hostname, g.GatewayID, made.HookSecret
		if err := pause(ctx, 2*callPace); err != nil {
			return "", err
		}
	}
	fmt.Fprintf(w, "repositories: %d gateways follow one\n", followers)
	if err := pause(ctx, time.Minute); err != nil { // the first syncs
		return "", err
	}
	following, err := cpuWhile(ctx, s, o.duration)
	if err != nil {
		return "", err
	}
	key, err := s.Admin.CreateKey(ctx, client.CreateKeyRequest{Name: "caller", Scope: "read"})
	if err != nil {
		return "", err
	}
	var taken []time.Duration
	for i := range pushed {
		took, err := r.push(ctx, s, i, caller{host, key.Secret}, gatewayID, secret)
		if err != nil {
			return "", err
		}
		taken = append(taken, took)
	}
	share := func(d time.Duration) string { return fmt.Sprintf("%.2f %%", 100*d.Seconds()/o.duration.Seconds()) }
	t := stats.Table{Columns: []string{"A repository on this machine", "No gateway", fmt.Sprintf("%d gateways follow it", followers), "Target"}}
	t.Add("CPU of the server, of a core", share(idle), share(following), "≤ 5 %")
	t.Add("push hook to the new route in force, p50, ms", "", milliseconds(stats.Median(taken...)), "≤ 1000")
	t.Add("the same, maximum, ms", "", milliseconds(stats.Quantile(1, taken...)), "")
	return t.String(), nil
}

// cpuWhile returns the CPU time of a server in a time.
func cpuWhile(ctx context.Context, s *keygate.Server, d time.Duration) (time.Duration, error) {
	before, err := s.CPU()
	if err != nil {
		return 0, err
	}
	if err := pause(ctx, d); err != nil {
		return 0, err
	}
	after, err := s.CPU()
	return after - before, err
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// gitDirectory is a repository with a work tree.
type gitDirectory string

func (r gitDirectory) git(ctx context.Context, args ...string) error {
	c := exec.CommandContext(ctx, "git", args...) //nolint:gosec // its arguments are in this file
	c.Dir = string(r)
	c.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null",
		"GIT_AUTHOR_NAME=bench", "GIT_AUTHOR_EMAIL=bench@example.com", "GIT_COMMITTER_NAME=bench", "GIT_COMMITTER_EMAIL=bench@example.com",
	}
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("git %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}

func (r gitDirectory) create(ctx context.Context) error {
	if err := os.Mkdir(string(r), 0o700); err != nil {
		return err
	}
	return errors.Join(r.git(ctx, "init", "-q", "-b", "main"), r.commit(ctx, "/start"))
}

// commit commits a document with one route.
func (r gitDirectory) commit(ctx context.Context, path string) error {
	doc := fmt.Sprintf(`{"openapi":"3.1.0","info":{"title":"t","version":"1"},"paths":{%q:{"get":{}}}}`, path)
	if err := os.WriteFile(filepath.Join(string(r), "openapi.json"), []byte(doc), 0o600); err != nil {
		return err
	}
	return errors.Join(r.git(ctx, "add", "-A"), r.git(ctx, "commit", "-q", "-m", "change"))
}

// push commits the i-th route, sends a push hook, and returns the time from then until the gateway serves
// the route.
func (r gitDirectory) push(ctx context.Context, s *keygate.Server, i int, c caller, gatewayID, secret string) (time.Duration, error) {
	path := fmt.Sprintf("/route%d", i)
	if err := r.commit(ctx, path); err != nil {
		return 0, err
	}
	body := []byte(`{"ref":"refs/heads/main"}`)
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(body)
	hc := &http.Client{}
	defer hc.CloseIdleConnections()
	start := time.Now()
	if _, err := s.Admin.Do(ctx, &client.Request{
		Method: http.MethodPost, Path: "/v1/hooks/git/" + gatewayID, Body: body, ContentType: "application/json",
		Header: http.Header{"X-Hub-Signature-256": {"sha256=" + hex.EncodeToString(mac.Sum(nil))}},
	}); err != nil {
		return 0, err
	}
	for c.call(ctx, hc, s.Gateway, path, http.StatusOK) != nil {
		if time.Since(start) > time.Minute {
			return 0, fmt.Errorf("%s is not in force a minute after the push hook", path)
		}
		if err := pause(ctx, time.Millisecond); err != nil {
			return 0, err
		}
	}
	return time.Since(start), nil
}
