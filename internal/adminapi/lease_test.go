package adminapi_test

import (
	"strings"
	"sync/atomic"
	"testing"
)

// lease is a Lease that the test gives and takes.
type lease struct{ lost atomic.Bool }

func (l *lease) Held() bool { return !l.lost.Load() }

// Guarantee: a node that does not hold its lease accepts no key and no session: 503, without Retry-After, which only a
// 429 has. The call counts neither as a failed sign-in nor as an authentication. Calls that need no key go on. With
// the lease again, everything is as before.
func TestNoKeyIsAcceptedWithoutLease(t *testing.T) {
	s := start(t)
	_, session := s.signIn(s.admin)
	s.lease.lost.Store(true)
	s.events.take()
	calls := func() []*response {
		signIn, _ := s.signIn(s.admin)
		return []*response{
			s.get("/v1/keys"), s.post("/v1/keys", map[string]any{"name": "a", "scope": "read"}), s.with(session, "GET", "/v1/gateways", nil, nil), signIn,
			s.do(request{method: "GET", path: "/v1/unknown"}),
		}
	}
	for range 12 { // more than the failed sign-ins that an address may have
		for _, r := range calls() {
			r.refused(503, "unavailable", "")
			if got := r.header.Get("Retry-After"); got != "" {
				t.Errorf("%s: got Retry-After %q, want none", r.what, got)
			}
			if got := r.text("message"); !strings.Contains(got, "the database cannot be reached") { // the dashboard and the CLI show it
				t.Errorf("%s: got %q, want it to say that the database is away", r.what, got)
			}
		}
	}
	if got := s.events.take(); len(got) > 0 {
		t.Errorf("got authentication records %+v, want none", got)
	}
	s.do(request{method: "GET", path: "/v1/openapi.json", key: "-"}).want(200)
	s.lease.lost.Store(false)
	s.get("/v1/keys").want(200)
	s.with(session, "GET", "/v1/gateways", nil, nil).want(200)
	again, _ := s.signIn(s.admin)
	again.want(200)
}
