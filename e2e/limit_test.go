package e2e

import (
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/keygatetest/awaittest"
)

// newLimitedRoute creates a gateway with a route /l that has limit, and a key.
func (s *server) newLimitedRoute(upstream string, limit map[string]any, keyMore map[string]any) (routeURL, key string) {
	s.t.Helper()
	id := s.newGateway(upstream, nil)
	route := s.call(http.StatusCreated, "POST", "/v1/gateways/"+id+"/routes", map[string]any{
		"path": "/l", "methods": []string{"GET"}, "rate_limit": limit,
	}).field(s.t, "route_id")
	_, key = s.newKey(keyMore)
	return "/v1/gateways/" + id + "/routes/" + route, key
}

// Guarantee: a limit admits exactly its capacity, however many clients call at once:
// with a capacity of 50 and a refill of one token a day, 50 of 400 requests pass, and each refusal
// has the figures of the specification.
func TestLimitAdmitsExactlyWhatItSays(t *testing.T) {
	up := newRecordingUpstream(t)
	s := startServer(t)
	_, key := s.newLimitedRoute(up.URL, map[string]any{"sustained": "1/day", "burst": "50/s"}, nil)
	var passed, refused atomic.Int64
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range 50 {
				a, err := s.send("GET", "/l", key)
				if err != nil {
					t.Error(err)
					return
				}
				switch a.status {
				case http.StatusOK:
					passed.Add(1)
				case http.StatusTooManyRequests:
					refused.Add(1)
					m := a.json(t)
					reset := int64(m["reset_at"].(float64))
					if m["error"] != "rate_limit_exceeded" || m["limit"] != 50.0 || m["remaining"] != 0.0 || m["limit_scope"] != "route" ||
						a.header.Get("X-RateLimit-Reset") != strconv.FormatInt(reset, 10) || a.header.Get("X-RateLimit-Remaining") != "0" {
						t.Errorf("wrong refusal: %v %s", a.header, a.body)
					}
					after, err := strconv.ParseInt(a.header.Get("Retry-After"), 10, 64)
					if err != nil || after < 1 || after > 86400 || reset < time.Now().Unix() {
						t.Errorf("got Retry-After %q and reset_at %d, want 1 to 86400 and a future time", a.header.Get("Retry-After"), reset)
					}
				default:
					t.Errorf("got status %d %s, want 200 or 429", a.status, a.body)
				}
			}
		})
	}
	group.Wait()
	if passed.Load() != 50 || refused.Load() != 350 {
		t.Fatalf("%d requests passed and %d were refused, want 50 and 350", passed.Load(), refused.Load())
	}
	if got := len(up.take()); got != 50 {
		t.Fatalf("%d requests reached the upstream, want 50", got)
	}
}

// Guarantee: neither a push nor a changed limit refills a bucket; a changed bucket keeps what was
// used, up to its capacity.
func TestChangesDoNotRefill(t *testing.T) {
	up := newRecordingUpstream(t)
	s := startServer(t)
	route, key := s.newLimitedRoute(up.URL, map[string]any{"sustained": "1/day", "burst": "100/s"}, nil)
	for range 6 {
		s.mustSend(http.StatusOK, "GET", "/l", key)
	}
	s.call(http.StatusOK, "POST", route, map[string]any{"rate_limit": map[string]any{"burst": "10/s"}})
	a := s.mustSend(http.StatusOK, "GET", "/l", key)
	if got := a.header.Get("X-RateLimit-Remaining"); got != "3" {
		t.Fatalf("7 requests after a change from 100 to 10: %s left, want 3", got)
	}
	// A push of a configuration with the same route keeps the bucket.
	gatewayURL := route[:len("/v1/gateways/")+len("gw_")+26]
	s.call(http.StatusOK, "PUT", gatewayURL+"/config",
		"routes:\n  - {path: /l, methods: [GET], rate_limit: {sustained: 1/day, burst: 10/s}}\n  - {path: /other, methods: [GET]}\n",
		"Content-Type: application/yaml")
	a = s.mustSend(http.StatusOK, "GET", "/l", key)
	if got := a.header.Get("X-RateLimit-Remaining"); got != "2" {
		t.Fatalf("after a push: %s requests left, want 2", got)
	}
}

