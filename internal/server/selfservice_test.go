package server_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/keygatetest"
)

// selfServed is what a response to the holder of a key has.
type selfServed struct {
	KeyID string `json:"key_id"`
	Key   json.RawMessage
	Owner *string
	Plan  *string
	// Limits are those of a usage.
	Limits []struct {
		Limit, Plan, Per, Meter          string
		Used, Reserved, Remaining, Count int64
	}
	RotatedFrom string `json:"rotated_from"`
	Code, Error string
	LimitScope  string `json:"limit_scope"`
}

func readServed(t *testing.T, r keygatetest.Response) (s selfServed, key string) {
	t.Helper()
	if err := json.Unmarshal([]byte(r.Body), &s); err != nil {
		t.Fatalf("%d %s: %v", r.Status, r.Body, err)
	}
	_ = json.Unmarshal(s.Key, &key) // a usage has an object
	return s, key
}

// letHolders sets self_service of a gateway.
func letHolders(t *testing.T, api *client.Client, gatewayID string, usage, rotate bool) {
	t.Helper()
	if _, err := api.UpdateGateway(t.Context(), gatewayID, client.GatewayPatch{SelfService: client.Set(client.SelfServiceInput{Usage: &usage, Rotate: &rotate})}); err != nil {
		t.Fatal(err)
	}
}

const week = `{"overlap_days": 7}`

// Guarantee: plans.md, 9: a holder sees what was used of the quotas of its key and its owner, rotates the key once, and uses
// both keys; the response has the new key and nothing of the operator's. What is off is 404, paths beside it are routes, and
// the key must be in a header. All of it holds after a restart.
func TestSelfService(t *testing.T) {
	s := startServing(t)
	if _, err := s.Admin.CreatePlan(t.Context(), client.CreatePlanRequest{Name: "pro", Limits: &[]client.PlanLimitInput{
		{Name: "keys", Quota: new("100/day")}, {Name: "all", Quota: new("1000/month"), Per: new(client.PlanLimitInputPerOwner)},
	}}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Admin.CreateOwner(t.Context(), client.CreateOwnerRequest{ExternalID: "ada", Plan: new("pro")}); err != nil {
		t.Fatal(err)
	}
	k, err := s.Admin.CreateKey(t.Context(), client.CreateKeyRequest{Name: "k", Scope: "read:orders", Owner: new("ada"), Metadata: &map[string]string{"note": "internal"}})
	if err != nil {
		t.Fatal(err)
	}
	want := func(what string, r keygatetest.Response, status int) keygatetest.Response {
		t.Helper()
		if r.Status != status {
			t.Fatalf("%s: got %d %s, want %d", what, r.Status, r.Body, status)
		}
		return r
	}
	ask := func(method, target, key, body string, header ...string) keygatetest.Response {
		return s.Through("", method, target, key, body, header...)
	}
	want("both off", ask("GET", "/.keygate/usage", k.Secret, ""), 404)
	want("both off, as a route", ask("GET", "/.keygate/usage", "", ""), 401)
	letHolders(t, s.Admin, s.gateway, true, false)
	want("no key", ask("GET", "/.keygate/usage", "", ""), 401)
	want("key in the query", ask("GET", "/.keygate/usage?api_key="+k.Secret, "", ""), 401)
	want("key in header and query", ask("GET", "/.keygate/usage?api_key=x", k.Secret, ""), 200)
	want("rotation is off", ask("POST", "/.keygate/rotate", k.Secret, week), 404)
	want("unknown path", ask("GET", "/.keygate/", k.Secret, ""), 404)
	want("unknown path without a key", ask("GET", "/.keygate/x", "", ""), 401)
	if got := want("method", ask("DELETE", "/.keygate/usage", k.Secret, ""), 405); got.Header.Get("Allow") != "GET, HEAD" {
		t.Errorf("got Allow %q, want GET, HEAD", got.Header.Get("Allow"))
	}
	letHolders(t, s.Admin, s.gateway, true, true)
	for range 3 {
		want("a route", ask("GET", "/orders", k.Secret, ""), 200)
	}
	got := want("usage", ask("GET", "/.keygate/usage", k.Secret, ""), 200)
	u, _ := readServed(t, got)
	var held map[string]any
	if err := json.Unmarshal(u.Key, &held); err != nil || held["key_prefix"] != k.KeyPrefix || held["name"] != "k" || held["scope"] != "read:orders" || len(held) != 4 {
		t.Errorf("got key %s, want its prefix, name, scope and expiry", u.Key)
	}
	if len(u.Limits) != 2 || u.Limits[0].Limit != "all" || u.Limits[1].Limit != "keys" || u.Limits[0].Used+u.Limits[0].Reserved != 3 || u.Limits[1].Used+u.Limits[1].Reserved != 3 || u.Limits[1].Remaining+3 > 100 ||
		u.Owner == nil || *u.Owner != "ada" || u.Plan == nil || *u.Plan != "pro" || got.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("got %s %v, want the two quotas with 3 units used, or reserved by requests whose end is not counted yet", got.Body, got.Header)
	}
	for body, status := range map[string]int{
		"": 400, "{": 400, "[]": 422, "{}": 422, `{"overlap_days": 0}`: 422, `{"overlap_days": 31}`: 422, `{"overlap_days": "7"}`: 422, `{"overlap_days": 7, "a": 1}`: 422,
	} {
		s.Restart() // ten calls a second
		want("rotation with "+body, ask("POST", "/.keygate/rotate", k.Secret, body), status)
	}
	got = want("rotation", ask("POST", "/.keygate/rotate", k.Secret, week), 201)
	made, secret := readServed(t, got)
	if secret == "" || secret == k.Secret || made.RotatedFrom != k.KeyID || strings.Contains(got.Body, "internal") || got.Header.Get("Cache-Control") != "no-store" {
		t.Fatalf("got %s, want a new key without metadata", got.Body)
	}
	for _, key := range []string{k.Secret, secret} {
		want("a route with each key", ask("GET", "/orders", key, ""), 200)
	}
	want("another rotation of the old key", ask("POST", "/.keygate/rotate", k.Secret, week), 429)
	s.Restart()
	got = want("another rotation", ask("POST", "/.keygate/rotate", secret, week), 429)
	seconds, err := strconv.Atoi(got.Header.Get("Retry-After"))
	if refused, _ := readServed(t, got); err != nil || seconds < 23*3600 || seconds > 24*3600+1 || refused.LimitScope != "self_service" {
		t.Errorf("got %s %v, want Retry-After of about a day", got.Body, got.Header)
	}
	var actions, refusals []string
	for r, err := range s.Admin.AuditLog(t.Context(), client.AuditFilter{ActorKeyID: k.KeyID, Kind: "management"}) {
		if err != nil {
			t.Fatal(err)
		}
		actions = append(actions, r.Action)
		if text := fmt.Sprint(r); strings.Contains(text, secret) || strings.Contains(text, k.Secret) {
			t.Errorf("a record has a secret: %s", text)
		}
	}
	if !slices.Contains(actions, "key.rotate") {
		t.Errorf("got actions %q, want a rotation by the key itself", actions)
	}
	for r, err := range s.Admin.Requests(t.Context(), client.RequestFilter{}) {
		if err != nil {
			t.Fatal(err)
		}
		refusals = append(refusals, fmt.Sprintf("%s %d", r.Path, r.Status))
	}
	for _, refusal := range []string{"/.keygate/rotate 429", "/.keygate/rotate 404", "/.keygate/usage 401", "/.keygate/usage 405"} {
		if !slices.Contains(refusals, refusal) {
			t.Errorf("got refused requests %q, want %s", refusals, refusal)
		}
	}
	if _, err := s.Admin.RevokeKey(t.Context(), k.KeyID); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{k.Secret, secret} {
		want("a revoked key", ask("GET", "/orders", key, ""), 401)
		want("a revoked key at self-service", ask("GET", "/.keygate/usage", key, ""), 401)
	}
}

