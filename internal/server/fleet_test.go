package server_test

import (
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/event"
	"github.com/keygate/keygate/internal/keygatetest"
	"github.com/keygate/keygate/internal/keygatetest/awaittest"
	"github.com/keygate/keygate/internal/keygatetest/porttest"
)

// openGateway creates a gateway with a route that needs no key.
func openGateway(t *testing.T, s *keygatetest.Server, upstream string) *client.Gateway {
	t.Helper()
	g, err := s.Admin.CreateGateway(t.Context(), client.CreateGatewayRequest{Name: "g", UpstreamURL: upstream})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Admin.PushConfig(t.Context(), g.GatewayID, []byte("routes: [{path: /*, methods: [GET], auth: none}]"), false); err != nil {
		t.Fatal(err)
	}
	return g
}

// giveTargets gives the upstream default of a gateway a target at which nothing listens, whose address is dead, and another for
// when that is out. Two failures eject a target, for a second.
func giveTargets(t *testing.T, s *keygatetest.Server, gatewayID, good string) (dead string) {
	t.Helper()
	dead = porttest.Reserve(t)
	r := s.Call("PATCH", "/v1/gateways/"+gatewayID+"/upstreams/default", s.AdminKey,
		`{"targets": [{"url": "http://`+dead+`"}, {"url": "`+good+`", "backup": true}], "ejection": {"failures": 2, "base": "1s", "max": "1s"}}`)
	if r.Status != http.StatusOK {
		t.Fatalf("got %d %s, want 200", r.Status, r.Body)
	}
	return dead
}

// Guarantee: targets.md, section 9: the record of a request that has failed says which targets it was not sent to because they were
// ejected or drained, and that of one without a target says it of all. While all are ejected, it says that any was tried.
func TestTargetsThatWereNotTriedAreSeen(t *testing.T) {
	s := keygatetest.Start(t)
	first, second, asleep := porttest.Reserve(t), porttest.Reserve(t), porttest.Reserve(t)
	g := openGateway(t, s, "http://"+first)
	configure := func(drain string) {
		t.Helper()
		r := s.Call("PATCH", "/v1/gateways/"+g.GatewayID+"/upstreams/default", s.AdminKey, `{"retries": {"attempts": 0}, "ejection": {"failures": 2, "base": "5m"},
			"targets": [{"url": "http://`+first+`"`+drain+`}, {"url": "http://`+second+`", "backup": true`+drain+`}, {"url": "http://`+asleep+`", "drain": true}]}`)
		if r.Status != http.StatusOK {
			t.Fatalf("got %d %s, want 200", r.Status, r.Body)
		}
	}
	fails := func(attempts int, allUnhealthy bool, want ...string) {
		t.Helper()
		got := s.Through("", http.MethodGet, "/first", "", "")
		r, err := s.Admin.RequestByID(t.Context(), got.Header.Get("X-Request-Id"))
		if err != nil || got.Status != http.StatusBadGateway || r.AllUnhealthy != allUnhealthy || (r.Attempts != nil) != (attempts > 0) || r.NotTried == nil || r.NotTriedCount != int64(len(want)) {
			t.Fatalf("got %d, %+v, %v; want a 502 with %d attempts and %d targets that were not tried", got.Status, r, err, attempts, len(want))
		}
		if drained := r.Decision.Reason != nil && *r.Decision.Reason == "all_drained"; drained != (attempts == 0) {
			t.Errorf("got the reason %q with %d attempts", r.Decision.Message, attempts)
		}
		for i, target := range *r.NotTried {
			if !regexp.MustCompile(want[i]).MatchString(target.Explanation) {
				t.Errorf("got %q, want %s", target.Explanation, want[i])
			}
		}
	}
	drains := func(address string) string { return `^` + address + ` \(draining\)$` }
	configure("")
	for range 2 {
		fails(1, false, drains(asleep)) // ejects the first
	}
	for range 2 {
		fails(1, false, `^`+first+` \(ejected \d\d:\d\d:\d\d after 2 failures, for 300 s\)$`, drains(asleep)) // ejects the second
	}
	fails(1, true, drains(asleep))
	configure(`, "drain": true`)
	fails(0, false, drains(first), drains(second), drains(asleep))
}

