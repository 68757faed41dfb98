package h2

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/admit"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/keygatetest/awaittest"
	"github.com/keygate/keygate/internal/netguard"
	"github.com/keygate/keygate/internal/proxy"
	"github.com/keygate/keygate/internal/ratelimit"
	"github.com/keygate/keygate/internal/snapshot"
	"github.com/keygate/keygate/internal/snapshot/snapshottest"
	"github.com/keygate/keygate/internal/upstream"
)

// access is an engine in front of a service with a scheme. Package admit decides its requests.
type access struct {
	t         *testing.T
	engine    *Engine
	addr      string
	pools     *upstream.Pools
	source    *snapshottest.Source
	follower  *snapshot.Follower
	collector *accesslog.Collector
	key       apikey.Key
	secret    string
	lost      atomic.Bool  // the lease
	ahead     atomic.Int64 // nanoseconds that the clocks are ahead
	now       int64        // of the engine's clock

	mu      sync.Mutex
	records []accesslog.Entry
}

// accessSetup configures an access.
type accessSetup struct {
	scheme   string
	keep     bool  // cut_streams: false
	maxConns int64 // upstream_max_connections
	handler  http.HandlerFunc
	exchange func(*stream) error // in place of (*stream).forward, unless nil
}

// Held implements admit.Lease.
func (a *access) Held() bool { return !a.lost.Load() }

// Take implements accesslog.Sink.
func (a *access) Take(batch []accesslog.Entry) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, e := range batch {
		if e.Part != accesslog.Started {
			a.records = append(a.records, e)
		}
	}
}

// newAccess starts an engine whose sweeper does nothing but in tick.
func newAccess(t *testing.T, s accessSetup) *access {
	t.Helper()
	service := httptest.NewUnstartedServer(s.handler)
	if s.scheme == "h2c" {
		service.Config.Protocols = new(http.Protocols)
		service.Config.Protocols.SetUnencryptedHTTP2(true)
	}
	service.Start()
	t.Cleanup(service.Close)
	a := &access{t: t, source: &snapshottest.Source{}}
	a.store(s, s.scheme+"://"+service.Listener.Addr().String())
	reserver, err := ratelimit.NewReserver(ratelimit.ReserverConfig{Store: a.source})
	if err != nil {
		t.Fatal(err)
	}
	clock := ratelimit.NewClock()
	now := func() ratelimit.Instant {
		i, ahead := clock.Now(), a.ahead.Load()
		return ratelimit.Instant{Wall: i.Wall + ahead, Mono: i.Mono + ahead}
	}
	if a.follower, err = snapshot.New(snapshot.Config{Source: a.source, Reserver: reserver, Now: now}); err != nil {
		t.Fatal(err)
	}
	a.apply(func() {})
	admitter, err := admit.New(admit.Config{Follower: a.follower, Now: now, Lease: a})
	if err != nil {
		t.Fatal(err)
	}
	if a.collector, err = accesslog.NewCollector(accesslog.Config{Sinks: []accesslog.Sink{a}}); err != nil {
		t.Fatal(err)
	}
	if a.pools, err = upstream.NewPools(upstream.Config{Guard: netguard.New()}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.pools.Close)
	a.engine, err = New(Config{
		Config: proxy.Config{Admit: admitter, Pools: a.pools, Shard: a.collector.Shard, Mono: func() int64 { return now().Mono }},
	})
	if err != nil {
		t.Fatal(err)
	}
	a.engine.exchange = s.exchange
	a.addr = listen(t, a.engine)
	_ = a.engine.sweeper.Stop(context.Background()) // has no bound, so no error
	a.now = a.engine.clock.Now()
	return a
}

// store fills the source.
func (a *access) store(s accessSetup, upstreamURL string) {
	a.t.Helper()
	var err error
	if a.secret, err = apikey.Generate(apikey.GatewayLevel, rand.Reader); err != nil {
		a.t.Fatal(err)
	}
	acct := account.Account{ID: id.New(id.Account), Name: account.Default, Tier: account.Platform}
	a.source.PutAccount(acct)
	gw := gateway.Gateway{ID: id.New(id.Gateway), AccountID: acct.ID, Default: true, Timeout: "10m"}
	gw.Upstream.URL, gw.Upstream.MaxConnections, gw.Requests.KeepStreams = upstreamURL, s.maxConns, s.keep
	a.source.PutGateway(gw, gateway.Route{ID: id.New(id.Route), GatewayID: gw.ID, Path: "/*", Methods: []string{"GET", "POST"}, Auth: gateway.AuthKey})
	a.key = apikey.Key{ID: id.New(id.Key), AccountID: acct.ID, Digest: apikey.DigestOf(a.secret), Level: apikey.GatewayLevel, Scope: apikey.Scopes{{Word: apikey.Admin}}}
	a.key.BucketID = a.key.ID
	a.source.PutKey(a.key)
}

