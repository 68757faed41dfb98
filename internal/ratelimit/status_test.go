package ratelimit

import (
	"slices"
	"testing"
)

// Guarantee: the reference of the error codes explains every scope of a limit, with the plane
// that refuses with it, and no other.
func TestEveryScopeIsExplained(t *testing.T) {
	var scopes, explained []string
	for s := KeyScope; s.String() != "unknown"; s++ {
		if s.Reported() == s {
			scopes = append(scopes, s.String())
		}
	}
	for _, e := range ScopeReference() {
		explained = append(explained, e.Code)
		if management := e.Code == AccountScope.String(); e.Meaning == "" || e.Remedy == "" || e.Management != management || e.Data == management {
			t.Errorf("%s is not explained: %+v", e.Code, e)
		}
	}
	if !slices.Equal(explained, scopes) {
		t.Errorf("explained %q, want %q", explained, scopes)
	}
}

// showing returns a charge that shows statuses.
func showing(all ...Status) *Charge {
	c := new(Charge)
	for i := range all {
		c.Add(Limit{Scope: all[i].Scope, Default: all[i].Default}, 1)
		c.entries()[i].status = all[i]
	}
	c.show(0)
	return c
}

// Guarantee: the fields RateLimit and RateLimit-Policy have one item for each limit except the
// default limit.
func TestFields(t *testing.T) {
	s := []Status{
		{Scope: KeyScope, Limit: 100, Remaining: 99, Window: 60, ResetIn: 1},
		{Scope: RouteScope, Limit: 50, Remaining: 0, Window: 1, ResetIn: 0},
		{Scope: DailyScope, Limit: 1000, Remaining: 7, Window: 86400, ResetIn: 3600},
		{Scope: GlobalScope, Limit: 1_000_000, Remaining: 1, Window: 1, ResetIn: 1, Default: true},
	}
	if got, want := string(showing(s...).AppendPolicy([]byte("x: "))), `x: "key";q=100;w=60, "route";q=50;w=1, "daily";q=1000;w=86400`; got != want {
		t.Errorf("policy %s, want %s", got, want)
	}
	if got, want := string(showing(s...).AppendLimits(nil)), `"key";r=99;t=1, "route";r=0;t=0, "daily";r=7;t=3600`; got != want {
		t.Errorf("limits %s, want %s", got, want)
	}
	if got := showing(s[3:]...).AppendPolicy(nil); len(got) != 0 {
		t.Errorf("AppendPolicy of the default limit = %q, want nothing", got)
	}
}

// Guarantee: the headers show the limit with the fewest requests left, on a tie the limit that
// resets later, and of refusing limits the limit with the longest wait.
func TestFewestLeft(t *testing.T) {
	fast, slow := compile(perSecond(5), 5), compile(perMinute(5), 5)
	var s [3]Status
	limits := []Limit{
		{Scope: KeyScope, Params: &fast, Bucket: new(Bucket)},
		{Scope: RouteScope, Params: &slow, Bucket: new(Bucket)},
		{Scope: GlobalScope, Params: &fast, Bucket: new(Bucket)},
	}
	for n := range 5 {
		if r, worst := decide(at(0), limits, s[:]); r != Admitted || worst != 1 || s[1].Remaining != int64(4-n) {
			t.Fatalf("got %v, worst %d, %+v, want Admitted by limit 1", r, worst, s)
		}
	}
	r, worst := decide(at(0), limits, s[:])
	if r != Refused || worst != 1 || s[1].RetryAfter != 12 || s[0].RetryAfter != 1 || s[1].ResetAt != startWall/second+13 {
		t.Fatalf("got %v, worst %d, %+v, want Refused by limit 1 for 12 s", r, worst, s)
	}
	if r, worst := decide(at(0), nil, nil); r != Admitted || worst != -1 {
		t.Fatalf("no limits: got %v, %d, want Admitted, -1", r, worst)
	}
}
