package e2e

import (
	"bufio"
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/keygatetest/awaittest"
)

// webhookFlags returns flags that allow receivers on this machine and make retries
// almost immediate.
func webhookFlags() []string {
	return []string{"--webhook-allow-network", "127.0.0.0/8", "--webhook-backoff", "20ms,20ms,20ms,20ms"}
}

// receivedDelivery is one request to a receiver.
type receivedDelivery struct {
	header http.Header
	body   string
}

func (p *receivedDelivery) event(t *testing.T) (typ string, data map[string]any) {
	t.Helper()
	var e struct {
		ID, Type  string
		CreatedAt time.Time `json:"created_at"`
		Data      map[string]any
	}
	if err := json.Unmarshal([]byte(p.body), &e); err != nil || !strings.HasPrefix(e.ID, "evt_") || e.CreatedAt.IsZero() {
		t.Fatalf("the body is not an event: %v\n%s", err, p.body)
	}
	return e.Type, e.Data
}

// receiver is a webhook receiver that records its requests and responds with status.
type receiver struct {
	*httptest.Server
	mu         sync.Mutex
	status     int
	deliveries []receivedDelivery
}

func newReceiver(t *testing.T) *receiver {
	b := &receiver{status: http.StatusOK}
	b.Server = httptest.NewServer(b)
	t.Cleanup(b.Close)
	return b
}

func (b *receiver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	b.mu.Lock()
	b.deliveries = append(b.deliveries, receivedDelivery{r.Header.Clone(), string(body)})
	status := b.status
	b.mu.Unlock()
	w.WriteHeader(status)
	_, _ = io.WriteString(w, "noted")
}

func (b *receiver) respondWith(status int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.status = status
}

func (b *receiver) all() []receivedDelivery {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.deliveries)
}

// newWebhook creates an endpoint and returns its identifier and secret.
func (s *server) newWebhook(url string, events ...string) (id, secret string) {
	s.t.Helper()
	a := s.call(http.StatusCreated, "POST", "/v1/webhooks", map[string]any{"url": url, "events": events, "signing_secret": "auto", "allow_duplicate": true})
	return a.field(s.t, "webhook_id"), a.field(s.t, "signing_secret")
}

// list returns the records of the first page of a list.
func (s *server) list(path string) []map[string]any {
	s.t.Helper()
	var out []map[string]any
	for _, item := range s.call(http.StatusOK, "GET", path, nil).json(s.t)["data"].([]any) {
		out = append(out, item.(map[string]any))
	}
	return out
}

// signedWith reports whether the delivery has both signatures with secret, as the
// specification and Standard Webhooks define them.
func (p *receivedDelivery) signedWith(secret string) bool {
	own := hmac.New(sha256.New, []byte(secret))
	own.Write([]byte(p.body))
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	standard := hmac.New(sha256.New, key)
	_, _ = fmt.Fprintf(standard, "%s.%s.%s", p.header.Get("webhook-id"), p.header.Get("webhook-timestamp"), p.body)
	given := strings.Fields(p.header.Get("webhook-signature"))
	return err == nil && p.header.Get("X-Service-Signature") == "sha256="+hex.EncodeToString(own.Sum(nil)) &&
		slices.Contains(given, "v1,"+base64.StdEncoding.EncodeToString(standard.Sum(nil)))
}

// eventFields are the fields of the data of each event type.
var eventFields = map[string]string{
	"key.created":            "key_id key_prefix name scope level owner gateway_id expires_at",
	"key.revoked":            "key_id key_prefix name scope level owner gateway_id expires_at",
	"key.expired":            "key_id key_prefix name scope level owner gateway_id expires_at",
	"key.rotated":            "key_id key_prefix overlap_days new_key_id",
	"rate_limit.exceeded":    "gateway_id route_id key_id key_prefix limit_scope limit method path sample_rate breaches",
	"gateway.upstream_error": "gateway_id route_id status reason method path request_id occurrences",
	"gateway.spec_pushed":    "gateway_id revision source commit author added removed changed",
}