// apply changes the store and puts that in force.
func (a *access) apply(change func()) {
	change()
	if err := a.follower.CatchUp(context.Background()); err != nil {
		a.t.Error(err)
	}
}

func (a *access) revoke() {
	a.apply(func() { a.key.RevokedAt = time.Now(); a.source.PutKey(a.key) })
}

// tick advances all clocks by one tick and sweeps.
func (a *access) tick() {
	a.ahead.Add(int64(tickTime))
	a.now += tickTime.Milliseconds()
	a.engine.clock.Set(a.now)
	a.engine.sweep()
}

// request returns a request with the key.
func (a *access) request(method, path string, body io.Reader, contentType string) *http.Request {
	a.t.Helper()
	r, err := http.NewRequestWithContext(a.t.Context(), method, "http://"+a.addr+path, body)
	if err != nil {
		a.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+a.secret)
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	return r
}

// wantRecord checks that there is one record, and why the request could not go on.
func (a *access) wantRecord(status uint16, reason accesslog.Reason) {
	a.t.Helper()
	if err := a.collector.Sync(context.Background()); err != nil {
		a.t.Fatal(err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.records) != 1 || a.records[0].Status != status || a.records[0].Reason != reason {
		a.t.Errorf("got records %+v, want one with status %d and reason %q", a.records, status, reason)
	}
}

// serveLong serves exchanges that go on until they are cut. A value is sent when an exchange has
// begun, and when it has ended.
func serveLong() (handler http.HandlerFunc, begun, ended chan bool) {
	begun, ended = make(chan bool, 100), make(chan bool, 100)
	return func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		_ = rc.EnableFullDuplex()
		if r.URL.Path == "/stream" {
			_, _ = io.WriteString(w, "data: 1")
			_ = rc.Flush()
		}
		begun <- true
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
		ended <- true
	}, begun, ended
}

// endings are the ways in which access ends.
var endings = []struct {
	name   string
	end    func(a *access)
	reason accesslog.Reason
	status uint16
	grpc   string // grpc-status
	always bool   // also with cut_streams: false
}{
	{"revoked", (*access).revoke, accesslog.KeyWasRevoked, 401, "16", false},
	{"expired", func(a *access) {
		a.apply(func() { a.key.ExpiresAt = time.Unix(0, time.Now().UnixNano()+a.ahead.Load()); a.source.PutKey(a.key) })
	}, accesslog.KeyHasExpired, 401, "16", false},
	{"suspended", func(a *access) {
		a.apply(func() {
			all, _ := a.source.Accounts(a.t.Context())
			all[0].State = account.Suspended
			a.source.PutAccount(all[0])
		})
	}, accesslog.GatewayGone, 404, "12", true},
	{"lease lost", func(a *access) { a.lost.Store(true) }, accesslog.LeaseLost, 503, "14", true},
}

// Guarantee: contract 3.3, cut_streams: a stream that runs for long ends within 1 s, on both sides,
// when its key, its gateway or the lease ends. A response that has begun ends with RST_STREAM
// (CANCEL); otherwise the client gets the refusal, a gRPC call as a gRPC status. With cut_streams:
// false, a change of the key ends nothing.
func TestLongStreamsAreCut(t *testing.T) {
	for _, scheme := range []string{"http", "h2c"} {
		for _, shape := range []struct {
			name, path, contentType string
			upload                  bool
		}{
			{"events", "/stream", "", false},
			{"slow response", "/wait", "", false},
			{"upload", "/wait", "", true},
			{"gRPC, both ways", "/stream", "application/grpc", true},
			{"gRPC, silent server", "/wait", "application/grpc", true},
		} {
			for _, e := range endings {
				for _, keep := range []bool{false, true} {
					name := scheme + "/" + shape.name + "/" + e.name
					if keep {
						name += "/kept"
					}
					t.Run(name, func(t *testing.T) {
						handler, begun, ended := serveLong()
						a := newAccess(t, accessSetup{scheme: scheme, keep: keep, handler: handler})
						var body io.Reader
						method := "GET"
						if shape.upload {
							r, w := io.Pipe()
							t.Cleanup(func() { _ = w.Close() })
							body, method = r, "POST"
							go func() { _, _ = io.WriteString(w, "part") }()
						}
						request := a.request(method, shape.path, body, shape.contentType)
						ctx, giveUp := context.WithCancel(t.Context())
						defer giveUp()
						type result struct {
							response *http.Response
							err      error
						}
						got := make(chan result, 1)
						go func() {
							response, err := client(t).RoundTrip(request.WithContext(ctx))
							got <- result{response, err}
						}()
						<-begun
						var first result
						if shape.path == "/stream" {
							if first = <-got; first.err != nil {
								t.Fatal(first.err)
							}
							if _, err := io.ReadFull(first.response.Body, make([]byte, 7)); err != nil {
								t.Fatal(err)
							}
						}
						for range 3 {
							a.tick()
						}
						e.end(a)
						for range int(time.Second/tickTime) - 1 { // and up to one until the next
							a.tick()
						}
						if keep && !e.always {
							for range 20 {
								a.tick()
							}
							if len(ended) > 0 {
								t.Error("the stream ended, want it to go on")
							}
							return
						}
						<-ended
						if first.response != nil {
							_, err := io.ReadAll(first.response.Body)
							var reset http2.StreamError
							if !errors.As(err, &reset) && !strings.Contains(err.Error(), "CANCEL") {
								t.Errorf("got %v, want RST_STREAM with CANCEL", err)
							}
							a.wantRecord(200, e.reason)
							return
						}
						if first = <-got; first.err != nil {
							t.Fatal(first.err)
						}
						defer func() { _ = first.response.Body.Close() }()
						if shape.contentType != "" {
							if got := first.response.Header.Get("grpc-status"); got != e.grpc {
								t.Errorf("got grpc-status %q, want %s", got, e.grpc)
							}
						} else if first.response.StatusCode != int(e.status) {
							t.Errorf("got status %d, want %d", first.response.StatusCode, e.status)
						}
						a.wantRecord(e.status, e.reason)
					})
				}
			}
		}
	}
}