// Guarantee: targets.md, sections 3 and 9: what a request met at the targets of an upstream is in its record, in words, in the access
// log and in metrics; a target that goes down and comes back makes an event of each.
func TestTargetsAreSeen(t *testing.T) {
	up := keygatetest.NewUpstream(t)
	log := filepath.Join(t.TempDir(), "access.log")
	s := keygatetest.Start(t, "--access-log", log)
	g := openGateway(t, s, up.URL)
	dead := giveTargets(t, s, g.GatewayID, up.URL)
	good := strings.TrimPrefix(up.URL, "http://")

	var ids []string
	for range 2 {
		r := s.Through("", http.MethodGet, "/first", "", "")
		if r.Status != http.StatusOK {
			t.Fatalf("got %d %s, want 200", r.Status, r.Body)
		}
		ids = append(ids, r.Header.Get("X-Request-Id"))
	}
	t.Run("in the record", func(t *testing.T) {
		for i, want := range []string{
			`^attempt 1 → ` + dead + `: connection refused$`, `^attempt 1 → ` + dead + `: connection refused \(ejected \d\d:\d\d:\d\d after 2 failures, for 1 s\)$`,
		} {
			r, err := s.Admin.RequestByID(t.Context(), ids[i])
			if err != nil || r.Attempts == nil || len(*r.Attempts) != 2 {
				t.Fatalf("got %+v, %v; want a request with two attempts", r, err)
			}
			if got := (*r.Attempts)[0].Explanation; !regexp.MustCompile(want).MatchString(got) {
				t.Errorf("got %q, want %s", got, want)
			}
			if got := (*r.Attempts)[1].Explanation; !strings.HasPrefix(got, "attempt 2 → "+good+": 200 in ") {
				t.Errorf("got %q, want a response of %s", got, good)
			}
		}
		n := 0
		for r, err := range s.Admin.Requests(t.Context(), client.RequestFilter{Result: "retried"}) {
			if n++; err != nil || r.Status != http.StatusOK {
				t.Fatalf("got %+v, %v; want the requests with two attempts", r, err)
			}
		}
		if n != 2 {
			t.Errorf("got %d requests with several attempts, want 2", n)
		}
	})
	t.Run("in the access log", func(t *testing.T) {
		want := `"upstream":"default","target":"` + good + `","attempts":[{"target":"` + dead + `","result":"connect","reason":"connection_refused","status":null,`
		awaittest.True(t, "the access log has both requests", func() bool {
			content, err := os.ReadFile(log)
			return err == nil && strings.Count(string(content), want) == 2
		})
	})
	t.Run("in the metrics", func(t *testing.T) {
		of := `gateway="` + g.GatewayID + `",`
		text := scrape(t, s)
		for _, want := range []string{
			`keygate_target_up{` + of + `target="` + dead + `",upstream="default"} 0`, `keygate_target_up{` + of + `target="` + good + `",upstream="default"} 1`,
			`keygate_target_failures_total{` + of + `reason="connect",target="` + dead + `",upstream="default"} 2`, `keygate_target_ejections_total{` + of + `target="` + dead + `",upstream="default"} `,
			`keygate_target_requests_total{` + of + `target="` + good + `",upstream="default"} 2`, `keygate_retries_total{result="ok"} 2`, `keygate_upstream_all_unhealthy{` + of + `upstream="default"} 0`,
		} {
			if !strings.Contains(text, want) {
				t.Errorf("got no line %s in\n%s", want, regexp.MustCompile(`(?m)^(#|go_|process_).*\n`).ReplaceAllString(text, ""))
			}
		}
	})
	t.Run("in events", func(t *testing.T) {
		l, err := net.Listen("tcp", dead)
		if err != nil {
			t.Fatal(err)
		}
		back := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})}
		go func() { _ = back.Serve(l) }()
		t.Cleanup(func() { _ = back.Close() })
		want := map[event.Type]string{event.UpstreamTargetDown: "connect", event.UpstreamTargetUp: "answered"}
		awaittest.True(t, "a target goes down and comes back", func() bool {
			s.Through("", http.MethodGet, "/first", "", "")
			got := map[string]bool{}
			for e, err := range s.Admin.Events(t.Context(), client.EventFilter{}) {
				if err != nil {
					t.Fatal(err)
				}
				got[e.Type] = true
			}
			return got[string(event.UpstreamTargetDown)] && got[string(event.UpstreamTargetUp)]
		})
		for e, err := range s.Admin.Events(t.Context(), client.EventFilter{}) {
			if err != nil {
				t.Fatal(err)
			}
			reason := want[event.Type(e.Type)]
			if reason == "" {
				continue
			}
			raw, err := json.Marshal(e.Data)
			if err != nil {
				t.Fatal(err)
			}
			var data event.TargetState
			if err := json.Unmarshal(raw, &data); err != nil {
				t.Fatal(err)
			}
			if data.Target != dead || data.Reason != reason || data.Count < 1 || len(data.Upstreams) != 1 || data.Upstreams[0] != (event.UpstreamRef{GatewayID: g.GatewayID, Upstream: "default"}) || data.Node != nil {
				t.Errorf("%s: got %s, want the target %s of the gateway's upstream default, and the reason %s", e.Type, raw, dead, reason)
			}
		}
	})
}