// raiseEveryEvent raises at least one event of each type. At upstream, /broken responds
// with an error.
func raiseEveryEvent(t *testing.T, s *server, upstream string) {
	t.Helper()
	gateway := s.newGateway(upstream, nil)
	_, key := s.newKey(map[string]any{"rate_limit": "1/h"})
	for range 3 {
		if _, err := s.send("GET", "/broken", key); err != nil { // forwarded once, refused twice
			t.Fatal(err)
		}
	}
	rotated, _ := s.newKey(nil)
	s.call(http.StatusCreated, "POST", "/v1/keys/"+rotated+"/rotate", map[string]any{"overlap_days": 1})
	s.call(http.StatusOK, "DELETE", "/v1/keys/"+rotated, nil)
	s.newExpiringKey(time.Second)
	s.call(http.StatusOK, "PUT", "/v1/gateways/"+gateway+"/config", "routes: [{path: /x, methods: [GET]}]", "Content-Type: text/plain")
}

// checkFirstAttempt checks the data fields, the signatures and the headers of the first
// attempt for an event of type typ, and that the event is stored with the same bytes.
func checkFirstAttempt(t *testing.T, s *server, typ, secret string, p *receivedDelivery) {
	t.Helper()
	_, data := p.event(t)
	want := strings.Fields(eventFields[typ])
	for _, name := range want {
		if _, found := data[name]; !found {
			t.Errorf("%s: data has no field %s: %s", typ, name, p.body)
		}
	}
	if n := len(want); len(data) != n {
		t.Errorf("%s: data has %d fields, want %d: %s", typ, len(data), n, p.body)
	}
	if !p.signedWith(secret) {
		t.Errorf("%s: the signatures do not match: %v", typ, p.header)
	}
	id := p.header.Get("webhook-id")
	if stored := s.call(http.StatusOK, "GET", "/v1/events/"+id, nil); string(stored.body) != p.body {
		t.Errorf("%s: the stored event differs from the delivered one\ndelivered %s\nstored    %s", typ, p.body, stored.body)
	}
	if p.header.Get("Content-Type") != "application/json" || p.header.Get("X-Service-Event") != typ || p.header.Get("X-Service-Attempt") != "1" ||
		!strings.HasPrefix(p.header.Get("X-Service-Delivery"), "dlv_") {
		t.Errorf("%s: wrong headers of the first attempt: %v", typ, p.header)
	}
}

// Guarantee: each of the seven event types is delivered, signed, with the same bytes
// as in the list of events, and with the data fields of the contract (section 6).
func TestEveryEventArrives(t *testing.T) {
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/broken" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer up.Close()
	b := newReceiver(t)
	s := startServer(t, webhookFlags()...)
	types := slices.Collect(maps.Keys(eventFields))
	_, secret := s.newWebhook(b.URL+"/in", types...)
	raiseEveryEvent(t, s, up.URL)

	seen := map[string]*receivedDelivery{}
	if !awaittest.Holds(func() bool {
		all := b.all()
		for i := range all {
			typ, _ := all[i].event(t)
			seen[typ] = &all[i]
		}
		return len(seen) == len(types)
	}) {
		t.Fatalf("got events %v, want all of %v\n%s", seen, types, s.output)
	}
	for typ, p := range seen {
		checkFirstAttempt(t, s, typ, secret, p)
	}
	if _, data := seen["rate_limit.exceeded"].event(t); data["limit_scope"] != "key" || data["breaches"] != 1.0 || data["sample_rate"] != 100.0 || data["path"] != "/*" {
		t.Errorf("got rate_limit.exceeded %v, want the first breach of the key's limit on /*", data)
	}
	if _, data := seen["gateway.upstream_error"].event(t); data["status"] != 503.0 || data["occurrences"] != 1.0 || data["reason"] != "upstream_status" {
		t.Errorf("got gateway.upstream_error %v, want 1 occurrence of status 503", data)
	}
}

