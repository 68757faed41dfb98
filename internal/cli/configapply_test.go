package cli_test

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/cli"
	"github.com/keygate/keygate/internal/keygatetest"
)

// writeConfigs writes a file for each gateway with a route that has its name and a suffix.
func writeConfigs(t *testing.T, suffix string, names ...string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for _, name := range names {
		content := "gateway: {name: " + name + ", upstream_url: 'http://127.0.0.1:9'}\nroutes: [{path: /" + name + suffix + ", methods: [GET]}]\n"
		if err := os.WriteFile(filepath.Join(dir, name+".yaml"), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// applyThrough runs config apply with calls that pass through before. If before returns false, the
// call does not reach the server: with the header Refuse set it gets a 429, with the header Answer
// that answer, and otherwise the connection breaks off.
func applyThrough(t *testing.T, s *keygatetest.Server, before func(r *http.Request) bool, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	target, err := url.Parse(s.AdminURL())
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	var mu sync.Mutex // a call that is repeated is on another connection
	between := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		pass := before(r)
		mu.Unlock()
		if pass {
			proxy.ServeHTTP(w, r)
			return
		}
		switch {
		case r.Header.Get("Answer") != "":
			_, _ = w.Write([]byte(r.Header.Get("Answer")))
			return
		case r.Header.Get("Refuse") == "":
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusTooManyRequests)
		_, _ = w.Write([]byte(`{"error": "rate_limit_exceeded", "message": "too many requests with this key"}`))
	}))
	defer between.Close()
	var out, said bytes.Buffer
	env := map[string]string{"KEYGATE_URL": between.URL, "KEYGATE_API_KEY": s.AdminKey}
	status = cli.Run(context.Background(), &cli.System{
		In: strings.NewReader(""), Out: &out, Err: &said, Version: "test",
		Env: func(name string) (string, bool) { v, ok := env[name]; return v, ok },
	}, append([]string{"config", "apply"}, args...))
	return status, out.String(), said.String()
}

// isApply reports whether a call applies a file.
func isApply(r *http.Request) bool {
	return r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, "/config") && !r.URL.Query().Has("dry_run")
}

func revisions(t *testing.T, s *keygatetest.Server) map[string]int64 {
	t.Helper()
	got := map[string]int64{}
	for g, err := range s.Admin.Gateways(t.Context(), client.ListOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		if g.Revision != nil {
			got[g.Name] = *g.Revision
		}
	}
	return got
}

// Guarantee: if a gateway changes after its differences were shown, its file is not applied. The
// command stops there, says what was applied and what was not, and exits with the status of that
// failure. Repeating it applies the rest.
func TestApplyStopsAtAChangedGateway(t *testing.T) {
	s := keygatetest.Start(t)
	if status, _, said := applyThrough(t, s, func(*http.Request) bool { return true }, writeConfigs(t, "", "a", "b", "c")); status != 0 {
		t.Fatalf("exit status %d: %s", status, said)
	}
	dir, applied := writeConfigs(t, "/changed", "a", "b", "c"), 0
	status, out, said := applyThrough(t, s, func(r *http.Request) bool {
		if isApply(r) {
			if applied++; applied == 2 {
				id := strings.Split(r.URL.Path, "/")[3]
				if _, err := s.Admin.UpdateGateway(t.Context(), id, client.GatewayPatch{Timeout: client.Set("7s")}); err != nil {
					t.Error(err)
				}
			}
		}
		return true
	}, dir)
	if status != 6 || !strings.Contains(said, "b.yaml") || !strings.Contains(said, "was changed meanwhile: run the command again") {
		t.Errorf("exit status %d, want 6 and the reason: %s", status, said)
	}
	for _, want := range []string{"Applied before the failure: " + filepath.Join(dir, "a.yaml"), "Not applied after the failure: " + filepath.Join(dir, "c.yaml")} {
		if !strings.Contains(said, want) {
			t.Errorf("standard error lacks %q: %s", want, said)
		}
	}
	if !strings.Contains(out, "+ GET /a/changed") || strings.Contains(out, "/b/changed") {
		t.Errorf("standard output has other differences than those that were applied: %s", out)
	}
	if got := revisions(t, s); got["a"] != 2 || got["b"] != 1 || got["c"] != 1 {
		t.Errorf("got revisions %v, want only a applied", got)
	}
	if status, _, said := applyThrough(t, s, func(*http.Request) bool { return true }, dir); status != 0 {
		t.Errorf("again: exit status %d: %s", status, said)
	}
	if got := revisions(t, s); got["a"] != 2 || got["b"] != 2 || got["c"] != 2 {
		t.Errorf("got revisions %v, want a as it was, and b and c applied", got)
	}
}

