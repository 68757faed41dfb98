package cli

import (
	"bytes"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keygate/keygate/internal/cli/terminal"
)

// slow is a server that responds after a time.
type slow time.Duration

func (s slow) RoundTrip(*http.Request) (*http.Response, error) {
	<-time.After(time.Duration(s)) // of a synctest bubble
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
}

// Guarantee: a command that waits for longer than a second says so once, and what for. A quick one says nothing, nor does
// a read, and a completion never does.
func TestWaitingIsSaid(t *testing.T) {
	for name, c := range map[string]struct {
		method, url string
		takes       time.Duration
		completing  bool
		want        string
	}{
		"a slow revocation":  {"DELETE", "http://x/v1/keys/key_1", 4 * time.Second, false, "Waiting for the server, which confirms a change when every node has it"},
		"a slow push":        {"PUT", "http://x/v1/gateways/gw_1/spec", 1001 * time.Millisecond, false, "Waiting for the server, which confirms"},
		"a slow dry run":     {"PUT", "http://x/v1/gateways/gw_1/spec?dry_run=true", 4 * time.Second, false, "Waiting for the server…"},
		"a slow try":         {"POST", "http://x/v1/gateways/gw_1/try", 4 * time.Second, false, "Waiting for the response to the request…"},
		"a slow drain":       {"PATCH", "http://x/v1/gateways/gw_1/upstreams/default/targets?url=http%3A%2F%2Fa&drain=35s", 4 * time.Second, false, "Waiting until nothing is in flight at http://a any more…"},
		"a quick revocation": {"DELETE", "http://x/v1/keys/key_1", 999 * time.Millisecond, false, ""},
		"a slow list":        {"GET", "http://x/v1/keys", 4 * time.Second, false, ""},
		"a completion":       {"POST", "http://x/v1/keys/verify", 4 * time.Second, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var said bytes.Buffer
				a := &app{Console: &terminal.Console{Err: &said}, completing: c.completing}
				req, err := http.NewRequestWithContext(t.Context(), c.method, c.url, http.NoBody)
				if err != nil {
					t.Fatal(err)
				}
				res, err := (&waiting{a, slow(c.takes)}).RoundTrip(req)
				if err != nil {
					t.Fatal(err)
				}
				_ = res.Body.Close()
				if got := said.String(); !strings.HasPrefix(got, c.want) || strings.Count(got, "\n") != min(len(c.want), 1) {
					t.Errorf("got %q, want a line that begins with %q", got, c.want)
				}
			})
		})
	}
}
