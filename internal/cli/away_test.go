package cli_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// Guarantee: while the server cannot reach its database, a command prints what the server says of it on standard error, and
// nothing on standard output, and exits with 1.
func TestDatabaseThatIsAwayIsSaid(t *testing.T) {
	const said = "the database cannot be reached, so no key can be checked and nothing can be changed: try again; if it lasts, the log and /readyz of this node say more"
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, `{"error":"unavailable","message":"`+said+`","request_id":"req_01jz8y5c3te9b8r2m6q4v7x0hh"}`)
	}))
	t.Cleanup(s.Close)
	env := map[string]string{"KEYGATE_URL": s.URL, "KEYGATE_API_KEY": "kga_" + strings.Repeat("A", 38)}
	for _, args := range [][]string{{"keys", "list"}, {"keys", "list", "-o", "json"}, {"keys", "create", "--name", "k", "--scope", "read"}} {
		if status, out, errOut := runWith(t, env, args...); status != 1 || out != "" || !strings.Contains(errOut, said) {
			t.Errorf("%q: got status %d, output %q and %q on standard error; want 1 and what the server says", args, status, out, errOut)
		}
	}
}