// awaitDelivery waits until the newest delivery to an endpoint is in a state, and returns it.
func (s *server) awaitDelivery(webhookID, state string) map[string]any {
	s.t.Helper()
	var d map[string]any
	if !awaittest.Holds(func() bool {
		d = s.list("/v1/webhook-deliveries?webhook_id=" + webhookID)[0]
		return d["state"] == state
	}) {
		s.t.Fatalf("got delivery %v, want state %s\n%s", d, state, s.output)
	}
	return d
}

// Guarantee: redelivering a delivery whose retry is scheduled makes the retry now.
func TestRetryNow(t *testing.T) {
	b := newReceiver(t)
	b.respondWith(http.StatusInternalServerError)
	s := startServer(t, "--webhook-allow-network", "127.0.0.0/8", "--webhook-backoff", "1h,1h,1h,1h")
	hook, _ := s.newWebhook(b.URL+"/in", "key.created")
	s.newKey(nil)
	waiting := s.awaitDelivery(hook, "retry_scheduled")
	b.respondWith(http.StatusOK)
	same := s.call(http.StatusOK, "POST", "/v1/webhook-deliveries/"+waiting["delivery_id"].(string)+"/redeliver", nil).json(t)
	if same["delivery_id"] != waiting["delivery_id"] {
		t.Errorf("got %v, want the same delivery", same)
	}
	if d := s.awaitDelivery(hook, "delivered"); d["delivery_id"] != waiting["delivery_id"] || len(d["attempts"].([]any)) != 2 {
		t.Errorf("got %v, want the same delivery, delivered by its second attempt", d)
	}
}

// Guarantee: a delivery fails after five attempts with the same bytes. It can be redelivered alone
// or in a recovery. A 410 disables the endpoint, and a PATCH enables it.
func TestFailedDeliveryCanBeRecovered(t *testing.T) {
	b := newReceiver(t)
	b.respondWith(http.StatusInternalServerError)
	s := startServer(t, webhookFlags()...)
	hook, secret := s.newWebhook(b.URL+"/in", "key.created")
	s.newKey(nil)
	failed := s.awaitDelivery(hook, "failed")
	attempts := failed["attempts"].([]any)
	if len(attempts) != 5 || attempts[4].(map[string]any)["status"] != 500.0 || attempts[4].(map[string]any)["response_body"] != "noted" {
		t.Errorf("got attempts %v, want 5 with status 500 and body noted", attempts)
	}
	all := b.all()
	for i, p := range all {
		if p.body != all[0].body || p.header.Get("webhook-id") != all[0].header.Get("webhook-id") || p.header.Get("X-Service-Attempt") != fmt.Sprint(i+1) || !p.signedWith(secret) {
			t.Errorf("attempt %d: got %v %s, want the bytes and event of the first, signed", i+1, p.header, p.body)
		}
	}
	b.respondWith(http.StatusOK)
	s.call(http.StatusCreated, "POST", "/v1/webhook-deliveries/"+failed["delivery_id"].(string)+"/redeliver", nil)
	if d := s.awaitDelivery(hook, "delivered"); d["trigger"] != "manual" || d["event_id"] != failed["event_id"] {
		t.Errorf("got redelivery %v, want trigger manual and the same event", d)
	}
	if all = b.all(); all[len(all)-1].body != all[0].body {
		t.Error("the redelivery has another body than the first attempt")
	}
	if n := s.call(http.StatusOK, "POST", "/v1/webhooks/"+hook+"/recover", map[string]any{"since": "2020-01-01"}).json(t)["deliveries"]; n != 0.0 {
		t.Errorf("got %v recovered deliveries, want 0 since the event was redelivered", n)
	}

	b.respondWith(http.StatusGone)
	s.newKey(nil)
	var w map[string]any
	if !awaittest.Holds(func() bool {
		w = s.call(http.StatusOK, "GET", "/v1/webhooks/"+hook, nil).json(t)
		return w["state"] == "disabled"
	}) {
		t.Fatalf("got endpoint %v, want state disabled\n%s", w, s.output)
	}
	if w["disabled_reason"] == nil {
		t.Error("a disabled endpoint has no disabled_reason")
	}
	b.respondWith(http.StatusOK)
	s.call(http.StatusConflict, "POST", "/v1/webhooks/"+hook+"/test", nil)
	s.call(http.StatusOK, "PATCH", "/v1/webhooks/"+hook, map[string]any{"state": "active"})
	s.awaitDelivery(hook, "failed")
	if n := s.call(http.StatusOK, "POST", "/v1/webhooks/"+hook+"/recover", map[string]any{"since": "2020-01-01"}).json(t)["deliveries"]; n != 1.0 {
		t.Errorf("got %v recovered deliveries, want 1", n)
	}
	if d := s.awaitDelivery(hook, "delivered"); d["trigger"] != "recover" {
		t.Errorf("got recovered delivery %v, want trigger recover", d)
	}
}

