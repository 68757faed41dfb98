package cli

import (
	"net/http"
	"strings"
	"time"

	"github.com/keygate/keygate/internal/cli/terminal"
)

// waitingAfter is how long a command waits for a response without a word.
const waitingAfter = time.Second

// waiting is an HTTP transport that says on standard error that a command waits, if the response takes longer than
// waitingAfter. It says nothing for GET, which reports and lists use over and over.
type waiting struct {
	app  *app
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (w *waiting) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodGet || w.app.completing {
		return w.next.RoundTrip(r)
	}
	said := make(chan struct{})
	timer := time.AfterFunc(waitingAfter, func() {
		defer close(said)
		w.app.Say("%s", waitingFor(r))
	})
	res, err := w.next.RoundTrip(r)
	if !timer.Stop() {
		<-said // nothing else is written meanwhile
	}
	return res, err
}

// waitingFor says what the response to r waits for.
func waitingFor(r *http.Request) string {
	switch path, query := r.URL.Path, r.URL.Query(); {
	case query.Has("drain"):
		return "Waiting until nothing is in flight at " + terminal.Clean(query.Get("url")) + " any more…"
	case strings.HasSuffix(path, "/try"):
		return "Waiting for the response to the request…"
	case strings.HasSuffix(path, "/simulate"), strings.HasSuffix(path, "/verify"), query.Get("dry_run") == "true":
		return "Waiting for the server…"
	}
	return "Waiting for the server, which confirms a change when every node has it (keygate nodes shows the nodes)…"
}