// Guarantee: a request that waited for a connection, or for a stream on one, is refused if its key
// was revoked meanwhile, and nothing of it goes upstream.
func TestRevokedWhileWaiting(t *testing.T) {
	for _, scheme := range []string{"http", "h2c"} {
		t.Run(scheme, func(t *testing.T) {
			var requests atomic.Int32
			begun, release := make(chan bool, 200), make(chan bool)
			a := newAccess(t, accessSetup{scheme: scheme, keep: true, maxConns: 1, handler: func(w http.ResponseWriter, r *http.Request) {
				requests.Add(1)
				begun <- true
				<-release
			}})
			// A server allows 250 streams by default, of which the pool uses 128.
			most := map[string]int{"http": 1, "h2c": 128}[scheme]
			var all sync.WaitGroup
			tr := []*http.Transport{client(t), client(t)}
			for range most {
				all.Go(func() {
					if response, err := tr[0].RoundTrip(a.request("GET", "/first", nil, "")); err != nil || response.StatusCode != 200 {
						t.Errorf("got %v, %v; want a 200", response, err)
					}
				})
			}
			for range most {
				<-begun
			}
			second := make(chan *http.Response, 1)
			go func() {
				response, err := tr[1].RoundTrip(a.request("GET", "/second", nil, ""))
				if err != nil {
					t.Error(err)
				}
				second <- response
			}()
			awaittest.True(t, "a request that waits", func() (waits bool) {
				a.engine.each(func(c *conn) {
					c.mu.Lock()
					defer c.mu.Unlock()
					for _, s := range c.streams {
						waits = waits || s.cancel != nil
					}
				})
				return waits
			})
			a.revoke()
			close(release)
			all.Wait()
			response := <-second
			if body, err := io.ReadAll(response.Body); err != nil || response.StatusCode != 401 || !strings.Contains(string(body), `"key_invalid"`) {
				t.Errorf("got status %d, %s, error %v; want 401 key_invalid", response.StatusCode, body, err)
			}
			if got := int(requests.Load()); got != most {
				t.Errorf("the service got %d requests, want %d", got, most)
			}
		})
	}
}

// Guarantee: a request whose key is revoked right before it would be sent over an idle connection is refused, and
// the connection serves the next request.
func TestRevokedBeforeUseOfIdleConnection(t *testing.T) {
	var requests atomic.Int32
	var revoke atomic.Pointer[func()] // called right before a request is forwarded, unless nil
	a := newAccess(t, accessSetup{
		scheme: "http", maxConns: 1, handler: func(http.ResponseWriter, *http.Request) { requests.Add(1) },
		exchange: func(s *stream) error {
			if f := revoke.Load(); f != nil {
				(*f)()
			}
			return s.forward()
		},
	})
	get := func(want int) {
		t.Helper()
		response, err := client(t).RoundTrip(a.request("GET", "/", nil, ""))
		if err != nil {
			t.Fatal(err)
		}
		if body, err := io.ReadAll(response.Body); err != nil || response.StatusCode != want {
			t.Errorf("got status %d, %s, error %v; want %d", response.StatusCode, body, err, want)
		}
	}
	get(http.StatusOK)
	revoked := make(chan bool, 1)
	revokeNow := func() { a.revoke(); revoked <- true }
	revoke.Store(&revokeNow)
	get(http.StatusUnauthorized)
	<-revoked
	a.apply(func() { a.key.RevokedAt = time.Time{}; a.source.PutKey(a.key) })
	revoke.Store(nil)
	get(http.StatusOK)
	if got := requests.Load(); got != 2 {
		t.Errorf("the service got %d requests, want 2", got)
	}
}

