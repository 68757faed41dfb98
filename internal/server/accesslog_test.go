package server_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/keygatetest"
	"github.com/keygate/keygate/internal/server"
)

// Guarantee: the access log has a line for each request of the data plane, whichever engine
// served it, forwarded or refused. A shutdown writes the last line. Lines have no query.
func TestAccessLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "access.log")
	s := keygatetest.Start(t, "--access-log", path)
	up := keygatetest.NewUpstream(t)
	newGateway(t, s, s.AdminKey, "ok.example", up.URL, "")
	newGateway(t, s, s.AdminKey, "down.example", "http://169.254.1.1:80", "")
	s.Through("ok.example", "GET", "/orders?secret=1", "", "")
	decisionOf(t, s, s.AdminKey, "down.example", true, 502)
	s.Through("ok.example", "POST", "/none", "", "")
	s.Stop()

	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	type line struct {
		Path, Protocol, Method string
		Status                 int
	}
	var got []line
	for text := range strings.Lines(string(content)) {
		var l line
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		got = append(got, l)
	}
	want := map[line]bool{
		{"/orders", "HTTP/1.1", "GET", 200}: true, {"/x", "HTTP/2.0", "GET", 502}: true, {"/none", "HTTP/1.1", "POST", 405}: true,
	}
	if len(got) != len(want) || !want[got[0]] || !want[got[1]] || !want[got[2]] {
		t.Errorf("got %v, want %v", got, want)
	}
	if strings.Contains(string(content), "secret") {
		t.Errorf("got %s, want no query", content)
	}
}

// Guarantee: --access-log=stdout writes to standard output, and a file that cannot be
// written to fails the start with an error that names the flag, before anything changes.
func TestAccessLogOutputs(t *testing.T) {
	dir := t.TempDir()
	_, err := server.Start(t.Context(), server.Config{Settings: settings(t, filepath.Join(dir, "data"), "--access-log", filepath.Join(dir, "none", "access.log"))})
	if err == nil || !strings.Contains(err.Error(), "--access-log") {
		t.Errorf("got error %v, want one that names --access-log", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "data", "keygate.db")); err == nil {
		t.Error("the store was created, want nothing changed")
	}
	out := &strings.Builder{}
	s, err := server.Start(t.Context(), server.Config{Settings: settings(t, filepath.Join(dir, "data"), "--access-log", "stdout"), Out: out})
	if err != nil {
		t.Fatal(err)
	}
	res := get(t, "http://"+s.GatewayAddr()+"/nowhere")
	if err := s.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), `"path":"/nowhere","status":404`) {
		t.Errorf("got %d and the output %s, want a line for the request", res, out)
	}
}
