package e2e

import (
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
)

// Guarantee: from the moment DELETE of a key returns, no request with that key
// that begins afterwards gets in, while 8 callers use it without pause.
func TestRevokedKeyIsRefusedFromTheMomentTheCallReturns(t *testing.T) {
	up := newRecorder(t)
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
					a, err := s.through("GET", "/x", key)
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
		eventually(patience, func() bool { return admitted.Load() >= 20 })
		s.call(http.StatusOK, "DELETE", "/v1/keys/"+id, nil)
		revoked.Store(true)
		callers.Wait()
		if late.Load() != 0 {
			t.Fatalf("%d calls begun after the answer to DELETE got in", late.Load())
		}
		if admitted.Load() == 0 {
			t.Fatal("no call got in before DELETE; the test shows nothing")
		}
	}
}

// Guarantee: a revoked account-level key is refused on the management API at once.
func TestRevokedAccountKeyIsRefusedAtOnce(t *testing.T) {
	s := startServer(t)
	id, key := s.newKey(map[string]any{"level": "account", "scope": "write"})
	if a, err := s.try(key, "GET", "/v1/keys", nil); err != nil || a.status != http.StatusOK {
		t.Fatalf("before: %v %d", err, a.status)
	}
	s.call(http.StatusOK, "DELETE", "/v1/keys/"+id, nil)
	a, err := s.try(key, "GET", "/v1/keys", nil)
	if err != nil || a.status != http.StatusUnauthorized || a.json(t)["code"] != "key_invalid" {
		t.Fatalf("after: %v %d %s", err, a.status, a.body)
	}
}