// Guarantee: over several nodes, a key is rotated by its holder once, whichever nodes are asked at the same time; the new key
// is accepted on every node when the call returns; and when the revocation of the old key returns, also beside a rotation, no
// node lets in what the holder has made.
func TestSelfServiceOverNodes(t *testing.T) {
	c := startCluster(t, 2)
	newKey := c.gateway()
	var gatewayID string
	for g, err := range c.nodes[0].Admin.Gateways(t.Context(), client.ListOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		gatewayID = g.GatewayID
	}
	again(c, func() (*client.Gateway, error) {
		on := true
		return c.nodes[1].Admin.UpdateGateway(t.Context(), gatewayID, client.GatewayPatch{SelfService: client.Set(client.SelfServiceInput{Usage: &on, Rotate: &on})})
	})
	rotate := func(node int, key string) (made string) {
		t.Helper()
		switch r := c.nodes[node].Through("", "POST", "/.keygate/rotate", key, week); r.Status {
		case http.StatusCreated:
			_, made = readServed(t, r)
		case http.StatusUnauthorized, http.StatusTooManyRequests, http.StatusConflict, http.StatusServiceUnavailable:
		default:
			t.Errorf("got %d %s", r.Status, r.Body)
		}
		return made
	}
	for i := range 10 {
		key, keyID := newKey()
		var made [4]string
		var all sync.WaitGroup
		for n := range made {
			all.Go(func() { made[n] = rotate(n%2, key) })
		}
		revoked := i%2 == 0
		if revoked {
			all.Go(func() { c.revoke(c.nodes[i/2%2], keyID) })
		}
		all.Wait()
		rotations := 0
		for _, next := range made {
			if next == "" {
				continue
			}
			rotations++
			want := "[200 200]"
			if revoked {
				want = "[401 401]"
			}
			if got := c.statuses(next); fmt.Sprint(got) != want {
				t.Errorf("with the new key the nodes responded %v, want %s", got, want)
			}
			if rotate(0, next) != "" || rotate(1, next) != "" {
				t.Error("a key was rotated twice in a day")
			}
			c.revoke(c.nodes[1], keyID)
			if got := c.statuses(next); fmt.Sprint(got) != "[401 401]" {
				t.Errorf("after the revocation of the old key the nodes responded %v to the new one, want 401 from each", got)
			}
		}
		if rotations > 1 || rotations == 0 && !revoked {
			t.Errorf("the key was rotated %d times at once, want once", rotations)
		}
	}
}