// Guarantee: crashes never let more requests pass than a daily cap allows, and all crashes of a day
// together lose at most 1 % of the cap, or 1 request if that is more.
func TestDailyCapSurvivesCrashes(t *testing.T) {
	up := newRecordingUpstream(t)
	s := startServer(t)
	const limit, kills = 300, 8
	_, key := s.newLimitedRoute(up.URL, map[string]any{"daily": fmt.Sprintf("%d/day", limit)}, nil)
	awaittest.Left(24*time.Hour, time.Minute)
	day := time.Now().UTC().YearDay()
	passed := 0
	for round := range kills + 1 {
		for i := 0; round == kills || i < 30; i++ {
			a, err := s.send("GET", "/l", key)
			if err != nil {
				t.Fatal(err)
			}
			if a.status == http.StatusTooManyRequests {
				if m := a.json(t); m["limit_scope"] != "daily" || m["limit"] != float64(limit) {
					t.Fatalf("got refusal %s, want limit_scope daily and limit %d", a.body, limit)
				}
				break
			}
			if a.status != http.StatusOK {
				t.Fatalf("got status %d %s, want 200 or 429", a.status, a.body)
			}
			passed++
		}
		if round < kills {
			s.restart(syscall.SIGKILL)
		}
	}
	if time.Now().UTC().YearDay() != day {
		awaittest.Late(t, "a new UTC day began, and the counts prove nothing")
		return
	}
	if passed > limit || passed < limit-limit/100 {
		t.Fatalf("%d requests passed, want %d to %d with a cap of %d, however many crashes", passed, limit-limit/100, limit, limit)
	}
}

// Guarantee: an orderly restart keeps the count of a daily cap exactly.
func TestDailyCapSurvivesRestart(t *testing.T) {
	up := newRecordingUpstream(t)
	s := startServer(t)
	_, key := s.newLimitedRoute(up.URL, map[string]any{"daily": "1000/day"}, nil)
	awaittest.Left(24*time.Hour, time.Minute)
	day := time.Now().UTC().YearDay()
	for i := range 5 {
		for range 10 {
			s.mustSend(http.StatusOK, "GET", "/l", key)
		}
		s.restart(syscall.SIGTERM)
		a := s.mustSend(http.StatusOK, "GET", "/l", key)
		if time.Now().UTC().YearDay() != day {
			awaittest.Late(t, "a new UTC day began, and the counts prove nothing")
			return
		}
		if want := strconv.Itoa(1000 - 11*(i+1)); a.header.Get("X-RateLimit-Remaining") != want {
			t.Fatalf("after restart %d: %s requests left, want %s", i+1, a.header.Get("X-RateLimit-Remaining"), want)
		}
	}
}

// Guarantee: the daily cap of a key counts across a restart, and a request beyond it is refused
// because of the key's limit.
func TestDailyCapOfAKeySurvivesRestart(t *testing.T) {
	up := newRecordingUpstream(t)
	s := startServer(t)
	s.newGateway(up.URL, nil)
	_, key := s.newKey(map[string]any{"rate_limit": map[string]any{"sustained": "100/s", "daily": "5/day"}})
	_, other := s.newKey(map[string]any{"rate_limit": map[string]any{"daily": "5/day"}})
	awaittest.Left(24*time.Hour, time.Minute)
	day := time.Now().UTC().YearDay()
	for range 3 {
		s.mustSend(http.StatusOK, "GET", "/x", key)
	}
	s.restart(syscall.SIGTERM)
	var last response
	for range 3 {
		var err error
		if last, err = s.send("GET", "/x", key); err != nil {
			t.Fatal(err)
		}
	}
	if time.Now().UTC().YearDay() != day {
		awaittest.Late(t, "a new UTC day began, and the counts prove nothing")
		return
	}
	if last.status != http.StatusTooManyRequests {
		t.Fatalf("got status %d for request 6 with a cap of 5, want 429", last.status)
	}
	if m := last.json(t); m["limit_scope"] != "key" || m["limit"] != 5.0 || m["remaining"] != 0.0 {
		t.Fatalf("got refusal %s, want limit_scope key, limit 5 and nothing left", last.body)
	}
	if got, want := last.header.Get("RateLimit-Policy"), `"key";q=100;w=1, "key-daily";q=5;w=86400`; got != want {
		t.Fatalf("got RateLimit-Policy %s, want %s", got, want)
	}
	s.mustSend(http.StatusOK, "GET", "/x", other)
}

// Guarantee: the old and the new key of a rotation share one bucket, and a later
// change of the limit applies to both.
func TestRotatedKeysShareOneBucket(t *testing.T) {
	up := newRecordingUpstream(t)
	s := startServer(t)
	s.newGateway(up.URL, nil)
	oldID, old := s.newKey(map[string]any{"rate_limit": "10/day"})
	for range 4 {
		s.mustSend(http.StatusOK, "GET", "/x", old)
	}
	rotated := s.call(http.StatusCreated, "POST", "/v1/keys/"+oldID+"/rotate", map[string]any{"overlap_days": 1})
	fresh := rotated.field(t, "key")
	for range 3 {
		s.mustSend(http.StatusOK, "GET", "/x", fresh)
		s.mustSend(http.StatusOK, "GET", "/x", old)
	}
	for _, key := range []string{old, fresh} {
		if a := s.mustSend(http.StatusTooManyRequests, "GET", "/x", key); a.json(t)["limit_scope"] != "key" {
			t.Fatalf("got refusal %s, want limit_scope key", a.body)
		}
	}
	s.call(http.StatusOK, "PATCH", "/v1/keys/"+rotated.field(t, "key_id"), map[string]any{"rate_limit": nil})
	s.mustSend(http.StatusOK, "GET", "/x", old)
	s.mustSend(http.StatusOK, "GET", "/x", fresh)
}
