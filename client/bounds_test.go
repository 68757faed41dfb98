package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/keygate/keygate/client"
)

// endless writes a body until the client has enough.
func endless(w http.ResponseWriter, start string) {
	piece := strings.Repeat("a", 64<<10)
	for _, err := io.WriteString(w, start); err == nil; {
		_, err = io.WriteString(w, piece)
	}
}

// Guarantee: a list ends with an error when a cursor comes twice, also if others were between, and not
// before.
func TestListsEndWhenACursorRepeats(t *testing.T) {
	t.Parallel()
	for _, cursors := range [][]string{{"a", "a"}, {"a", "b", "c", "b"}} {
		calls := 0
		c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(w, `{"data": [{"key_id": "key_%d"}], "next_cursor": %q}`, calls, cursors[calls%len(cursors)])
			calls++
		})
		records := 0
		var last error
		for _, err := range c.Keys(t.Context(), client.KeyFilter{}) {
			if last = err; err == nil {
				records++
			}
		}
		if !errors.Is(last, client.ErrRepeatedCursor) || records != len(cursors) || calls != len(cursors) {
			t.Errorf("%v: got %d records in %d calls, then %v; want %d, then %v", cursors, records, calls, last, len(cursors), client.ErrRepeatedCursor)
		}
	}
}

// Guarantee: a body without an end takes no more memory than its kind of response may have, and is
// reported as an error.
func TestEndlessBodiesAreBounded(t *testing.T) {
	t.Parallel()
	status, start := http.StatusOK, `{"data": [{"key_id": "`
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		endless(w, start)
	})
	for _, err := range c.Keys(t.Context(), client.KeyFilter{}) {
		if !errors.Is(err, client.ErrTooLarge) || !strings.Contains(err.Error(), "more than 16 MiB") {
			t.Errorf("a page: got %v, want an error of more than 16 MiB", err)
		}
	}
	start = "{\"kind\": \""
	for _, err := range c.ExportAuditLog(t.Context(), client.AuditFilter{}) {
		if !errors.Is(err, client.ErrTooLarge) {
			t.Errorf("an export: got %v, want %v", err, client.ErrTooLarge)
		}
	}
	status = http.StatusBadGateway
	for name, call := range map[string]func(context.Context) error{
		"a call": func(ctx context.Context) error { _, err := c.Account(ctx); return err },
		"an export": func(ctx context.Context) error {
			_, err := c.OpenAuditExport(ctx, "jsonl", client.AuditFilter{})
			return err
		},
	} {
		var failed *client.Error
		if err := call(t.Context()); !errors.As(err, &failed) || failed.Status != status || len(failed.Message) > 1000 {
			t.Errorf("%s that fails: got %v, want a short error of status %d", name, err, status)
		}
	}
}