// Guarantee: if the connection fails while a file is applied, the command does not say that it was
// not applied, and exits with 7.
func TestApplyWhoseConnectionFails(t *testing.T) {
	s := keygatetest.Start(t)
	dir := writeConfigs(t, "", "a", "b")
	if status, _, said := applyThrough(t, s, func(*http.Request) bool { return true }, dir); status != 0 {
		t.Fatalf("exit status %d: %s", status, said)
	}
	dir = writeConfigs(t, "/changed", "a", "b")
	status, out, said := applyThrough(t, s, func(r *http.Request) bool { return !isApply(r) }, dir, "-o", "json")
	if status != 7 || !strings.Contains(said, "It is not known whether this was carried out: "+filepath.Join(dir, "a.yaml")) ||
		!strings.Contains(said, "Applied before the failure: nothing.") || out != "" {
		t.Errorf("exit status %d, want 7 and the reason: %s%s", status, said, out)
	}
}

// Guarantee: on a terminal, apply shows the differences and asks; any answer but yes changes nothing
// and exits with 1. A gateway is deleted only if its name is typed. Without differences, or with
// --yes, there is no question.
func TestApplyAsksOnATerminal(t *testing.T) {
	s := keygatetest.Start(t)
	dir := writeConfigs(t, "", "a", "b", "old")
	if status, screen := answerTo(t, s, "", "config", "apply", dir, "--yes"); status != 0 || strings.Contains(screen, "[y/N]") {
		t.Fatalf("--yes: exit status %d\n%s", status, screen)
	}
	if status, screen := answerTo(t, s, "", "config", "apply", dir); status != 0 || strings.Contains(screen, "[y/N]") {
		t.Errorf("without differences: exit status %d\n%s", status, screen)
	}
	changed := writeConfigs(t, "/changed", "a", "b", "new")
	for _, answer := range []string{"\n", "n\n", "\x04", "nonsense\n", "y\nwrong\n"} {
		status, screen := answerTo(t, s, answer, "config", "apply", changed, "--prune")
		if !strings.Contains(screen, "\x1b[32m+ GET /a/changed\x1b[0m") {
			t.Errorf("want what is added in green:\n%s", screen)
		}
		screen = codes.ReplaceAllString(screen, "")
		if status != 1 || !strings.HasSuffix(screen, "Cancelled.\n") || !strings.Contains(screen, "Apply all 3? [y/N] ") || !strings.Contains(screen, "+ GET /a/changed\n") {
			t.Errorf("answer %q: exit status %d\n%s", answer, status, screen)
		}
		if got := revisions(t, s); len(got) != 3 || got["a"] != 1 {
			t.Fatalf("answer %q: got revisions %v, want nothing changed", answer, got)
		}
	}
	status, screen := answerTo(t, s, "y\nold\n", "config", "apply", changed, "--prune")
	screen = codes.ReplaceAllString(screen, "")
	for _, want := range []string{"This deletes gateway old (gw_", "Type its name to confirm: ", "Created gateway new (gw_", "Deleted gateway old (gw_", "Gateways: 1 created, 2 changed, 1 deleted, 0 without"} {
		if status != 0 || !strings.Contains(screen, want) {
			t.Errorf("exit status %d, want 0 and %q:\n%s", status, want, screen)
		}
	}
	if strings.Count(screen, "+ GET /a/changed\n") != 1 {
		t.Errorf("want the differences once:\n%s", screen)
	}
	if got := revisions(t, s); len(got) != 3 || got["a"] != 2 || got["new"] != 1 {
		t.Errorf("got revisions %v, want a, b and new applied", got)
	}
}

