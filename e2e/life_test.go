package e2e

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"syscall"
	"testing"
	"time"
)

// modelKey is the expected state of a key.
type modelKey struct {
	id, secret string
	revoked    bool
	expires    time.Time // zero if never
	rotatedTo  string
}

func (k *modelKey) expiredAt(t time.Time) bool { return !k.expires.IsZero() && !t.Before(k.expires) }

// Guarantee: during a random sequence of creations, rotations, revocations,
// expirations and restarts, a key is accepted exactly while the model says that it is
// active, and its record has the same state. A check during which the key expires is
// skipped, since either result is correct.
func TestKeyLifeFollowsItsModel(t *testing.T) {
	up := newRecordingUpstream(t)
	s := startServer(t)
	s.newGateway(up.URL, nil)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	var admins []string
	for i := range 6 { // the management API limits each key to 100 calls a second
		_, key := s.newKey(map[string]any{"level": "account", "name": fmt.Sprintf("admin %d", i)})
		admins = append(admins, key)
	}
	next := 0
	call := func(want int, method, path string, body any) response {
		t.Helper()
		var a response
		var err error
		ok := eventually(testTimeout, func() bool {
			next++
			a, err = s.try(admins[next%len(admins)], method, path, body)
			return err != nil || a.status != http.StatusTooManyRequests
		})
		if !ok || err != nil || a.status != want {
			t.Fatalf("seed %d: %s %s: error %v, got status %d, want %d\n%s", seed, method, path, err, a.status, want, a.body)
		}
		return a
	}
	var keys []*modelKey
	pick := func() *modelKey { return keys[r.IntN(len(keys))] }
	check := func(k *modelKey) {
		t.Helper()
		before := time.Now()
		a, err := s.send("GET", "/x", k.secret)
		if err != nil {
			t.Fatal(err)
		}
		record := call(http.StatusOK, "GET", "/v1/keys/"+k.id, nil).json(t)
		after := time.Now()
		if k.expiredAt(before) != k.expiredAt(after) {
			return
		}
		wantStatus, wantState, wantCode := http.StatusOK, "active", any(nil)
		switch {
		case k.revoked:
			wantStatus, wantState, wantCode = http.StatusUnauthorized, "revoked", "key_invalid"
		case k.expiredAt(before):
			wantStatus, wantState, wantCode = http.StatusUnauthorized, "expired", "key_expired"
		}
		if a.status != wantStatus || record["state"] != wantState {
			t.Fatalf("seed %d: key %+v: got status %d, want %d; got state %v, want %s", seed, *k, a.status, wantStatus, record["state"], wantState)
		}
		if wantCode != nil && a.json(t)["code"] != wantCode {
			t.Fatalf("seed %d: key %+v: got %s, want code %v", seed, *k, a.body, wantCode)
		}
		if k.rotatedTo != "" && record["rotated_to"] != k.rotatedTo {
			t.Fatalf("seed %d: got rotated_to %v, want %s", seed, record["rotated_to"], k.rotatedTo)
		}
	}
	create := func() {
		k := &modelKey{}
		body := map[string]any{"name": "k", "scope": "read"}
		lifetime := time.Duration(0)
		if r.IntN(2) == 0 {
			lifetime = time.Duration(500+r.IntN(1500)) * time.Millisecond
		}
		for {
			if lifetime > 0 {
				k.expires = time.Now().UTC().Add(lifetime).Truncate(time.Millisecond)
				body["expires_at"] = k.expires.Format(time.RFC3339Nano)
			}
			next++
			a, err := s.try(admins[next%len(admins)], "POST", "/v1/keys", body)
			switch {
			case err == nil && a.status == http.StatusCreated:
				k.id, k.secret = a.field(t, "key_id"), a.field(t, "key")
				keys = append(keys, k)
				return
			case err == nil && a.status == http.StatusTooManyRequests:
			case err == nil && a.status == http.StatusUnprocessableEntity && k.expiredAt(time.Now()):
				lifetime *= 2 // on a slow machine the key would expire before it is created
			default:
				t.Fatalf("seed %d: create a key: error %v, got status %d, want 201\n%s", seed, err, a.status, a.body)
			}
		}
	}
	create()
	for step := range 400 {
		switch n := r.IntN(100); {
		case n < 25:
			create()
		case n < 40:
			k := pick()
			now := time.Now()
			if k.expiredAt(now.Add(testTimeout)) && !k.expiredAt(now) && !k.revoked && k.rotatedTo == "" {
				continue // it may expire during the call
			}
			days := r.IntN(3)
			want := http.StatusCreated
			if k.revoked || k.expiredAt(now) || k.rotatedTo != "" {
				want = http.StatusConflict
			}
			a := call(want, "POST", "/v1/keys/"+k.id+"/rotate", map[string]any{"overlap_days": days})
			if want != http.StatusCreated {
				continue
			}
			ends, err := time.Parse(time.RFC3339Nano, a.field(t, "overlap_ends_at"))
			if err != nil {
				t.Fatal(err)
			}
			fresh := &modelKey{id: a.field(t, "key_id"), secret: a.field(t, "key"), expires: k.expires}
			if a.json(t)["rotated_from"] != k.id {
				t.Fatalf("got %s, want rotated_from %s", a.body, k.id)
			}
			k.expires, k.rotatedTo = ends, fresh.id
			keys = append(keys, fresh)
			if days == 0 && ends.After(time.Now()) {
				t.Fatalf("seed %d: an overlap of 0 days ends at %v, want at once", seed, ends)
			}
		case n < 55:
			k := pick()
			call(http.StatusOK, "DELETE", "/v1/keys/"+k.id, nil)
			k.revoked = true
		case n < 57 && step > 20:
			s.restart([]syscall.Signal{syscall.SIGTERM, syscall.SIGKILL}[r.IntN(2)])
		default:
			check(pick())
		}
	}
	for _, k := range keys {
		check(k)
	}
}
