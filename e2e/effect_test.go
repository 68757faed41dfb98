package e2e

import (
	"encoding/json"
	"net/http"
	"testing"
)

// Guarantee: after real traffic, a dry run says how many of its requests and keys used a route that
// would be removed, and how many requests a lower limit would refuse. It changes nothing. A key that
// may push but not see the traffic is refused.
func TestEffectOfAChange(t *testing.T) {
	up := newRecordingUpstream(t)
	s := startServer(t)
	id := s.newGateway(up.URL, nil)
	for _, path := range []string{"/kept", "/gone"} {
		s.call(http.StatusCreated, "POST", "/v1/gateways/"+id+"/routes", map[string]any{"path": path, "methods": []string{"GET"}})
	}
	_, one := s.newKey(nil)
	_, two := s.newKey(nil)
	for i := range 10 {
		s.mustSend(http.StatusOK, "GET", "/kept", one)
		if i < 4 {
			s.mustSend(http.StatusOK, "GET", "/gone", []string{one, two}[i%2])
		}
	}
	const file = "routes: [{path: /kept, methods: [GET], rate_limit: {sustained: 3/day}}]"
	path := "/v1/gateways/" + id + "/config?dry_run=true&effect=true"
	type effect struct{ Requests, Keys, Refused int64 }
	var result struct {
		Revision *int64
		Effect   struct {
			effect
			Routes []struct {
				Path    string
				Changes []string
				effect
			}
		}
	}
	body := s.call(http.StatusOK, "PUT", path, file, "Content-Type: application/yaml").body
	if err := json.Unmarshal(body, &result); err != nil {
		t.Fatal(err)
	}
	got := map[string]effect{"": result.Effect.effect}
	for _, r := range result.Effect.Routes {
		got[r.Path] = r.effect
	}
	for path, want := range map[string]effect{"/gone": {4, 2, 4}, "/kept": {10, 1, 7}, "": {14, 2, 11}} {
		if got[path] != want {
			t.Errorf("%s: got %+v, want %+v\n%s", path, got[path], want, body)
		}
	}
	if len(got) != 3 || result.Revision != nil {
		t.Errorf("got %s, want two routes and no revision", body)
	}
	s.mustSend(http.StatusOK, "GET", "/gone", one)
	_, pusher := s.newKey(map[string]any{"level": "account", "scope": "write:gateways/" + id + "/config"})
	if a, err := s.try(pusher, "PUT", path, file, "Content-Type: application/yaml"); err != nil || a.status != http.StatusForbidden {
		t.Errorf("a key that may only push: got %v, %d, want 403", err, a.status)
	}
	if a, err := s.try(s.key, "PUT", "/v1/gateways/"+id+"/config?effect=true", file, "Content-Type: application/yaml"); err != nil || a.status != http.StatusUnprocessableEntity {
		t.Errorf("without a dry run: got %v, %d, want 422", err, a.status)
	}
}
