package e2e

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/keygatetest/awaittest"
)

// modelKey is the expected state of a key.
type modelKey struct {
	id, secret string
	revoked    bool
	expires    time.Time // zero if never
	rotatedTo  string
}

func (k *modelKey) expiredAt(t time.Time) bool { return !k.expires.IsZero() && !t.Before(k.expires) }

// lifeModel changes keys at random and knows the state that each must have.
type lifeModel struct {
	t      *testing.T
	s      *server
	seed   uint64
	random *rand.Rand
	admins []string // used in turn, since the management API limits each key to 100 calls a second
	next   int
	keys   []*modelKey
}

// admin returns the next admin key.
func (m *lifeModel) admin() string {
	m.next++
	return m.admins[m.next%len(m.admins)]
}

func (m *lifeModel) pick() *modelKey { return m.keys[m.random.IntN(len(m.keys))] }

// call makes a management call, again after a 429, and fails the test unless the status
// is want.
func (m *lifeModel) call(want int, method, path string, body any) response {
	m.t.Helper()
	var a response
	var err error
	ok := awaittest.Holds(func() bool {
		a, err = m.s.try(m.admin(), method, path, body)
		return err != nil || a.status != http.StatusTooManyRequests
	})
	if !ok || err != nil || a.status != want {
		m.t.Fatalf("seed %d: %s %s: error %v, got status %d, want %d\n%s", m.seed, method, path, err, a.status, want, a.body)
	}
	return a
}

// check fails the test unless a key has the state of the model, on both planes. It skips
// a key that expires during the check, since either result is correct.
func (m *lifeModel) check(k *modelKey) {
	m.t.Helper()
	before := time.Now()
	a, err := m.s.send("GET", "/x", k.secret)
	if err != nil {
		m.t.Fatal(err)
	}
	record := m.call(http.StatusOK, "GET", "/v1/keys/"+k.id, nil).json(m.t)
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
		m.t.Fatalf("seed %d: key %+v: got status %d, want %d; got state %v, want %s", m.seed, *k, a.status, wantStatus, record["state"], wantState)
	}
	if wantCode != nil && a.json(m.t)["code"] != wantCode {
		m.t.Fatalf("seed %d: key %+v: got %s, want code %v", m.seed, *k, a.body, wantCode)
	}
	if k.rotatedTo != "" && record["rotated_to"] != k.rotatedTo {
		m.t.Fatalf("seed %d: got rotated_to %v, want %s", m.seed, record["rotated_to"], k.rotatedTo)
	}
}

// create creates a key. Every second one expires within 2 s.
func (m *lifeModel) create() {
	m.t.Helper()
	k := &modelKey{}
	body := map[string]any{"name": "k", "scope": "read"}
	lifetime := time.Duration(0)
	if m.random.IntN(2) == 0 {
		lifetime = time.Duration(500+m.random.IntN(1500)) * time.Millisecond
	}
	for {
		if lifetime > 0 {
			k.expires = time.Now().UTC().Add(lifetime).Truncate(time.Millisecond)
			body["expires_at"] = k.expires.Format(time.RFC3339Nano)
		}
		a, err := m.s.try(m.admin(), "POST", "/v1/keys", body)
		switch {
		case err == nil && a.status == http.StatusCreated:
			k.id, k.secret = a.field(m.t, "key_id"), a.field(m.t, "key")
			m.keys = append(m.keys, k)
			return
		case err == nil && a.status == http.StatusTooManyRequests:
		case err == nil && a.status == http.StatusUnprocessableEntity && k.expiredAt(time.Now()):
			lifetime *= 2 // on a slow machine the key would expire before it is created
		default:
			m.t.Fatalf("seed %d: create a key: error %v, got status %d, want 201\n%s", m.seed, err, a.status, a.body)
		}
	}
}

// rotate rotates a key, which is a conflict unless the key is active and not rotated. It
// skips a key that may expire during the call.
func (m *lifeModel) rotate(k *modelKey) {
	m.t.Helper()
	now := time.Now()
	if k.expiredAt(now.Add(awaittest.Timeout)) && !k.expiredAt(now) && !k.revoked && k.rotatedTo == "" {
		return
	}
	days := m.random.IntN(3)
	want := http.StatusCreated
	if k.revoked || k.expiredAt(now) || k.rotatedTo != "" {
		want = http.StatusConflict
	}
	a := m.call(want, "POST", "/v1/keys/"+k.id+"/rotate", map[string]any{"overlap_days": days})
	if want != http.StatusCreated {
		return
	}
	ends, err := time.Parse(time.RFC3339Nano, a.field(m.t, "overlap_ends_at"))
	if err != nil {
		m.t.Fatal(err)
	}
	fresh := &modelKey{id: a.field(m.t, "key_id"), secret: a.field(m.t, "key"), expires: k.expires}
	if a.json(m.t)["rotated_from"] != k.id {
		m.t.Fatalf("got %s, want rotated_from %s", a.body, k.id)
	}
	k.expires, k.rotatedTo = ends, fresh.id
	m.keys = append(m.keys, fresh)
	if days == 0 && ends.After(time.Now()) {
		m.t.Fatalf("seed %d: an overlap of 0 days ends at %v, want at once", m.seed, ends)
	}
}

// Guarantee: during a random sequence of creations, rotations, revocations,
// expirations and restarts, a key is accepted exactly while the model says that it is
// active, and its record has the same state.
func TestKeyLifeFollowsItsModel(t *testing.T) {
	up := newRecordingUpstream(t)
	s := startServer(t)
	s.newGateway(up.URL, nil)
	m := &lifeModel{t: t, s: s, seed: rand.Uint64()}
	t.Logf("seed %d", m.seed)
	m.random = rand.New(rand.NewPCG(m.seed, 0))
	for i := range 6 {
		_, key := s.newKey(map[string]any{"level": "account", "name": fmt.Sprintf("admin %d", i)})
		m.admins = append(m.admins, key)
	}
	m.create()
	for step := range 400 {
		switch n := m.random.IntN(100); {
		case n < 25:
			m.create()
		case n < 40:
			m.rotate(m.pick())
		case n < 55:
			k := m.pick()
			m.call(http.StatusOK, "DELETE", "/v1/keys/"+k.id, nil)
			k.revoked = true
		case n < 57 && step > 20:
			s.restart([]syscall.Signal{syscall.SIGTERM, syscall.SIGKILL}[m.random.IntN(2)])
		default:
			m.check(m.pick())
		}
	}
	for _, k := range m.keys {
		m.check(k)
	}
}