// Guarantee: during the overlap of a secret rotation, deliveries are signed with both
// secrets, each in the headers of the contract (section 6). Without an overlap they
// are signed only with the new secret.
func TestBothSecretsSignDuringTheOverlap(t *testing.T) {
	b := newReceiver(t)
	s := startServer(t, webhookFlags()...)
	hook, old := s.newWebhook(b.URL+"/in", "key.created")
	last := func() *receivedDelivery {
		t.Helper()
		id := s.call(http.StatusOK, "POST", "/v1/webhooks/"+hook+"/test", nil).field(t, "delivery_id")
		var arrived *receivedDelivery
		if !awaittest.Holds(func() bool {
			all := b.all()
			at := slices.IndexFunc(all, func(p receivedDelivery) bool { return p.header.Get("X-Service-Delivery") == id })
			if at >= 0 {
				arrived = &all[at]
			}
			return at >= 0
		}) {
			t.Fatalf("the test event was not delivered\n%s", s.output)
		}
		return arrived
	}
	if p := last(); !p.signedWith(old) || p.header.Get("X-Service-Signature-Previous") != "" {
		t.Errorf("before the rotation: got %v, want only signatures with the first secret", p.header)
	} else if typ, data := p.event(t); typ != "webhook.test" || len(data) != 0 {
		t.Errorf("got %s, want a webhook.test with empty data", p.body)
	}
	fresh := s.call(http.StatusOK, "POST", "/v1/webhooks/"+hook+"/rotate-secret", nil).field(t, "signing_secret")
	p := last()
	if !p.signedWith(fresh) || len(strings.Fields(p.header.Get("webhook-signature"))) != 2 {
		t.Errorf("during the overlap: got %v, want signatures with both secrets", p.header)
	}
	p.header.Set("X-Service-Signature", p.header.Get("X-Service-Signature-Previous"))
	if !p.signedWith(old) {
		t.Errorf("during the overlap: got %v, want signatures with the old secret too", p.header)
	}
	s.restart(syscall.SIGTERM) // the encrypted secrets must survive it
	if p := last(); !p.signedWith(fresh) {
		t.Errorf("after a restart: got %v, want signatures with the new secret", p.header)
	}
	third := s.call(http.StatusOK, "POST", "/v1/webhooks/"+hook+"/rotate-secret", map[string]any{"overlap_hours": 0}).field(t, "signing_secret")
	if p := last(); !p.signedWith(third) || len(strings.Fields(p.header.Get("webhook-signature"))) != 1 || p.header.Get("X-Service-Signature-Previous") != "" {
		t.Errorf("without an overlap: got %v, want only signatures with the new secret", p.header)
	}
	if strings.Contains(s.output.String(), "whsec_") {
		t.Error("the log contains a secret")
	}
}