// Guarantee: on a terminal, an export asks before it overwrites files, and a no leaves them alone.
func TestExportAsksBeforeItOverwrites(t *testing.T) {
	s := keygatetest.Start(t)
	dir := writeConfigs(t, "", "a")
	file := filepath.Join(dir, "a.yaml")
	if status, screen := answerTo(t, s, "", "config", "apply", dir, "--yes"); status != 0 {
		t.Fatalf("exit status %d\n%s", status, screen)
	}
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for answer, want := range map[string]int{"n\n": 1, "y\n": 0} {
		if err := os.WriteFile(file, before, 0o600); err != nil {
			t.Fatal(err)
		}
		status, screen := answerTo(t, s, answer, "config", "export", "--all", dir)
		if status != want || !strings.Contains(screen, "Overwrite?") {
			t.Errorf("answer %q: exit status %d\n%s", answer, status, screen)
		}
		after, err := os.ReadFile(file)
		if err != nil || bytes.Equal(before, after) != (want == 1) {
			t.Errorf("answer %q: got %s, %v", answer, after, err)
		}
	}
}

// Guarantee: a file without differences takes one call, beside the list of the gateways, and makes no
// revision.
func TestUnchangedFilesTakeOneCall(t *testing.T) {
	s := keygatetest.Start(t)
	dir := writeConfigs(t, "", "a", "b", "c", "d")
	all := func(*http.Request) bool { return true }
	if status, _, said := applyThrough(t, s, all, dir); status != 0 {
		t.Fatalf("exit status %d: %s", status, said)
	}
	calls := 0
	status, _, said := applyThrough(t, s, func(*http.Request) bool { calls++; return true }, dir)
	if status != 0 || calls != 5 {
		t.Errorf("exit status %d after %d calls, want 0 after 5: %s", status, calls, said)
	}
	for name, revision := range revisions(t, s) {
		if revision != 1 {
			t.Errorf("gateway %s has revision %d, want 1", name, revision)
		}
	}
}

// Guarantee: a call that is refused because the key makes too many calls is repeated, so that a
// directory may have more gateways than calls are allowed in a second.
func TestApplyWaitsForItsTurn(t *testing.T) {
	t.Parallel()
	s := keygatetest.Start(t)
	refused := map[string]bool{}
	status, _, said := applyThrough(t, s, func(r *http.Request) bool {
		if call := r.Method + r.URL.Path; call == "POST/v1/gateways" && !refused[call] {
			refused[call] = true
			r.Header.Set("Refuse", "429")
			return false
		}
		return true
	}, writeConfigs(t, "", "a"))
	if status != 0 || len(refused) != 1 || revisions(t, s)["a"] != 1 || !strings.Contains(said, "trying again in 1s") {
		t.Errorf("exit status %d after the refusals %v, want 0 after 1: %s", status, refused, said)
	}
}

// Guarantee: a gateway that is connected to a repository is never pruned, and neither is a gateway
// whose repository cannot be read.
func TestPruneLeavesRepositoriesAlone(t *testing.T) {
	s := keygatetest.Start(t)
	if status, _, said := applyThrough(t, s, func(*http.Request) bool { return true }, writeConfigs(t, "", "kept", "synced")); status != 0 {
		t.Fatalf("exit status %d: %s", status, said)
	}
	dir := writeConfigs(t, "", "kept")
	for answer, want := range map[string]int{`{"url": "https://git.example.com/gateways.git"}`: 0, "": 7} {
		asked := false
		status, _, said := applyThrough(t, s, func(r *http.Request) bool {
			if !strings.HasSuffix(r.URL.Path, "/repository") {
				return true
			}
			asked = true
			r.Header.Set("Answer", answer)
			return false
		}, dir, "--prune")
		if status != want || !asked || len(revisions(t, s)) != 2 {
			t.Errorf("answer %q: exit status %d, want %d and both gateways: %s", answer, status, want, said)
		}
	}
}
