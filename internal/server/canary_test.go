package server_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/keygatetest"
	"github.com/keygate/keygate/internal/keygatetest/awaittest"
)

// Guarantee: targets.md, section 8. Callers of a canary's routes stay on their sides, and the records of their requests say so; what
// they are told is counted, over a restart too; and a canary whose upstream fails is aborted in words, after which all callers go to
// the other one.
func TestCanaryThatFailsIsAborted(t *testing.T) {
	s := keygatetest.Start(t)
	failing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }))
	t.Cleanup(failing.Close)
	gatewayID := calling(t, s, "POST", "/v1/gateways", `{"name":"g","upstreams":[{"name":"default","targets":[{"url":"`+namedUpstream(t, "old")+`"}]},
		{"name":"next","targets":[{"url":"`+failing.URL+`"}]}]}`)["gateway_id"].(string)
	g := "/v1/gateways/" + gatewayID
	calling(t, s, "POST", g+"/routes", `{"path":"/a","methods":["GET"]}`)
	var keys []string
	for i := range 24 {
		keys = append(keys, calling(t, s, "POST", "/v1/keys", fmt.Sprintf(`{"name":"k%d","scope":"read"}`, i))["key"].(string))
	}
	canaryID := calling(t, s, "POST", g+"/canaries", `{"upstream":"next","steps":[50],"hold":"1h"}`)["canary_id"].(string)
	statusOf := func(key string) int { return s.Through("", http.MethodGet, "/a", key, "").Status }
	side := map[string]int{}
	for _, key := range keys {
		side[key] = statusOf(key)
		if side[key] == http.StatusInternalServerError {
			r := s.Through("", http.MethodGet, "/a", key, "")
			record, err := s.Admin.RequestByID(t.Context(), r.Header.Get("X-Request-Id"))
			if err != nil || record.Side == nil || *record.Side != "next" || record.SideReason == nil || !strings.HasPrefix(*record.SideReason, "50 % of callers, by the key, of canary can_") {
				t.Errorf("got the record %+v, %v; want the side next of the canary", record, err)
			}
		}
	}
	state := func() *client.Canary {
		now, err := s.Admin.Canary(t.Context(), gatewayID, canaryID)
		if err != nil {
			t.Fatal(err)
		}
		return now
	}
	restarted := false
	awaittest.True(t, "the canary to be aborted", func() bool {
		now := state()
		if now.State == client.CanaryStateAborted {
			return true
		}
		if !restarted {
			restarted = true
			s.Restart()
		}
		for _, key := range keys {
			if got := statusOf(key); got != side[key] && state().State == client.CanaryStateRunning {
				t.Errorf("a caller of the side with the status %d got %d", side[key], got)
			}
		}
		return false
	})
	end := state()
	if why := end.Explanation; !strings.Contains(why, " failed on next (") || !strings.HasSuffix(why, "points more; allowed 1.0") || end.Weight != nil {
		t.Errorf("got %+v", end)
	}
	for _, key := range keys {
		if got := statusOf(key); got != http.StatusOK {
			t.Errorf("after the abort: got the status %d, want 200", got)
		}
	}
	events := calling(t, s, "GET", "/v1/events?type=canary.aborted", "")["data"].([]any)
	if len(events) != 1 || events[0].(map[string]any)["data"].(map[string]any)["explanation"] != end.Explanation {
		t.Errorf("got the events %v", events)
	}
}