// Guarantee: a delivery never reaches Keygate's own listeners, and reaches this
// machine only if its network is allowed. The delivery log has the reason.
func TestReceiverAddressesAreRestricted(t *testing.T) {
	s := startServer(t, webhookFlags()...)
	attempt := func(url string) string {
		t.Helper()
		hook, _ := s.newWebhook(url, "key.created")
		id := s.call(http.StatusOK, "POST", "/v1/webhooks/"+hook+"/test", nil).field(t, "delivery_id")
		var d map[string]any
		if !awaittest.Holds(func() bool {
			d = s.call(http.StatusOK, "GET", "/v1/webhook-deliveries/"+id, nil).json(t)
			return d["state"] == "failed"
		}) {
			t.Fatalf("%s: got delivery %v, want state failed\n%s", url, d, s.output)
		}
		first := d["attempts"].([]any)[0].(map[string]any)
		if first["status"] != nil || first["error"] == nil {
			t.Errorf("%s: got attempt %v, want an error and no status", url, first)
		}
		return fmt.Sprint(first["error"])
	}
	for _, own := range []string{s.gateway, s.admin, s.ops, "localhost" + s.admin[strings.LastIndex(s.admin, ":"):]} {
		attempt("http://" + own + "/livez")
	}
	b := newReceiver(t)
	strict := startServer(t, "--webhook-allow-http", "--webhook-backoff", "1ms,1ms,1ms,1ms")
	s = strict
	if reason := attempt(b.URL + "/in"); !strings.Contains(reason, "--webhook-allow-network") {
		t.Errorf("got error %q, want it to name the flag --webhook-allow-network", reason)
	}
	if n := len(b.all()); n != 0 {
		t.Errorf("%d requests reached the receiver, want 0", n)
	}
	bare := startServer(t)
	if a, err := bare.try(bare.key, "POST", "/v1/webhooks", map[string]any{"url": b.URL, "events": []string{"key.created"}}); err != nil || a.status != http.StatusUnprocessableEntity ||
		a.field(t, "field") != "url" || !strings.Contains(a.field(t, "message"), "--webhook-allow-network") {
		t.Errorf("create an endpoint: error %v, got status %d %s, want 422 for url that names the flag", err, a.status, a.body)
	}
}

// Guarantee: the server stops in time even if a receiver hangs, and the delivery in
// progress is repeated after the next start.
func TestHangingReceiverDoesNotDelayTheStop(t *testing.T) {
	release := make(chan struct{})
	arrived := make(chan string, 100)
	hanging := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		arrived <- r.Header.Get("webhook-id")
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}))
	defer hanging.Close()
	s := startServer(t, webhookFlags()...)
	s.newWebhook(hanging.URL+"/in", "key.created")
	s.newKey(nil)
	first := <-arrived
	if status := s.end(syscall.SIGTERM); status != 0 {
		t.Errorf("got exit status %d, want 0\n%s", status, s.output)
	}
	close(release)
	s.start()
	select {
	case again := <-arrived:
		if again != first {
			t.Errorf("got event %s after the start, want %s again", again, first)
		}
	case <-time.After(awaittest.Timeout):
		t.Errorf("no delivery after the start\n%s", s.output)
	}
}

// startWithFailingUpstream starts a server with a gateway whose upstream responds with 500.
func startWithFailingUpstream(t *testing.T) *server {
	t.Helper()
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }))
	t.Cleanup(up.Close)
	s := startServer(t)
	s.newGateway(up.URL, nil)
	return s
}

// sendMany sends n requests with key from 8 clients at once. Each must get the status want.
func (s *server) sendMany(n int, key string, want int) {
	s.t.Helper()
	const clients = 8
	var wg sync.WaitGroup
	for c := range clients {
		wg.Go(func() {
			for range n / clients {
				if a, err := s.send("GET", "/x", key); err != nil || a.status != want {
					s.t.Errorf("client %d: error %v, got status %d, want %d", c, err, a.status, want)
					return
				}
			}
		})
	}
	wg.Wait()
}

