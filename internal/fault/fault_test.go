package fault_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/fault"
)

// Guarantee: the response to an error without a public message reveals nothing of its text.
func TestInternalTextIsNotRevealed(t *testing.T) {
	err := fmt.Errorf("insert key: %w", errors.New("SQLITE_CORRUPT at /var/lib/x"))
	status, body := fault.Response(err, "req_1")
	if status != 500 || strings.Contains(string(body), "SQLITE") {
		t.Fatalf("got %d %s, want the status without internal text", status, body)
	}
	wrapped := &fault.Error{Code: fault.Unavailable, Message: "try again", Err: err}
	if status, body := fault.Response(wrapped, "req_1"); status != 503 || strings.Contains(string(body), "SQLITE") {
		t.Fatalf("got %d %s, want the status without internal text", status, body)
	}
}

// Guarantee: the body has the properties of the specification, and only those that apply.
func TestResponse(t *testing.T) {
	for _, c := range []struct {
		err    error
		status int
		body   string
	}{
		{
			fault.Prefixed("routes[2]", fault.Invalid("path", "must begin with /")), 422,
			`{"error":"validation_failed","message":"must begin with /","field":"routes[2].path","errors":[{"field":"routes[2].path","message":"must begin with /"}],"request_id":"req_1"}`,
		},
		{
			fault.Prefixed("rate_limit", fault.Join(nil, fault.Invalid("burst", "must be a rate"),
				fault.Join(fault.Invalid("daily", "must be a rate"), nil, fault.Invalid("per", `must be "key"`)))), 422,
			`{"error":"validation_failed","message":"must be a rate","field":"rate_limit.burst","errors":[` +
				`{"field":"rate_limit.burst","message":"must be a rate"},{"field":"rate_limit.daily","message":"must be a rate"},` +
				`{"field":"rate_limit.per","message":"must be \"key\""}],"request_id":"req_1"}`,
		},
		{
			fault.Join(fault.Invalid("name", "is required"), fault.Missing("gateway")), 404,
			`{"error":"not_found","message":"there is no such gateway","request_id":"req_1"}`,
		},
		{
			&fault.Error{Code: fault.Unauthorized, Auth: fault.KeyExpired, Message: "the key has expired"}, 401,
			`{"error":"unauthorized","message":"the key has expired","code":"key_expired","request_id":"req_1"}`,
		},
		{
			&fault.Error{Code: fault.RateLimitExceeded, Message: "slow down", Limit: &fault.Limit{Limit: 5, ResetAt: 9, Scope: "key"}}, 429,
			`{"error":"rate_limit_exceeded","message":"slow down","limit":5,"remaining":0,"reset_at":9,"limit_scope":"key","request_id":"req_1"}`,
		},
	} {
		status, body := fault.Response(c.err, "req_1")
		if status != c.status || string(body) != c.body+"\n" {
			t.Errorf("%v:\n got %d %s\nwant %d %s", c.err, status, body, c.status, c.body)
		}
	}
}

// Guarantee: a response lists at most MaxProblems problems, and nothing wrong is no error.
func TestJoinIsBounded(t *testing.T) {
	if err := fault.Join(nil, nil); err != nil {
		t.Fatalf("got %v, want no error", err)
	}
	var err error
	for i := range 3 * fault.MaxProblems {
		err = fault.Join(err, fault.Invalid(fmt.Sprintf("routes[%d].path", i), "must begin with /"))
	}
	var e *fault.Error
	if !errors.As(err, &e) || len(e.Problems) != fault.MaxProblems || e.Problems[0].Field != e.Field {
		t.Fatalf("got %d problems, want %d that begin with the error's own", len(e.Problems), fault.MaxProblems)
	}
}

// Guarantee: contract 3.3, error_format: the other forms say the same, as OpenAI's clients and RFC 9457 have it.
func TestFormats(t *testing.T) {
	limited := &fault.Error{Code: fault.RateLimitExceeded, Message: "slow down", Limit: &fault.Limit{Limit: 5, ResetAt: 9, Scope: "key"}}
	for _, c := range []struct {
		format fault.Format
		err    error
		status int
		body   string
	}{
		{fault.FormatKeygate, limited, 429, `{"error":"rate_limit_exceeded","message":"slow down","limit":5,"remaining":0,"reset_at":9,"limit_scope":"key","request_id":"req_1"}`},
		{fault.FormatOpenAI, limited, 429, `{"error":{"message":"slow down","type":"rate_limit_error","code":"rate_limit_exceeded","param":null}}`},
		{fault.FormatOpenAI, &fault.Error{Code: fault.Unauthorized, Auth: fault.KeyExpired, Message: "m"}, 401, `{"error":{"message":"m","type":"authentication_error","code":"key_expired","param":null}}`},
		{fault.FormatOpenAI, fault.Denied("m"), 403, `{"error":{"message":"m","type":"permission_error","code":"scope_insufficient","param":null}}`},
		{fault.FormatOpenAI, fault.New(fault.RouteNotFound, "m"), 404, `{"error":{"message":"m","type":"invalid_request_error","code":"route_not_found","param":null}}`},
		{fault.FormatOpenAI, fault.Invalid("a", "m"), 422, `{"error":{"message":"m","type":"invalid_request_error","code":"validation_failed","param":"a"}}`},
		{fault.FormatOpenAI, fault.New(fault.UpstreamTimeout, "m"), 504, `{"error":{"message":"m","type":"server_error","code":"upstream_timeout","param":null}}`},
		{
			fault.FormatProblem, limited, 429,
			`{"type":"about:blank","title":"Too Many Requests","status":429,"detail":"slow down","error":"rate_limit_exceeded","limit":5,"remaining":0,"reset_at":9,"limit_scope":"key","request_id":"req_1"}`,
		},
		{
			fault.FormatProblem, fault.Denied("m"), 403,
			`{"type":"about:blank","title":"Forbidden","status":403,"detail":"m","error":"forbidden","code":"scope_insufficient","request_id":"req_1"}`,
		},
	} {
		status, body := c.format.Response(c.err, "req_1")
		if status != c.status || string(body) != c.body+"\n" {
			t.Errorf("%s, %v:\n got %d %s\nwant %d %s", c.format, c.err, status, body, c.status, c.body)
		}
	}
	secret := fmt.Errorf("insert key: %w", errors.New("SQLITE_CORRUPT at /var/lib/x"))
	for _, f := range fault.Formats() {
		if _, body := fault.Format(f).Response(secret, "req_1"); strings.Contains(string(body), "SQLITE") {
			t.Errorf("%s: got %s, want a body without internal text", f, body)
		}
	}
}
