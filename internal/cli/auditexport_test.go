package cli_test

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/cli"
)

// brokenExport is a server whose exports break off in the middle of a record, or before the first.
func brokenExport(t *testing.T, format string, records int) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		line := "2026-03-01T12:00:%02d.5Z,authentication,success,kg_abcdef,,,GET,/,,req_%d,,,,\n"
		body := "time,kind,outcome\n"
		if format == "jsonl" {
			line, body = `{"time":"2026-03-01T12:00:%02d.5Z","request_id":"req_%d"}`+"\n", ""
		}
		for i := range records {
			body += fmt.Sprintf(line, 20+i, i)
		}
		_, _ = w.Write([]byte(body + `{"time":"2026-`))
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// Guarantee: an export that breaks off exits with an error, says how to go on, leaves only whole
// records, and never a file with the name of a complete export.
func TestBrokenExport(t *testing.T) {
	for _, format := range []string{"jsonl", "csv"} {
		env := map[string]string{"KEYGATE_URL": brokenExport(t, format, 7), "KEYGATE_API_KEY": "kga_" + strings.Repeat("A", 38)}
		status, out, errOut := runWith(t, env, "audit-log", "export", "--format", format)
		if status == 0 || !strings.Contains(errOut, "broke off") || !strings.Contains(errOut, "7 records") || !strings.Contains(errOut, "--since 2026-03-01T12:00:16Z") {
			t.Errorf("%s: got status %d and\n%s\nwant a failure that names the 7 records and the time 10 s before the last", format, status, errOut)
		}
		if !strings.Contains(out, "req_6") || !strings.HasSuffix(out, "\n") || strings.Count(out, "req_") != 7 {
			t.Errorf("%s: got %q, want 7 whole records", format, out)
		}
		file := filepath.Join(t.TempDir(), "out")
		status, _, errOut = runWith(t, env, "audit-log", "export", "--format", format, "--file", file)
		content, err := os.ReadFile(file + ".part")
		if status == 0 || err != nil || string(content) != out || !strings.Contains(errOut, file+".part") {
			t.Errorf("%s: got status %d, the part %q (error %v) and\n%s", format, status, content, err, errOut)
		}
		if _, err := os.Lstat(file); err == nil {
			t.Errorf("%s: the file exists although it is not complete", format)
		}
	}
	env := map[string]string{"KEYGATE_URL": brokenExport(t, "jsonl", 0), "KEYGATE_API_KEY": "kga_" + strings.Repeat("A", 38)}
	file := filepath.Join(t.TempDir(), "out")
	if status, _, errOut := runWith(t, env, "audit-log", "export", "--file", file); status == 0 || strings.Contains(errOut, "--since") {
		t.Errorf("without a record: got status %d and\n%s", status, errOut)
	}
	if _, err := os.Lstat(file + ".part"); err == nil {
		t.Error("a part without records was left")
	}
}

// runWith runs a command with an environment.
func runWith(t *testing.T, env map[string]string, args ...string) (status int, out, errOut string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	status = cli.Run(t.Context(), &cli.System{
		In: bytes.NewReader(nil), Out: &stdout, Err: &stderr, Version: "test",
		Env: func(name string) (string, bool) {
			v, ok := env[name]
			return v, ok
		},
	}, args)
	return status, stdout.String(), stderr.String()
}