// upstreamErrors returns the sum of the occurrences of all gateway.upstream_error events,
// and their times, newest first.
func (s *server) upstreamErrors() (occurrences float64, times []time.Time) {
	s.t.Helper()
	for path := "/v1/events?limit=100&type=gateway.upstream_error"; path != ""; {
		page := s.call(http.StatusOK, "GET", path, nil).json(s.t)
		for _, item := range page["data"].([]any) {
			e := item.(map[string]any)
			occurrences += e["data"].(map[string]any)["occurrences"].(float64)
			at, err := time.Parse(time.RFC3339Nano, e["created_at"].(string))
			if err != nil {
				s.t.Fatal(err)
			}
			times = append(times, at)
		}
		path = ""
		if next, more := page["next_cursor"].(string); more {
			path = "/v1/events?limit=100&type=gateway.upstream_error&cursor=" + next
		}
	}
	return occurrences, times
}

// Guarantee: however many requests fail because of the upstream, there is at most one
// event a second for a route and status, and the occurrences of all events add up to
// the number of failed requests, including those just before a shutdown.
func TestEventsOfAnOutageAddUp(t *testing.T) {
	s := startWithFailingUpstream(t)
	_, key := s.newKey(nil)
	const first, second = 4000, 800
	s.sendMany(first, key, http.StatusInternalServerError)
	if !awaittest.Holds(func() bool { n, _ := s.upstreamErrors(); return n >= first }) {
		n, _ := s.upstreamErrors()
		t.Fatalf("the events count %v errors, want %d\n%s", n, first, s.output)
	}
	s.sendMany(second, key, http.StatusInternalServerError)
	s.restart(syscall.SIGTERM)
	n, times := s.upstreamErrors()
	if n != first+second {
		t.Errorf("the events count %v errors, want %d", n, first+second)
	}
	for i := 1; i < len(times); i++ { // newest first; the event of the shutdown may come early
		if gap := times[i-1].Sub(times[i]); i > 1 && gap < time.Second {
			t.Errorf("two events are %v apart, want at least 1s", gap)
		}
	}
}

// Guarantee: every 100th request that exceeds a rate limit raises an event, starting with
// the first.
func TestEveryHundredthBreachRaisesAnEvent(t *testing.T) {
	s := startWithFailingUpstream(t)
	_, limited := s.newKey(map[string]any{"rate_limit": "1/h"})
	if a, err := s.send("GET", "/x", limited); err != nil || a.status != http.StatusInternalServerError {
		t.Fatalf("first request of the limited key: error %v, got status %d, want 500 from the upstream", err, a.status)
	}
	s.sendMany(240, limited, http.StatusTooManyRequests)
	var breaches []float64
	awaittest.Holds(func() bool {
		breaches = nil
		for _, e := range s.list("/v1/events?type=rate_limit.exceeded") {
			breaches = append(breaches, e["data"].(map[string]any)["breaches"].(float64))
		}
		return len(breaches) >= 3
	})
	slices.Sort(breaches) // events of concurrent requests may be stored in any order
	if !slices.Equal(breaches, []float64{1, 101, 201}) {
		t.Errorf("got events of breaches %v, want 1, 101 and 201", breaches)
	}
}

// readFiles returns the contents of the files in a directory, by name.
func readFiles(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	contents := map[string][]byte{}
	if err := fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			contents[name], err = os.ReadFile(filepath.Join(dir, name))
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return contents
}

