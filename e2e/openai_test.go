package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/keygate/keygate/internal/keygatetest/awaittest"
	"github.com/keygate/keygate/internal/keygatetest/porttest"
)

// openAIResult is what a program sees of a call that it makes with the library of OpenAI for Node.js.
type openAIResult struct {
	Content                    string // of the completion
	Tokens                     int    // of its usage
	Class, Type, Code, Message string // of the error
	Status                     int
	Param                      string
	Wait                       *string // the Retry-After
}

// Guarantee: contract 3.3, error_format. A program that calls a gateway with the library of OpenAI gets completions as
// they come. Of Keygate's own errors it gets the class of the status, the type, the code and our message.
func TestOpenAILibraryShowsOurErrors(t *testing.T) {
	model := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"choices": [{"message": {"content": "hello yourself"}}]}`))
	}))
	t.Cleanup(model.Close)
	s := startServer(t)
	gatewayID := s.call(http.StatusCreated, "POST", "/v1/gateways", map[string]any{"name": "model", "upstream_url": model.URL, "error_format": "openai"}).field(t, "gateway_id")
	s.call(http.StatusCreated, "POST", "/v1/gateways/"+gatewayID+"/routes", map[string]any{"path": "/v1/*", "methods": []string{"POST"}})
	_, key := s.newKey(nil)
	_, other := s.newKey(map[string]any{"scope": "admin:other"})
	_, limited := s.newKey(map[string]any{"rate_limit": "1/day"})

	s.checkOpenAI("/v1", key, openAIResult{Content: "hello yourself"})
	s.checkOpenAI("/v1", strings.Repeat("x", 20), openAIResult{Class: "AuthenticationError", Status: 401, Type: "authentication_error", Code: "key_invalid"})
	s.checkOpenAI("/v1", other, openAIResult{Class: "PermissionDeniedError", Status: 403, Type: "permission_error", Code: "scope_insufficient"})
	s.checkOpenAI("/v2", key, openAIResult{Class: "NotFoundError", Status: 404, Type: "invalid_request_error", Code: "route_not_found"})
	s.checkOpenAI("/v1", limited, openAIResult{Content: "hello yourself"})
	s.checkOpenAI("/v1", limited, openAIResult{Class: "RateLimitError", Status: 429, Type: "rate_limit_error", Code: "rate_limit_exceeded"})
	s.call(http.StatusOK, "PATCH", "/v1/gateways/"+gatewayID, map[string]any{"upstream_url": "http://" + porttest.Reserve(t)})
	s.checkOpenAI("/v1", key, openAIResult{Class: "InternalServerError", Status: 502, Type: "server_error", Code: "upstream_unreachable"})
}

// streamedModel answers as OpenAI does. A stream has usage if it is asked for, and does not end while its caller is there if
// the caller is to hang up.
func streamedModel(t *testing.T, endless *atomic.Bool) string {
	t.Helper()
	const usage = `{"prompt_tokens": 1000, "completion_tokens": 51, "total_tokens": 1051, "prompt_tokens_details": {"cached_tokens": 100}}`
	model := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var asked struct {
			Stream  bool
			Options struct {
				IncludeUsage bool `json:"include_usage"`
			} `json:"stream_options"`
		}
		if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
			t.Error(err)
		}
		if !asked.Stream {
			w.Header().Set("Content-Type", "application/json")
			_, _ = fmt.Fprintf(w, `{"choices": [{"message": {"content": "hello yourself"}}], "usage": %s}`, usage)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		for _, word := range []string{"hello", " yourself"} {
			_, _ = fmt.Fprintf(w, "data: {\"choices\": [{\"delta\": {\"content\": %q}}], \"usage\": null}\n\n", word)
		}
		_ = http.NewResponseController(w).Flush()
		if endless.Load() {
			<-r.Context().Done()
			return
		}
		if asked.Options.IncludeUsage {
			_, _ = fmt.Fprintf(w, "data: {\"choices\": [], \"usage\": %s}\n\n", usage)
		}
		_, _ = io.WriteString(w, "data: [DONE]\n\n")
	}))
	t.Cleanup(model.Close)
	return model.URL
}

// Guarantee: plans.md, sections 5 and 10. What a program asks with the library of OpenAI costs what the usage in the response
// says, whole or streamed, and the library sees that usage. A stream whose caller hangs up costs the maximum. When the budget
// of tokens is used up, the library shows a RateLimitError.
func TestOpenAILibraryHasABudgetOfTokens(t *testing.T) {
	var endless atomic.Bool
	s := startServer(t)
	gatewayID := s.call(http.StatusCreated, "POST", "/v1/gateways", map[string]any{"name": "model", "upstream_url": streamedModel(t, &endless), "error_format": "openai"}).field(t, "gateway_id")
	fields := map[string]any{"usage.prompt_tokens": 1, "usage.completion_tokens": 4, "usage.prompt_tokens_details.cached_tokens?": -0.5}
	s.call(http.StatusCreated, "POST", "/v1/gateways/"+gatewayID+"/routes", map[string]any{"path": "/v1/*", "methods": []string{"POST"}, "cost": []any{
		map[string]any{"meter": "tokens", "reserve": 200, "max": 3000, "from": map[string]any{"json": fields}},
	}})
	s.call(http.StatusCreated, "POST", "/v1/plans", map[string]any{"name": "team", "limits": []any{
		map[string]any{"name": "budget", "quota": "5000/total", "meter": "tokens", "per": "owner"},
	}})
	ownerID := s.call(http.StatusCreated, "POST", "/v1/owners", map[string]any{"external_id": "search", "plan": "team"}).field(t, "owner_id")
	_, key := s.newKey(map[string]any{"owner": "search"})

	const callCost = 1000 + 4*51 - 50
	for i, c := range []struct {
		way  []string
		want openAIResult
		cost string
	}{
		{nil, openAIResult{Content: "hello yourself", Tokens: 1051}, fmt.Sprint(callCost, " <nil>")},
		{[]string{"stream"}, openAIResult{Content: "hello yourself", Tokens: 1051}, fmt.Sprint(callCost, " <nil>")},
		{[]string{"hangup"}, openAIResult{Content: "hello"}, "3000 incomplete"},
	} {
		endless.Store(c.want.Tokens == 0)
		if got := s.callOpenAI("/v1", key, c.way...); *got != c.want {
			t.Errorf("%v: got %+v, want %+v", c.way, *got, c.want)
		}
		if got := s.lastCost(i+1, "tokens"); got != c.cost {
			t.Errorf("%v: the call costs %s, want %s", c.way, got, c.cost)
		}
	}

	got := s.callOpenAI("/v1", key, "stream")
	if got.Class != "RateLimitError" || got.Status != 429 || got.Type != "rate_limit_error" || got.Code != "rate_limit_exceeded" ||
		!strings.Contains(got.Message, "team.budget") || got.Wait == nil {
		t.Errorf("beyond the budget: got %+v, want a RateLimitError that names the limit", *got)
	}
	var usage struct{ Data []struct{ Used int } }
	body := s.call(http.StatusOK, "GET", "/v1/owners/"+ownerID+"/usage", nil).body
	if err := json.Unmarshal(body, &usage); err != nil || len(usage.Data) != 1 || usage.Data[0].Used != 2*callCost+3000 {
		t.Errorf("got the usage %s, %v; want %d used", body, err, 2*callCost+3000)
	}
}

// lastCost waits until n requests have costs in the log, and returns the units of the newest of a meter, and why they are
// unknown.
func (s *server) lastCost(n int, meter string) string {
	s.t.Helper()
	var list struct {
		Data []struct {
			Cost map[string]struct {
				Units   int
				Unknown any
			}
		}
	}
	awaittest.True(s.t, fmt.Sprint(n, " requests have costs"), func() bool {
		body := s.call(http.StatusOK, "GET", "/v1/requests?result=charged", nil).body
		if err := json.Unmarshal(body, &list); err != nil {
			s.t.Fatal(err)
		}
		return len(list.Data) == n
	})
	c := list.Data[0].Cost[meter]
	return fmt.Sprint(c.Units, " ", c.Unknown)
}

// checkOpenAI makes a call with the library. The message of an error must be the status with the message that any other
// client gets.
func (s *server) checkOpenAI(base, key string, want openAIResult) {
	t := s.t
	t.Helper()
	got := s.callOpenAI(base, key)
	if want.Status > 0 {
		var raw struct{ Error struct{ Message string } }
		body := s.mustSend(want.Status, "POST", base+"/chat/completions", key).body
		if err := json.Unmarshal(body, &raw); err != nil || raw.Error.Message == "" {
			t.Fatalf("got the error body %s, want a message in the form of OpenAI", body)
		}
		want.Message = fmt.Sprint(want.Status, " ", raw.Error.Message)
		if want.Status == http.StatusTooManyRequests { // the seconds in it may differ
			want.Message, got.Message = withoutDigits(want.Message), withoutDigits(got.Message)
		}
	}
	if (got.Wait != nil) != (want.Status == http.StatusTooManyRequests) {
		t.Errorf("status %d: got the Retry-After %v, want one with a 429 alone", want.Status, got.Wait)
	}
	if got.Wait = nil; *got != want {
		t.Errorf("got  %+v,\nwant %+v", *got, want)
	}
}

func withoutDigits(s string) string {
	return strings.Map(func(r rune) rune {
		if '0' <= r && r <= '9' {
			return -1
		}
		return r
	}, s)
}

// callOpenAI makes a call with the library, below a base path. way is nothing, or what testdata/openai.cjs says.
func (s *server) callOpenAI(base, key string, way ...string) *openAIResult {
	t := s.t
	t.Helper()
	modules, err := filepath.Abs("../tools/node_modules")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), awaittest.Timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "node", append([]string{"testdata/openai.cjs", "http://" + s.gateway + base, key}, way...)...)
	cmd.Env = append(os.Environ(), "NODE_PATH="+modules)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("the test needs Node.js and the library openai, which make deps installs: %v", err)
	}
	var r openAIResult
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatalf("got %s from the program: %v", out, err)
	}
	return &r
}
