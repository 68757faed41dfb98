package client_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/keygate/keygate/client"
)

// Guarantee: an export is one call with the filters and the format, and has every record. If it
// breaks off, even between two records, it ends with an error and never as if it were complete.
func TestExportAuditLog(t *testing.T) {
	for _, complete := range []bool{true, false} {
		calls := 0
		c := serve(t, func(w http.ResponseWriter, r *http.Request) {
			calls++
			if got := r.URL.RawQuery; got != "actor=key_1&format=jsonl&kind=management" {
				t.Errorf("got the query %s", got)
			}
			for i := range 1000 {
				_, _ = fmt.Fprintf(w, `{"time":"2026-03-01T12:00:00.5Z","kind":"management","request_id":"req_%d","action":"key.create","diff":{}}`+"\n", i)
			}
			w.(http.Flusher).Flush()
			if !complete {
				panic(http.ErrAbortHandler)
			}
		})
		n := 0
		var failure error
		for e, err := range c.ExportAuditLog(t.Context(), client.AuditFilter{Kind: "management", ActorKeyID: "key_1"}) {
			if err != nil {
				failure = err
				continue
			}
			if e.RequestID != fmt.Sprint("req_", n) || e.AuditAction == nil || e.Action != "key.create" {
				t.Fatalf("record %d: got %+v", n, e)
			}
			n++
		}
		var unreachable *client.UnreachableError
		if n != 1000 || calls != 1 || complete != (failure == nil) || !complete && !errors.As(failure, &unreachable) {
			t.Errorf("complete %v: got %d records in %d calls and the error %v", complete, n, calls, failure)
		}
	}
}

// Guarantee: an export that is refused returns the error of the server.
func TestExportIsRefused(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Retry-After", "10")
		w.WriteHeader(http.StatusTooManyRequests)
		_, _ = io.WriteString(w, `{"error":"rate_limit_exceeded","message":"2 exports are running"}`)
	})
	_, err := c.OpenAuditExport(t.Context(), client.FormatCSV, client.AuditFilter{})
	var refused *client.Error
	if !errors.As(err, &refused) || refused.Status != http.StatusTooManyRequests || refused.RetryAfter.Seconds() != 10 {
		t.Errorf("got %v, want a 429 with Retry-After", err)
	}
}