// Guarantee: a signing secret appears only in the response that creates it: not in
// the store, a response stored for an Idempotency-Key, the log, a list, the audit log
// or a delivery.
func TestSigningSecretsStayHidden(t *testing.T) {
	b := newReceiver(t)
	b.respondWith(http.StatusInternalServerError)
	s := startServer(t, append(webhookFlags(), "--log-level", "debug")...)
	body := map[string]any{"url": b.URL + "/in", "events": []string{"key.created"}, "signing_secret": "mine: sixteen bytes and more", "allow_duplicate": true}
	created := s.call(http.StatusCreated, "POST", "/v1/webhooks", body, "Idempotency-Key: one")
	hook := created.field(t, "webhook_id")
	replayed := s.call(http.StatusCreated, "POST", "/v1/webhooks", body, "Idempotency-Key: one")
	body["signing_secret"] = "auto"
	auto := s.call(http.StatusCreated, "POST", "/v1/webhooks", body, "Idempotency-Key: two")
	rotated := s.call(http.StatusOK, "POST", "/v1/webhooks/"+hook+"/rotate-secret", nil, "Idempotency-Key: three")
	secrets := []string{"mine: sixteen bytes and more", created.field(t, "standard_webhooks_secret"), auto.field(t, "signing_secret"), rotated.field(t, "signing_secret")}
	for _, secret := range slices.Clone(secrets) {
		if key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_")); err == nil {
			secrets = append(secrets, string(key))
		}
	}
	s.call(http.StatusUnprocessableEntity, "POST", "/v1/webhooks", map[string]any{"url": "nonsense", "events": []string{"key.created"}, "signing_secret": secrets[0]})
	s.newKey(nil)
	if !awaittest.Holds(func() bool {
		failed := 0
		for _, d := range s.list("/v1/webhook-deliveries") {
			if d["state"] == "failed" {
				failed++
			}
		}
		return failed == 2
	}) {
		t.Fatalf("want 2 failed deliveries\n%s", s.output)
	}
	contents := map[string][]byte{"the replay": replayed.body}
	for _, path := range []string{"/v1/webhooks", "/v1/webhooks/" + hook, "/v1/events", "/v1/webhook-deliveries", "/v1/audit-log", "/v1/settings"} {
		contents[path] = s.call(http.StatusOK, "GET", path, nil).body
	}
	for _, d := range s.list("/v1/webhook-deliveries") {
		id := d["delivery_id"].(string)
		contents[id] = s.call(http.StatusOK, "GET", "/v1/webhook-deliveries/"+id, nil).body
	}
	if status := s.end(syscall.SIGTERM); status != 0 {
		t.Errorf("got exit status %d, want 0", status)
	}
	contents["the log"] = []byte(s.output.String())
	maps.Copy(contents, readFiles(t, s.dataDir))
	if len(contents["keygate.db"]) == 0 || !bytes.Contains(contents["keygate.db"], []byte(hook)) {
		t.Error("the store does not contain the endpoint: the test proves nothing about it")
	}
	for name, content := range contents {
		for _, secret := range secrets {
			if bytes.Contains(content, []byte(secret)) {
				t.Errorf("%s contains the secret %q", name, secret)
			}
		}
	}
}

// Guarantee: bytes that a receiver sends unasked are a line of the log at the level debug, in its format, and no line of another
// form on standard error.
func TestUnaskedBytesOfAReceiverKeepTheFormOfTheLog(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				if r, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
					_, _ = io.Copy(io.Discard, r.Body)
					_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nunasked \x1b[31m")
					_, _ = io.Copy(io.Discard, conn) // until the sender closes
				}
			}()
		}
	}()
	s := startServer(t, append(webhookFlags(), "--log-level", "debug", "--log-format", "json")...)
	s.call(http.StatusCreated, "POST", "/v1/webhooks", map[string]any{"url": "http://" + ln.Addr().String(), "events": []string{"key.created"}})
	s.newKey(nil)
	line := ""
	awaittest.True(t, "the log has the bytes", func() bool {
		for l := range strings.Lines(s.output.String()) {
			if strings.Contains(l, "unasked") && strings.HasSuffix(l, "\n") {
				line = l
			}
		}
		return line != ""
	})
	var record struct{ Level string }
	if err := json.Unmarshal([]byte(line), &record); err != nil || record.Level != "DEBUG" {
		t.Errorf("got the line %q (%v), want one of JSON with the level DEBUG", line, err)
	}
}
