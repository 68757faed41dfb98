package adminapi_test

import (
	"context"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// heldSearches holds the searches of a server until end is closed or their contexts end.
type heldSearches struct {
	begun int
	end   chan struct{}
}

func holdSearches(s *server) *heldSearches {
	h := &heldSearches{end: make(chan struct{})}
	s.search = func(ctx context.Context) {
		h.begun++
		select {
		case <-h.end:
		case <-ctx.Done():
		}
	}
	return h
}

// want checks how many searches have begun when nothing else can happen.
func (h *heldSearches) want(t *testing.T, n int) {
	t.Helper()
	synctest.Wait()
	if h.begun != n {
		t.Fatalf("got %d searches that have begun, want %d", h.begun, n)
	}
}

func find(s *server, path, key string) <-chan *httptest.ResponseRecorder {
	return send(s.handler, "GET", path, key, 0, strings.NewReader(""))
}

// Guarantee: an account has one search at a time. Others wait in turn. A search that waits for longer than 10 s, or
// that finds 16 waiting, is a 429 that says when to try again. Searches for keys and in the audit log share this turn.
// A list of keys counts as a search if it has two conditions of which an index has only one, or if it lists revoked or
// expired keys. Other lists, and other accounts, do not wait.
func TestAccountHasOneSearchAtATime(t *testing.T) {
	s := start(t)
	tenant := s.newAccount("tenant")
	synctest.Test(t, func(t *testing.T) {
		h := holdSearches(s)
		done := []<-chan *httptest.ResponseRecorder{find(s, "/v1/keys?q=a", s.admin)}
		h.want(t, 1)
		for _, path := range []string{"/v1/audit-log", "/v1/keys?name=x", "/v1/keys?owner=ada&level=account", "/v1/keys?owner=ada&gateway_id=gw_x",
			"/v1/keys?gateway_id=gw_x&level=account", "/v1/keys?state=revoked", "/v1/keys?owner=ada&state=expired"} {
			done = append(done, find(s, path, s.admin))
			h.want(t, 1)
		}
		for _, path := range []string{"/v1/keys", "/v1/keys?owner=ada", "/v1/keys?owner=ada&state=active", "/v1/keys?level=account", "/v1/gateways"} {
			if w := <-find(s, path, s.admin); w.Code != 200 {
				t.Errorf("%s beside a search: got %d, want 200", path, w.Code)
			}
		}
		for range 9 {
			done = append(done, find(s, "/v1/keys?q=b", s.admin))
		}
		h.want(t, 1)
		checkRefusal(t, <-find(s, "/v1/keys?q=c", s.admin), 1) // the 17th that would wait
		done = append(done, find(s, "/v1/keys?q=a", tenant))
		h.want(t, 2)
		close(h.end)
		for _, d := range done {
			if w := <-d; w.Code != 200 {
				t.Errorf("got %d %s, want 200", w.Code, w.Body)
			}
		}
	})
}

// Guarantee: a search that runs for 10 s is stopped, with a 503 that says how to ask for less. A search
// that has waited for 10 s is a 429. The next search finds the slot free.
func TestLongSearchIsStopped(t *testing.T) {
	s := start(t)
	synctest.Test(t, func(t *testing.T) {
		h := holdSearches(s)
		begin := time.Now()
		first := find(s, "/v1/keys?q=a", s.admin)
		h.want(t, 1)
		if w := <-first; w.Code != 503 || !strings.Contains(w.Body.String(), "a longer q") || time.Since(begin) != 10*time.Second {
			t.Errorf("got %d %s after %s, want a 503 after 10s", w.Code, w.Body, time.Since(begin))
		}
		close(h.end)
		if w := <-find(s, "/v1/keys?q=a", s.admin); w.Code != 200 {
			t.Errorf("the next search: got %d, want 200", w.Code)
		}
	})
}

// Guarantee: a start of a canary, which counts the callers of the last hour, waits in turn as a search does.
func TestStartOfACanaryIsASearch(t *testing.T) {
	s, path, _ := startCanaries(t)
	synctest.Test(t, func(t *testing.T) {
		h := holdSearches(s)
		search := find(s, "/v1/keys?q=a", s.admin)
		h.want(t, 1)
		const body = `{"upstream": "next"}`
		done := send(s.handler, "POST", path, s.admin, int64(len(body)), strings.NewReader(body))
		synctest.Wait()
		select {
		case w := <-done:
			t.Errorf("beside a search: got %d %s, want it to wait", w.Code, w.Body)
			close(h.end)
		default:
			close(h.end)
			if w := <-done; w.Code != 201 {
				t.Errorf("got %d %s, want 201", w.Code, w.Body)
			}
		}
		<-search
	})
}

// Guarantee: a fifth account waits while the searches of four run, until one of them ends.
func TestFifthSearchOfAllWaits(t *testing.T) {
	s := start(t)
	keys := []string{s.newAccount("a"), s.newAccount("b"), s.newAccount("c"), s.newAccount("d")}
	synctest.Test(t, func(t *testing.T) {
		h := holdSearches(s)
		var done []<-chan *httptest.ResponseRecorder
		for i, key := range keys {
			done = append(done, find(s, "/v1/keys?q=a", key))
			h.want(t, i+1)
		}
		done = append(done, find(s, "/v1/keys?q=a", s.admin))
		h.want(t, 4)
		close(h.end)
		for _, d := range done {
			if w := <-d; w.Code != 200 {
				t.Errorf("got %d, want 200", w.Code)
			}
		}
		h.want(t, 5)
	})
}

// Guarantee: an account may read the levels of its limits, for which all keys are examined, in one call at a time, and
// all accounts together in two. Further calls wait in turn; beyond 16 waiting calls of an account, a call is a 429.
// Other calls, and searches, do not wait for them.
func TestLimitsAreListedOneAtATime(t *testing.T) {
	s := start(t)
	keys := []string{s.admin, s.newAccount("b"), s.newAccount("c")}
	var paths []string
	for _, key := range keys {
		gatewayID := s.do(request{method: "POST", path: "/v1/gateways", key: key, body: map[string]any{"name": "g", "upstream_url": "http://192.0.2.1"}}).want(201).text("gateway_id")
		paths = append(paths, "/v1/gateways/"+gatewayID+"/limits")
	}
	synctest.Test(t, func(t *testing.T) {
		var begun atomic.Int64
		end := make(chan struct{})
		s.levels = func() {
			begun.Add(1)
			<-end
		}
		want := func(n int64) {
			t.Helper()
			if synctest.Wait(); begun.Load() != n {
				t.Fatalf("got %d calls that have begun, want %d", begun.Load(), n)
			}
		}
		done := []<-chan *httptest.ResponseRecorder{find(s, paths[0], keys[0])}
		want(1)
		for range 16 {
			done = append(done, find(s, paths[0], keys[0]))
			want(1)
		}
		checkRefusal(t, <-find(s, paths[0], keys[0]), 1)
		for _, path := range []string{"/v1/gateways", "/v1/keys?q=a"} {
			if w := <-find(s, path, keys[0]); w.Code != 200 {
				t.Errorf("%s beside it: got %d, want 200", path, w.Code)
			}
		}
		done = append(done, find(s, paths[1], keys[1]))
		want(2)
		done = append(done, find(s, paths[2], keys[2]))
		want(2)
		close(end)
		for _, d := range done {
			if w := <-d; w.Code != 200 {
				t.Errorf("got %d %s, want 200", w.Code, w.Body)
			}
		}
	})
}
