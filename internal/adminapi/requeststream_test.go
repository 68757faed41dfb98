package adminapi_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// eventStream is an open stream of requests.
type eventStream struct {
	t     *testing.T
	lines *bufio.Scanner
	close context.CancelFunc
}

// openStream opens a stream, and returns it or the status of the refusal. The stream follows when this
// returns.
func (s *server) openStream(t *testing.T, query, key string) (*eventStream, int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.http.URL+"/v1/requests/stream?"+query, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+key)
	res, err := s.http.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = res.Body.Close() })
	if res.StatusCode != http.StatusOK {
		return nil, res.StatusCode
	}
	if got := res.Header.Get("Content-Type"); got != "text/event-stream" {
		t.Errorf("got the type %q", got)
	}
	e := &eventStream{t, bufio.NewScanner(res.Body), cancel}
	if line, ok := e.line(); !ok || !strings.HasPrefix(line, ":") {
		t.Fatalf("got %q first, want a comment", line)
	}
	return e, res.StatusCode
}

// line returns the next line that is not empty, and false at the end of the stream.
func (e *eventStream) line() (string, bool) {
	for e.lines.Scan() {
		if e.lines.Text() != "" {
			return e.lines.Text(), true
		}
	}
	return "", false
}

// Guarantee: a stream has each refused and failed request of its account and filters, as the list has it,
// and nothing of another account.
func TestRequestsAreFollowed(t *testing.T) {
	s := start(t)
	p := newTrafficFixture(s)
	all, _ := s.openStream(t, "", s.admin)
	some, _ := s.openStream(t, "status=429&gateway_id="+p.gateway, s.admin)
	other, _ := s.openStream(t, "", s.newAccount("other"))
	p.emit(fine)
	failed := p.emit(broken)
	refused := p.emit(limited)
	listed := s.get("/v1/requests").want(200) // flushes them
	for _, c := range []struct {
		stream *eventStream
		want   []string
	}{{all, []string{failed, refused}}, {some, []string{refused}}} {
		for _, id := range c.want {
			event, _ := c.stream.line()
			data, _ := c.stream.line()
			record := ""
			for _, r := range listed.data() {
				if r["request_id"] == id {
					record = r["decision"].(map[string]any)["message"].(string)
				}
			}
			if event != "event: request" || !strings.Contains(data, `"request_id":"`+id+`"`) || !strings.Contains(data, record) {
				t.Errorf("got %q %q, want the request %s with %q", event, data, id, record)
			}
		}
	}
	s.handler.EndStreams()
	if line, ok := other.line(); ok {
		t.Errorf("another account got %q", line)
	}
	for _, e := range []*eventStream{all, some} {
		if line, ok := e.line(); ok {
			t.Errorf("got %q more", line)
		}
	}
}

// Guarantee: a stream ends when its key is revoked, and a key that may not read requests gets none.
func TestStreamEndsWithItsKey(t *testing.T) {
	s := start(t)
	key := s.newKey(map[string]any{"level": "account", "scope": "read:requests"})
	e, _ := s.openStream(t, "", key.text("key"))
	s.do(request{method: "DELETE", path: "/v1/keys/" + key.text("key_id")}).want(200)
	if line, ok := e.line(); ok {
		t.Errorf("got %q after the key was revoked, want the end", line)
	}
	if _, status := s.openStream(t, "", s.newKey(map[string]any{"level": "account", "scope": "read:keys"}).text("key")); status != 403 {
		t.Errorf("got %d without the scope, want 403", status)
	}
	if _, status := s.openStream(t, "status=200", s.admin); status != 422 {
		t.Errorf("got %d for a wrong filter, want 422", status)
	}
}

// Guarantee: an account has at most 8 streams, and all accounts together 64. Streams take no slots of the
// account's calls. When all 64 are taken, an account without streams gets streams of the accounts that have the
// most, whose newest streams end. No account takes more than an equal part that way.
func TestStreamsAreBounded(t *testing.T) {
	s := start(t)
	keys := []string{s.admin}
	for i := range 8 {
		keys = append(keys, s.newAccount(fmt.Sprint("tenant ", i)))
	}
	var all []*eventStream
	for i, key := range keys[:8] {
		for range 8 {
			e, status := s.openStream(t, "", key)
			if status != 200 {
				t.Fatalf("account %d: got %d", i, status)
			}
			all = append(all, e)
		}
		if _, status := s.openStream(t, "", key); status != 429 {
			t.Fatalf("account %d: got %d for a ninth stream, want 429", i, status)
		}
	}
	s.get("/v1/keys").want(200)
	for n := range 8 {
		want := 200
		if n == 7 {
			want = 429
		}
		if _, status := s.openStream(t, "", keys[8]); status != want {
			t.Fatalf("the last account: got %d for stream %d, want %d", status, n+1, want)
		}
	}
	// The newest streams of seven accounts have ended, with a comment that says why.
	for account := 1; account < 8; account++ {
		e := all[8*account+7]
		if line, _ := e.line(); !strings.Contains(line, "another account needs this place") {
			t.Errorf("account %d: got %q, want why the stream ends", account, line)
		}
		if line, ok := e.line(); ok {
			t.Errorf("account %d: got %q after the place was lost, want the end", account, line)
		}
	}
	all[0].close()
	for { // until the server has seen it
		if _, status := s.openStream(t, "", s.admin); status == 200 {
			break
		}
		if t.Context().Err() != nil {
			t.Fatal("the place of a stream that ended was not given back")
		}
	}
}
