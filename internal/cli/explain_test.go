package cli

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/keygate/keygate/client"
)

// Guarantee: a list of requests with a cost shows the units of each meter, and why a cost is unknown; one of requests with several
// attempts shows these; other lists show why a request was refused.
func TestListsOfRequestsShowCosts(t *testing.T) {
	reason := "incomplete"
	r := &client.LoggedRequest{Status: 200, Time: time.Unix(0, 0), Decision: client.Decision{Check: "upstream", Code: "upstream_status"}, Cost: &map[string]client.RequestCost{
		"tokens": {Units: 1204, Reserved: 2000}, "cents": {Units: 7, Unknown: &reason},
	}}
	for result, want := range map[string]string{"charged": "now 200 7 cents (incomplete), 1204 tokens", "": "now 200 upstream (upstream_status)"} {
		o := &explain{filter: client.RequestFilter{Result: result}}
		if got := strings.Join(o.row(r, "now")[:3], " "); got != want {
			t.Errorf("--result %q: got %q, want %q", result, got, want)
		}
	}
	r.Attempts = &[]client.RequestAttempt{{Explanation: "attempt 1 → a:1: connection refused"}, {Explanation: "attempt 2 → b:1: 200 in 4 ms"}}
	o := &explain{filter: client.RequestFilter{Result: "retried"}}
	if got, want := o.row(r, "now")[2], "attempt 1 → a:1: connection refused; attempt 2 → b:1: 200 in 4 ms"; got != want || o.columns()[2].Name != "ATTEMPTS" {
		t.Errorf("--result retried: got %q, want %q", got, want)
	}
	if got := costs(&client.LoggedRequest{}, briefly); got != nil {
		t.Errorf("got %q for a request without a cost, want none", got)
	}
}

// Guarantee: the targets that a request was not sent to for their state are shown with the reason, and how many more there are;
// that all were unhealthy is said.
func TestTargetsThatWereNotTried(t *testing.T) {
	r := &client.LoggedRequest{}
	if got := notTried(r) + allUnhealthy(r); got != "" {
		t.Errorf("got %q for a request without targets, want nothing", got)
	}
	r.NotTried, r.NotTriedCount = &[]client.RequestTarget{{Explanation: "a:1 (draining)"}, {Explanation: "b:1 (waits for its first check)"}}, 2
	if got, want := notTried(r), "a:1 (draining); b:1 (waits for its first check)"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	r.NotTriedCount, r.AllUnhealthy = 9, true
	if got := notTried(r); !strings.HasSuffix(got, "; and 7 more") || allUnhealthy(r) == "" {
		t.Errorf("got %q and %q, want 7 more, and that all were unhealthy", got, allUnhealthy(r))
	}
}

// Guarantee: a request with a token shows the token's issuer and its subject where others show a key.
func TestExplainTokens(t *testing.T) {
	credential, issuerID, subject, prefix := client.LoggedRequestCredentialToken, "iss_x", "ada", "kg_AbCdEf"
	r := &client.LoggedRequest{Credential: &credential, IssuerID: &issuerID, Subject: &subject}
	if got, want := fmt.Sprint(whose(r, "")), "[[TOKEN OF iss_x] [SUBJECT ada]]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	o := &explain{}
	if got := o.row(r, ""); got[3] != subject {
		t.Errorf("got the row %q, want the subject in the column of the key", got)
	}
	credential = client.LoggedRequestCredentialKey
	r = &client.LoggedRequest{Credential: &credential, KeyPrefix: &prefix}
	if got, want := fmt.Sprint(whose(r, "app (key_x)")), "[[KEY PREFIX kg_AbCdEf] [KEY app (key_x)]]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := o.row(r, ""); got[3] != prefix {
		t.Errorf("got the row %q, want the prefix in the column of the key", got)
	}
}
