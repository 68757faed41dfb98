package server_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/keygatetest"
)

// Guarantee: plans.md, 5: what a request cost stands in its record, with how it came about and nothing else of the response,
// in the access log, in traffic reports, in usage records and in metrics, and is the same in all of them, also after a
// restart.
func TestCostsAreReported(t *testing.T) {
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		body := `{"text": "private", "usage": {"prompt": 1000, "completion": 51}}`
		if r.URL.Path == "/unknown" {
			body = `{"text": "private", "usage": {"prompt": 1000}}`
		}
		_, _ = w.Write([]byte(body))
	}))
	t.Cleanup(up.Close)
	log := filepath.Join(t.TempDir(), "access.log")
	s := keygatetest.StartWith(t, keygatetest.Options{Args: []string{"--access-log", log}})
	g, err := s.Admin.CreateGateway(t.Context(), client.CreateGatewayRequest{Name: "g", UpstreamURL: up.URL})
	if err != nil {
		t.Fatal(err)
	}
	const tokens = "{meter: tokens, reserve: 2000, max: 16000, from: {json: {usage.prompt: 1, usage.completion: 4}}}"
	if _, err := s.Admin.PushConfig(t.Context(), g.GatewayID, []byte(`routes:
- {path: /known, methods: [GET], cost: [`+tokens+`, {meter: requests, from: {request: 3}}]}
- {path: /unknown, methods: [GET], cost: [`+tokens+`]}
- {path: /free, methods: [GET]}
`), false); err != nil {
		t.Fatal(err)
	}
	k, err := s.Admin.CreateKey(t.Context(), client.CreateKeyRequest{Name: "k", Scope: "read"})
	if err != nil {
		t.Fatal(err)
	}
	ids := map[string]string{}
	for _, path := range []string{"/known", "/unknown", "/free"} {
		r := s.Through("", "GET", path, k.Secret, "")
		if r.Status != 200 {
			t.Fatalf("%s: got %d %s, want 200", path, r.Status, r.Body)
		}
		ids[path] = r.Header.Get("X-Request-Id")
	}
	t.Run("in the metrics", func(t *testing.T) {
		text := scrape(t, s)
		for _, want := range []string{`meter="tokens",route="[^"]*"} 1204`, `meter="tokens",route="[^"]*"} 16000`, `meter="requests",route="[^"]*"} 3`, `reason="missing",route="[^"]*"} 1`} {
			if !regexp.MustCompile(want).MatchString(text) {
				t.Errorf("/metrics lacks %s", want)
			}
		}
	})
	check := func(t *testing.T) {
		t.Run("in the record of each request", func(t *testing.T) { checkRequestCosts(t, s, ids) })
		t.Run("in the traffic report", func(t *testing.T) {
			rows, err := s.Admin.Top(t.Context(), client.TrafficQuery{GroupBy: "key"}, "", 1)
			if err != nil || len(rows) != 1 || fmt.Sprint(rows[0].Meters) != "map[requests:3 tokens:17204]" {
				t.Errorf("got %+v and the error %v, want 3 requests and 17,204 tokens", rows, err)
			}
		})
		t.Run("in the usage records", func(t *testing.T) {
			var got []string
			for u, err := range s.Admin.UsageRecords(t.Context(), client.UsageFilter{State: "open"}) {
				if err != nil {
					t.Fatal(err)
				}
				if u.Meter != "bytes_out" {
					got = append(got, fmt.Sprintf("%d %s of %d", u.Units, u.Meter, u.Requests))
				}
			}
			slices.Sort(got)
			want := []string{"1 requests of 1", "1 requests of 1", "1204 tokens of 1", "16000 tokens of 1", "3 requests of 1"}
			if !slices.Equal(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}
	check(t)
	s.Restart()
	t.Run("after a restart", check)
	lines, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"cost":{"tokens":{"units":1204,"reserved":2000,"unknown":null},"requests":{"units":3,"reserved":3,"unknown":null}}`,
		`"cost":{"tokens":{"units":16000,"reserved":2000,"unknown":"missing"}}`, `"cost":null`,
	} {
		if !strings.Contains(string(lines), want) {
			t.Errorf("the access log lacks %s: %s", want, lines)
		}
	}
}

// checkRequestCosts checks the records of the requests with the identifiers, by their paths.
func checkRequestCosts(t *testing.T, s *keygatetest.Server, ids map[string]string) {
	t.Helper()
	for path, want := range map[string]string{
		"/known":   "1,204 tokens: prompt 1,000 × 1, completion 51 × 4; reserved 2,000",
		"/unknown": "16,000 tokens: prompt 1,000 × 1, completion missing; unknown, because the response does not have the field or header, or its Content-Type is not one that is read; reserved 2,000",
	} {
		r, err := s.Admin.RequestByID(t.Context(), ids[path])
		if err != nil {
			t.Fatal(err)
		}
		if r.Cost == nil || r.Status != 200 || r.Path != path {
			t.Fatalf("%s: got %+v, want a cost", path, r)
		}
		if got := (*r.Cost)["tokens"].Explanation; got != want {
			t.Errorf("%s: got the cost %q, want %q", path, got, want)
		}
	}
	if _, err := s.Admin.RequestByID(t.Context(), ids["/free"]); !client.IsNotFound(err) {
		t.Errorf("a request without a cost: got the error %v, want not found", err)
	}
	charged := 0
	for r, err := range s.Admin.Requests(t.Context(), client.RequestFilter{Result: "charged"}) {
		if err != nil {
			t.Fatal(err)
		}
		if charged++; r.Cost == nil {
			t.Errorf("got %+v, want a cost", r)
		}
	}
	if charged != 2 {
		t.Errorf("got %d charged requests, want 2", charged)
	}
}