// Guarantee: a request with a body that waits for a connection to the upstream is refused with 503 if its address
// already holds as many bytes of bodies as it may, and then holds nothing.
func TestWaitingBodiesAreBounded(t *testing.T) {
	begun, release := make(chan bool, 1), make(chan bool)
	a := newAccess(t, accessSetup{scheme: "http", keep: true, maxConns: 1, handler: func(http.ResponseWriter, *http.Request) {
		begun <- true
		<-release
	}})
	var first sync.WaitGroup
	first.Go(func() {
		if response, err := client(t).RoundTrip(a.request("GET", "/first", nil, "")); err != nil || response.StatusCode != 200 {
			t.Errorf("got %v, %v; want a 200", response, err)
		}
	})
	<-begun
	other := a.engine.bodies.Of(netip.MustParseAddr("127.0.0.1"), false) // another connection of the address
	if !other.Take(proxy.MaxBodiesOfAddress) {
		t.Fatal("the address cannot hold its bound")
	}
	body, pipe := io.Pipe() // does not end
	defer pipe.Close()
	go func() { _, _ = pipe.Write(make([]byte, 1000)) }()
	response, err := client(t).RoundTrip(a.request("POST", "/second", body, ""))
	if err != nil {
		t.Fatal(err)
	}
	if text, _ := io.ReadAll(response.Body); response.StatusCode != http.StatusServiceUnavailable || !strings.Contains(string(text), `"unavailable"`) {
		t.Errorf("got status %d, %s; want 503 unavailable", response.StatusCode, text)
	}
	if !other.Take(0) {
		t.Error("the refused request holds a part of its body")
	}
	other.Done()
	close(release)
	first.Wait()
}

// Guarantee: a long head of a request counts with the waiting bodies of its address, and each request with those in flight.
// Beyond the bounds a request is a 503, and a refused upload is not read any more. Whatever the end, nothing stays counted.
func TestHeadsAndStreamsAreBounded(t *testing.T) {
	a := newAccess(t, accessSetup{scheme: "http", keep: true, handler: func(http.ResponseWriter, *http.Request) {}})
	of := func() *proxy.ConnBodies { return a.engine.bodies.Of(netip.MustParseAddr("127.0.0.1"), false) }
	want := func(what string, head, status int) {
		t.Helper()
		r := a.request("GET", "/a", nil, "")
		r.Header.Set("X-A", strings.Repeat("a", head))
		response, err := client(t).RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		if text, _ := io.ReadAll(response.Body); response.StatusCode != status {
			t.Errorf("%s: got status %d, %s; want %d", what, response.StatusCode, text, status)
		}
	}
	bytes := of()
	if !bytes.Take(proxy.MaxBodiesOfAddress) {
		t.Fatal("the address cannot hold its bound")
	}
	want("a long head without room for it", proxy.FreeHead, http.StatusServiceUnavailable)
	want("a short head", 100, http.StatusOK)
	bytes.Done()
	want("a long head", proxy.FreeHead, http.StatusOK)
	requests := of()
	for range proxy.MaxStreamsOfAddress {
		if !requests.Open(0) {
			t.Fatal("the address cannot have its bound of requests")
		}
	}
	want("a request beyond the bound", 100, http.StatusServiceUnavailable)
	body, pipe := io.Pipe() // does not end
	response, err := client(t).RoundTrip(a.request("POST", "/a", body, ""))
	if err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(response.Body); response.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("an upload beyond the bound: got status %d, %s, %v; want 503", response.StatusCode, text, err)
	}
	if _, err := pipe.Write(make([]byte, 1<<20)); err == nil {
		t.Error("the refused upload is read")
	}
	requests.Done()
	want("a request after the others have ended", 100, http.StatusOK)
	all := of()
	defer all.Done()
	for n := range proxy.MaxStreamsOfAddress {
		if !all.Open(0) {
			t.Errorf("%d requests stay counted", proxy.MaxStreamsOfAddress-n)
			break
		}
	}
	if !all.Take(proxy.MaxBodiesOfAddress) {
		t.Error("bytes of heads stay counted")
	}
}
