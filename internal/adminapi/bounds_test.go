package adminapi_test

import (
	"bufio"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keygate/keygate/internal/adminapi"
)

// body is a request body that comes when the test lets it, and then breaks off.
type body struct {
	asked chan struct{} // closed when the server reads
	end   chan struct{} // closed by the test
	reads int
}

func newBody() *body { return &body{asked: make(chan struct{}), end: make(chan struct{})} }

func (b *body) Read([]byte) (int, error) {
	if b.reads++; b.reads == 1 {
		close(b.asked)
	}
	<-b.end
	return 0, io.ErrUnexpectedEOF
}

// isRead reports whether the server reads b, or comes to within the current moment.
func (b *body) isRead() bool {
	synctest.Wait()
	select {
	case <-b.asked:
		return true
	default:
		return false
	}
}

// send serves a request in a goroutine. The response comes on the channel.
func send(api *adminapi.API, method, path, key string, length int64, content io.Reader) <-chan *httptest.ResponseRecorder {
	done := make(chan *httptest.ResponseRecorder, 1)
	q := httptest.NewRequest(method, path, content)
	q.ContentLength = length
	q.Header.Set("Authorization", "Bearer "+key)
	q.Header.Set("Content-Type", "application/json")
	go func() {
		w := httptest.NewRecorder()
		api.ServeHTTP(w, q)
		done <- w
	}()
	return done
}

const (
	specPath = "/v1/gateways/gw_00000000000000000000000000/spec"
	bigBody  = 2 << 20
)

// Guarantee: two documents of an account are read at once. Whatever kind of call it is, a third
// waits 10 s, with its body unread, and is then refused with a 429 that says when to try again.
// Another account does not wait.
func TestThirdDocumentOfAnAccountWaits(t *testing.T) {
	s := start(t)
	tenant := s.newAccount("tenant")
	synctest.Test(t, func(t *testing.T) {
		first, second := newBody(), newBody()
		one := send(s.handler, "PUT", specPath, s.admin, bigBody, first)
		two := send(s.handler, "PUT", strings.Replace(specPath, "/spec", "/config", 1), s.admin, bigBody, second)
		if !first.isRead() || !second.isRead() {
			t.Fatal("got no reading of two documents, want both to be read")
		}
		for _, call := range []struct {
			method, path string
			length       int64
			small        string
		}{
			{"PUT", specPath, 5, ""},
			{"PUT", specPath + "?dry_run=true", bigBody, ""},
			{"PUT", strings.Replace(specPath, "/spec", "/config", 1), -1, ""},
			{"POST", "/v1/gateways", bigBody, ""},
			{"POST", "/v1/gateways", -1, ""},
			{"POST", "/v1/gateways", 0, `{"name": "a", "upstream_url": "http://127.0.0.1", "spec": "{}"}`},
			{"POST", strings.Replace(specPath, "/spec", "/revisions/1/rollback", 1), 0, " "},
			{"GET", specPath, 0, " "},
			{"GET", strings.Replace(specPath, "/spec", "/revisions/1/content", 1), 0, " "},
			{"GET", strings.Replace(specPath, "/spec", "/revisions/2/diff", 1), 0, " "},
			{"GET", strings.Replace(specPath, "/spec", "/config", 1), 0, " "},
		} {
			asked := newBody()
			content := io.Reader(asked)
			if call.small != "" {
				call.small = strings.TrimSpace(call.small)
				content, call.length = strings.NewReader(call.small), int64(len(call.small))
			}
			begin := time.Now()
			w := <-send(s.handler, call.method, call.path, s.admin, call.length, content)
			if waited := time.Since(begin); waited != 10*time.Second || asked.isRead() {
				t.Errorf("%s %s: waited %s, body read: %t; want 10s and an unread body", call.method, call.path, waited, asked.isRead())
			}
			checkRefusal(t, w, 2)
		}
		other := newBody()
		three := send(s.handler, "PUT", specPath, tenant, bigBody, other)
		if !other.isRead() {
			t.Error("got no reading of another account's document, want it at once")
		}
		for _, b := range []*body{first, second, other} {
			close(b.end)
		}
		for _, done := range []<-chan *httptest.ResponseRecorder{one, two, three} {
			if w := <-done; w.Code != 400 {
				t.Errorf("got %d for a body that breaks off, want 400", w.Code)
			}
		}
	})
}

// checkRefusal checks a 429 for want of a slot.
func checkRefusal(t *testing.T, w *httptest.ResponseRecorder, limit float64) {
	t.Helper()
	var got struct {
		Error, Message string
		Scope          string   `json:"limit_scope"`
		Limit          float64  `json:"limit"`
		Remaining      *float64 `json:"remaining"`
		ResetAt        float64  `json:"reset_at"`
	}
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if w.Code != 429 || got.Error != "rate_limit_exceeded" || got.Scope != "account" || got.Limit != limit || got.Remaining == nil || *got.Remaining != 0 || got.ResetAt == 0 {
		t.Errorf("got %d %s, want a 429 of the scope account with limit %v", w.Code, w.Body, limit)
	}
	if after := w.Header().Get("Retry-After"); after < "1" {
		t.Errorf("got Retry-After %q, want at least 1", after)
	}
	var reset float64
	name := "X-RateLimit-Reset" // not in the form of http.Header.Get
	if err := json.Unmarshal([]byte(strings.Join(w.Header()[name], ",")), &reset); err != nil || reset != got.ResetAt {
		t.Errorf("got X-RateLimit-Reset %v, %v; want reset_at %v", reset, err, got.ResetAt)
	}
}

