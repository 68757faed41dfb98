package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/keygatetest/awaittest"
	"github.com/keygate/keygate/internal/keygatetest/porttest"
)

// openAIResult is what a program sees of a call that it makes with the library of OpenAI for Node.js.
type openAIResult struct {
	Content                    string // of the completion
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

// callOpenAI makes a call with the library, below a base path.
func (s *server) callOpenAI(base, key string) *openAIResult {
	t := s.t
	t.Helper()
	modules, err := filepath.Abs("../tools/node_modules")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), awaittest.Timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "node", "testdata/openai.cjs", "http://"+s.gateway+base, key)
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
