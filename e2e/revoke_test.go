package e2e

import (
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/keygate/keygate/internal/keygatetest/awaittest"
)

// Guarantee: once the DELETE of a key has returned, every request that starts
// afterwards is refused, while 8 clients use the key without pause.
func TestRevokedKeyIsRefusedFromTheMomentTheCallReturns(t *testing.T) {
	up := newRecordingUpstream(t)
	s := startServer(t)
	s.newGateway(up.URL, nil)
	for range 25 {
		id, key := s.newKey(nil)
		var (
			revoked  atomic.Bool
			admitted atomic.Int64
			late     atomic.Int64
			callers  sync.WaitGroup
		)
		for range 8 {
			callers.Go(func() {
				for {
					begunAfter := revoked.Load()
					a, err := s.send("GET", "/x", key)
					if err != nil {
						t.Errorf("call: %v", err)
						return
					}
					switch {
					case a.status == http.StatusOK && begunAfter:
						late.Add(1)
					case a.status == http.StatusOK:
						admitted.Add(1)
					}
					if begunAfter {
						return
					}
				}
			})
		}
		awaittest.Holds(func() bool { return admitted.Load() >= 20 })
		s.call(http.StatusOK, "DELETE", "/v1/keys/"+id, nil)
		revoked.Store(true)
		callers.Wait()
		if late.Load() != 0 {
			t.Fatalf("%d requests that started after the response to DELETE were accepted, want 0", late.Load())
		}
		if admitted.Load() == 0 {
			t.Fatal("no request was accepted before DELETE: the test proves nothing")
		}
	}
}

// Guarantee: a revoked account-level key is refused on the management API at once.
func TestRevokedAccountKeyIsRefusedAtOnce(t *testing.T) {
	s := startServer(t)
	id, key := s.newKey(map[string]any{"level": "account", "scope": "write"})
	if a, err := s.try(key, "GET", "/v1/keys", nil); err != nil || a.status != http.StatusOK {
		t.Fatalf("before the revocation: error %v, got status %d, want 200", err, a.status)
	}
	s.call(http.StatusOK, "DELETE", "/v1/keys/"+id, nil)
	a, err := s.try(key, "GET", "/v1/keys", nil)
	if err != nil || a.status != http.StatusUnauthorized || a.json(t)["code"] != "key_invalid" {
		t.Fatalf("after the revocation: error %v, got status %d %s, want 401 key_invalid", err, a.status, a.body)
	}
}
