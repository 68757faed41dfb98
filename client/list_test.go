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

type answers func(r *http.Request) *http.Response

func (f answers) RoundTrip(r *http.Request) (*http.Response, error) { return f(r), nil }

func answered(status int, body string, header ...string) *http.Response {
	res := &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body))}
	for i := 0; i+1 < len(header); i += 2 {
		res.Header.Set(header[i], header[i+1])
	}
	return res
}

// Guarantee: a list that has more pages than its key may ask for at once waits as
// it is told to, and misses nothing; it does not wait for hours.
func TestListWaitsForItsLimit(t *testing.T) {
	for retry, want := range map[string]struct {
		records int
		waited  time.Duration
	}{"2": {2, 2 * time.Second}, "3600": {1, 0}, "": {1, 0}} {
		synctest.Test(t, func(t *testing.T) {
			calls := 0
			api, err := client.New(client.Config{URL: "http://127.0.0.1:1", Key: "k", HTTPClient: &http.Client{Transport: answers(func(r *http.Request) *http.Response {
				switch calls++; {
				case calls == 1:
					return answered(200, `{"data": [{"key_id": "a"}], "next_cursor": "next"}`)
				case r.URL.Query().Get("cursor") != "next":
					t.Errorf("call %d asks for %s", calls, r.URL)
				case calls == 2:
					return answered(429, `{"error": "rate_limit_exceeded", "message": "too many"}`, "Retry-After", retry)
				}
				return answered(200, `{"data": [{"key_id": "b"}], "next_cursor": null}`)
			})}})
			if err != nil {
				t.Fatal(err)
			}
			begun, got := time.Now(), ""
			var last error
			for k, err := range api.Keys(t.Context(), client.KeyFilter{}) {
				if last = err; err == nil {
					got += k.KeyID
				}
			}
			if len(got) != want.records || (last == nil) != (want.records == 2) || time.Since(begun) != want.waited {
				t.Errorf("Retry-After %q: records %q, error %v, after %v", retry, got, last, time.Since(begun))
			}
		})
	}
}