// Guarantee: all accounts together read eight documents at once, and a waiting document is read as
// soon as one of the eight is done.
func TestNinthDocumentOfAllWaits(t *testing.T) {
	s := start(t)
	keys := []string{s.newAccount("a"), s.newAccount("b"), s.newAccount("c"), s.newAccount("d")}
	synctest.Test(t, func(t *testing.T) {
		var bodies []*body
		var done []<-chan *httptest.ResponseRecorder
		for i := range 8 {
			bodies = append(bodies, newBody())
			done = append(done, send(s.handler, "PUT", specPath, keys[i/2], bigBody, bodies[i]))
			if !bodies[i].isRead() {
				t.Fatalf("got no reading of document %d, want it at once", i+1)
			}
		}
		ninth := newBody()
		done = append(done, send(s.handler, "PUT", specPath, s.admin, bigBody, ninth))
		if ninth.isRead() {
			t.Error("got a ninth document read at once, want it to wait")
		}
		close(bodies[3].end)
		if !ninth.isRead() {
			t.Error("got no reading of the ninth document when another one was done with, want it at once")
		}
		close(ninth.end)
		for i, b := range bodies {
			if i != 3 {
				close(b.end)
			}
		}
		for _, d := range done {
			<-d
		}
	})
}

// pipes is a listener whose connections are pipes, so that deadlines run in virtual time.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { close(p.done); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

// Guarantee: a client that sends a document too slowly loses its slot. A client that sends 128 KiB
// a second keeps its slot.
func TestSlowDocumentLosesItsSlot(t *testing.T) {
	s := start(t)
	for name, c := range map[string]struct {
		chunks int // of 128 KiB, one a second
		want   time.Duration
	}{
		"stalls at once": {0, 10 * time.Second},
		"stalls later":   {16, 26 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &pipes{make(chan net.Conn), make(chan struct{})}
				server := &http.Server{Handler: s.handler}
				stopped := make(chan error, 1)
				go func() { stopped <- server.Serve(l) }()
				client, far := net.Pipe()
				l.conns <- far
				begin := time.Now()
				go func() {
					if _, err := io.WriteString(client, "PUT "+specPath+" HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 16777216\r\nAuthorization: Bearer "+s.admin+"\r\n\r\n"); err != nil {
						t.Error(err)
					}
					for range c.chunks {
						<-time.After(time.Second)
						if _, err := client.Write(make([]byte, 128<<10)); err != nil {
							t.Error(err)
						}
					}
				}()
				res, err := http.ReadResponse(bufio.NewReader(client), nil)
				if err != nil {
					t.Fatal(err)
				}
				content, err := io.ReadAll(res.Body)
				if err != nil || res.StatusCode != 400 || !strings.Contains(string(content), "too slowly") {
					t.Errorf("got %d %s, %v; want 400 for a body that is too slow", res.StatusCode, content, err)
				}
				if took := time.Since(begin); took != c.want {
					t.Errorf("got the response after %s, want %s", took, c.want)
				}
				client.Close()
				server.Close()
				<-stopped
				<-time.After(time.Second) // net/http lingers on a connection that it closes
			})
		})
	}
}

// Guarantee: of each account 64 calls run at once; more wait for a moment, and are then refused
// with a 429. Another account's calls run.
func TestCallsOfAnAccountAtOnce(t *testing.T) {
	s := start(t)
	tenant := s.newAccount("tenant")
	synctest.Test(t, func(t *testing.T) {
		end := newBody()
		var done []<-chan *httptest.ResponseRecorder
		hold := func(key string) *body {
			b := &body{asked: make(chan struct{}), end: end.end}
			done = append(done, send(s.handler, "POST", "/v1/keys", key, 100, b))
			return b
		}
		for i := range 64 {
			if !hold(s.admin).isRead() {
				t.Fatalf("got no reading of the body of call %d, want it at once", i+1)
			}
		}
		next := newBody()
		begin := time.Now()
		w := <-send(s.handler, "POST", "/v1/keys", s.admin, 100, next)
		if waited := time.Since(begin); waited != 2*time.Second || next.isRead() {
			t.Errorf("waited %s, body read: %t; want 2s and an unread body", waited, next.isRead())
		}
		checkRefusal(t, w, 64)
		if !hold(tenant).isRead() {
			t.Error("got no reading of another account's call, want it at once")
		}
		close(end.end)
		for _, d := range done {
			<-d
		}
	})
}
