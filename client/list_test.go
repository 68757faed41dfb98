package client_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keygate/keygate/client"
)

// roundTripper is a function that serves as an http.RoundTripper.
type roundTripper func(r *http.Request) *http.Response

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r), nil }

// newResponse returns a response. header holds alternating names and values.
func newResponse(status int, body string, header ...string) *http.Response {
	res := &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body))}
	for i := 0; i+1 < len(header); i += 2 {
		res.Header.Set(header[i], header[i+1])
	}
	return res
}

// Guarantee: a list that exceeds the rate limit of its key waits for the Retry-After and
// then continues without losing records. It does not wait for longer than 10 s, or
// without a Retry-After: then it ends with the error.
func TestListWaitsForRetryAfter(t *testing.T) {
	for retry, want := range map[string]struct {
		records int
		waited  time.Duration
		failed  bool
	}{"2": {2, 2 * time.Second, false}, "3600": {1, 0, true}, "": {1, 0, true}} {
		synctest.Test(t, func(t *testing.T) {
			calls := 0
			api, err := client.New(client.Config{URL: "http://127.0.0.1:1", Key: "k", HTTPClient: &http.Client{Transport: roundTripper(func(r *http.Request) *http.Response {
				switch calls++; {
				case calls == 1:
					return newResponse(200, `{"data": [{"key_id": "a"}], "next_cursor": "next"}`)
				case r.URL.Query().Get("cursor") != "next":
					t.Errorf("call %d: got %s, want the next cursor", calls, r.URL)
				case calls == 2:
					return newResponse(429, `{"error": "rate_limit_exceeded", "message": "too many"}`, "Retry-After", retry)
				}
				return newResponse(200, `{"data": [{"key_id": "b"}], "next_cursor": null}`)
			})}})
			if err != nil {
				t.Fatal(err)
			}
			start, got := time.Now(), ""
			var last error
			for k, err := range api.Keys(t.Context(), client.KeyFilter{}) {
				if last = err; err == nil {
					got += k.KeyID
				}
			}
			if waited := time.Since(start); len(got) != want.records || waited != want.waited {
				t.Errorf("Retry-After %q: got %d records after %v, want %d after %v", retry, len(got), waited, want.records, want.waited)
			}
			if want.failed && last == nil {
				t.Errorf("Retry-After %q: got no error", retry)
			}
			if !want.failed && last != nil {
				t.Errorf("Retry-After %q: got error %v, want none", retry, last)
			}
		})
	}
}
