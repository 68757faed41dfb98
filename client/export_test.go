package client_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

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

// Guarantee: an export of usage records is one call with the filters, the format and the cursor, and returns the cursor of
// the response. A body that breaks off never ends as if it were complete.
func TestOpenUsageExport(t *testing.T) {
	filter := client.UsageFilter{
		ListOptions: client.ListOptions{PageSize: 7}, OwnerID: "own_1", KeyID: "key_1", GatewayID: "gw_1", Meter: "requests", State: "final", Interval: "1d",
		Since: time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC), Until: time.Date(2026, 4, 1, 0, 0, 0, 0, time.UTC),
	}
	const query = "cursor=c1&format=cloudevents&gateway_id=gw_1&interval=1d&key_id=key_1&meter=requests&owner_id=own_1&since=2026-03-01T00%3A00%3A00Z&state=final&until=2026-04-01T00%3A00%3A00Z"
	for _, complete := range []bool{true, false} {
		c := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if got := r.URL.RawQuery; got != query {
				t.Errorf("got the query %s, want %s", got, query)
			}
			w.Header().Set("X-Keygate-Cursor", "c2")
			_, _ = io.WriteString(w, "{}\n")
			w.(http.Flusher).Flush()
			if !complete {
				panic(http.ErrAbortHandler)
			}
		})
		body, next, err := c.OpenUsageExport(t.Context(), client.FormatCloudEvents, filter, "c1")
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(body)
		var unreachable *client.UnreachableError
		if string(content) != "{}\n" || next != "c2" || complete != (err == nil) || !complete && !errors.As(err, &unreachable) {
			t.Errorf("complete %v: got %q, the cursor %q and the error %v", complete, content, next, err)
		}
		if err := body.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Guarantee: a cursor of other filters is the error of the server, with the field cursor.
func TestOpenUsageExportWithAnotherFilter(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusUnprocessableEntity)
		_, _ = io.WriteString(w, `{"error":"validation_failed","message":"is not a cursor of this list","field":"cursor"}`)
	})
	_, next, err := c.OpenUsageExport(t.Context(), client.FormatJSONL, client.UsageFilter{}, "c1")
	var refused *client.Error
	if !errors.As(err, &refused) || refused.Field != "cursor" || next != "" {
		t.Errorf("got the cursor %q and the error %v, want none and a 422 of the field cursor", next, err)
	}
}
