package e2e

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
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
)

// quickHooks lets deliveries reach receivers on this machine, and failed ones be
// repeated at once.
func quickHooks() []string {
	return []string{"--webhook-allow-network", "127.0.0.0/8", "--webhook-backoff", "20ms,20ms,20ms,20ms"}
}

// parcel is one request that a receiver got.
type parcel struct {
	header http.Header
	body   string
}

func (p *parcel) event(t *testing.T) (typ string, data map[string]any) {
	t.Helper()
	var e struct {
		ID, Type  string
		CreatedAt time.Time `json:"created_at"`
		Data      map[string]any
	}
	if err := json.Unmarshal([]byte(p.body), &e); err != nil || !strings.HasPrefix(e.ID, "evt_") || e.CreatedAt.IsZero() {
		t.Fatalf("no event: %v\n%s", err, p.body)
	}
	return e.Type, e.Data
}

// inbox is a receiver that keeps what it gets and answers with status.
type inbox struct {
	*httptest.Server
	mu      sync.Mutex
	status  int
	parcels []parcel
}

func newInbox(t *testing.T) *inbox {
	b := &inbox{status: http.StatusOK}
	b.Server = httptest.NewServer(b)
	t.Cleanup(b.Close)
	return b
}

func (b *inbox) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	b.mu.Lock()
	b.parcels = append(b.parcels, parcel{r.Header.Clone(), string(body)})
	status := b.status
	b.mu.Unlock()
	w.WriteHeader(status)
	_, _ = io.WriteString(w, "noted")
}

func (b *inbox) answer(status int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.status = status
}

func (b *inbox) all() []parcel {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.parcels)
}

// newWebhook registers an endpoint and returns its identifier and secret.
func (s *server) newWebhook(url string, events ...string) (id, secret string) {
	s.t.Helper()
	a := s.call(http.StatusCreated, "POST", "/v1/webhooks", map[string]any{"url": url, "events": events, "signing_secret": "auto"})
	return a.str(s.t, "webhook_id"), a.str(s.t, "signing_secret")
}

// list returns the records of one page.
func (s *server) list(path string) []map[string]any {
	s.t.Helper()
	var out []map[string]any
	for _, item := range s.call(http.StatusOK, "GET", path, nil).json(s.t)["data"].([]any) {
		out = append(out, item.(map[string]any))
	}
	return out
}

// signedWith tells whether the parcel has both kinds of signatures of secret, by
// the words of the specification and of Standard Webhooks.
func (p *parcel) signedWith(secret string) bool {
	own := hmac.New(sha256.New, []byte(secret))
	own.Write([]byte(p.body))
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	standard := hmac.New(sha256.New, key)
	_, _ = fmt.Fprintf(standard, "%s.%s.%s", p.header.Get("webhook-id"), p.header.Get("webhook-timestamp"), p.body)
	given := strings.Fields(p.header.Get("webhook-signature"))
	return err == nil && p.header.Get("X-Service-Signature") == "sha256="+hex.EncodeToString(own.Sum(nil)) &&
		slices.Contains(given, "v1,"+base64.StdEncoding.EncodeToString(standard.Sum(nil)))
}

// Guarantee: each of the seven events arrives, signed, with the bytes that the
// list of events shows, and with the data that the contract names.
func TestEveryEventArrives(t *testing.T) {
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/broken" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer up.Close()
	b := newInbox(t)
	s := startServer(t, quickHooks()...)
	want := map[string]string{
		"key.created": "key_id key_prefix name scope level owner gateway_id expires_at", "key.revoked": "key_id key_prefix name scope level owner gateway_id expires_at",
		"key.expired": "key_id key_prefix name scope level owner gateway_id expires_at", "key.rotated": "key_id key_prefix overlap_days new_key_id",
		"rate_limit.exceeded":    "gateway_id route_id key_id key_prefix limit_scope limit method path sample_rate breaches",
		"gateway.upstream_error": "gateway_id route_id status reason method path request_id occurrences",
		"gateway.spec_pushed":    "gateway_id revision source commit added removed changed",
	}
	var types []string
	for typ := range want {
		types = append(types, typ)
	}
	_, secret := s.newWebhook(b.URL+"/in", types...)
	gateway := s.newGateway(up.URL, nil)
	_, key := s.newKey(map[string]any{"rate_limit": "1/h"})
	for range 3 {
		if _, err := s.through("GET", "/broken", key); err != nil { // once forwarded, twice refused
			t.Fatal(err)
		}
	}
	rotated, _ := s.newKey(nil)
	s.call(http.StatusCreated, "POST", "/v1/keys/"+rotated+"/rotate", map[string]any{"overlap_days": 1})
	s.call(http.StatusOK, "DELETE", "/v1/keys/"+rotated, nil)
	s.newBriefKey(time.Second)
	s.call(http.StatusOK, "PUT", "/v1/gateways/"+gateway+"/config", "routes: [{path: /x, methods: [GET]}]", "Content-Type: text/plain")

	seen := map[string]*parcel{}
	if !eventually(patience, func() bool {
		all := b.all()
		for i := range all {
			typ, _ := all[i].event(t)
			seen[typ] = &all[i]
		}
		return len(seen) == len(want)
	}) {
		t.Fatalf("arrived: %v\n%s", seen, s.output)
	}
	for typ, p := range seen {
		_, data := p.event(t)
		for _, member := range strings.Fields(want[typ]) {
			if _, there := data[member]; !there {
				t.Errorf("%s has no %s: %s", typ, member, p.body)
			}
		}
		if n := len(strings.Fields(want[typ])); len(data) != n {
			t.Errorf("%s has %d members, want %d: %s", typ, len(data), n, p.body)
		}
		if !p.signedWith(secret) {
			t.Errorf("%s is not signed: %v", typ, p.header)
		}
		id := p.header.Get("webhook-id")
		if stored := s.call(http.StatusOK, "GET", "/v1/events/"+id, nil); string(stored.body) != p.body {
			t.Errorf("%s\nsent   %s\nstored %s", typ, p.body, stored.body)
		}
		if p.header.Get("Content-Type") != "application/json" || p.header.Get("X-Service-Event") != typ || p.header.Get("X-Service-Attempt") != "1" ||
			!strings.HasPrefix(p.header.Get("X-Service-Delivery"), "dlv_") {
			t.Errorf("%s: %v", typ, p.header)
		}
	}
	if _, data := seen["rate_limit.exceeded"].event(t); data["limit_scope"] != "key" || data["breaches"] != 1.0 || data["sample_rate"] != 100.0 || data["path"] != "/*" {
		t.Errorf("breach %v", data)
	}
	if _, data := seen["gateway.upstream_error"].event(t); data["status"] != 503.0 || data["occurrences"] != 1.0 || data["reason"] != "upstream_status" {
		t.Errorf("error %v", data)
	}
}

// Guarantee: five failed attempts with the same bytes make a failed delivery,
// which can be sent again by hand and by a recovery; 410 disables the endpoint,
// and a call enables it.
func TestFailureAndRecovery(t *testing.T) {
	b := newInbox(t)
	b.answer(http.StatusInternalServerError)
	s := startServer(t, quickHooks()...)
	hook, secret := s.newWebhook(b.URL+"/in", "key.created")
	s.newKey(nil)
	state := func(want string) map[string]any {
		t.Helper()
		var d map[string]any
		if !eventually(patience, func() bool {
			d = s.list("/v1/webhook-deliveries?webhook_id=" + hook)[0]
			return d["state"] == want
		}) {
			t.Fatalf("the delivery is %v, never %s\n%s", d, want, s.output)
		}
		return d
	}
	failed := state("failed")
	attempts := failed["attempts"].([]any)
	if len(attempts) != 5 || attempts[4].(map[string]any)["status"] != 500.0 || attempts[4].(map[string]any)["response_body"] != "noted" {
		t.Errorf("attempts %v", attempts)
	}
	all := b.all()
	for i, p := range all {
		if p.body != all[0].body || p.header.Get("webhook-id") != all[0].header.Get("webhook-id") || p.header.Get("X-Service-Attempt") != fmt.Sprint(i+1) || !p.signedWith(secret) {
			t.Errorf("attempt %d: %v %s", i+1, p.header, p.body)
		}
	}
	b.answer(http.StatusOK)
	s.call(http.StatusCreated, "POST", "/v1/webhook-deliveries/"+failed["delivery_id"].(string)+"/redeliver", nil)
	if d := state("delivered"); d["trigger"] != "manual" || d["event_id"] != failed["event_id"] {
		t.Errorf("re-delivery %v", d)
	}
	if all = b.all(); all[len(all)-1].body != all[0].body {
		t.Error("the re-delivery has other bytes")
	}
	if n := s.call(http.StatusOK, "POST", "/v1/webhooks/"+hook+"/recover", map[string]any{"since": "2020-01-01"}).json(t)["deliveries"]; n != 0.0 {
		t.Errorf("%v recovered of what was delivered again", n)
	}

	b.answer(http.StatusGone)
	s.newKey(nil)
	var w map[string]any
	if !eventually(patience, func() bool {
		w = s.call(http.StatusOK, "GET", "/v1/webhooks/"+hook, nil).json(t)
		return w["state"] == "disabled"
	}) {
		t.Fatalf("the endpoint is %v\n%s", w, s.output)
	}
	if w["disabled_reason"] == nil {
		t.Error("no reason")
	}
	b.answer(http.StatusOK)
	s.call(http.StatusConflict, "POST", "/v1/webhooks/"+hook+"/test", nil)
	s.call(http.StatusOK, "PATCH", "/v1/webhooks/"+hook, map[string]any{"state": "active"})
	state("failed")
	if n := s.call(http.StatusOK, "POST", "/v1/webhooks/"+hook+"/recover", map[string]any{"since": "2020-01-01"}).json(t)["deliveries"]; n != 1.0 {
		t.Errorf("%v recovered, want 1", n)
	}
	if d := state("delivered"); d["trigger"] != "recover" {
		t.Errorf("recovered %v", d)
	}
}

// Guarantee: during the overlap of a secret's rotation both sign, each where the
// contract says; after it, or without one, the new one alone.
func TestSecretRotation(t *testing.T) {
	b := newInbox(t)
	s := startServer(t, quickHooks()...)
	hook, old := s.newWebhook(b.URL+"/in", "key.created")
	last := func() *parcel {
		t.Helper()
		id := s.call(http.StatusOK, "POST", "/v1/webhooks/"+hook+"/test", nil).str(t, "delivery_id")
		var arrived *parcel
		if !eventually(patience, func() bool {
			all := b.all()
			at := slices.IndexFunc(all, func(p parcel) bool { return p.header.Get("X-Service-Delivery") == id })
			if at >= 0 {
				arrived = &all[at]
			}
			return at >= 0
		}) {
			t.Fatalf("no test arrived\n%s", s.output)
		}
		return arrived
	}
	if p := last(); !p.signedWith(old) || p.header.Get("X-Service-Signature-Previous") != "" {
		t.Errorf("before: %v", p.header)
	} else if typ, data := p.event(t); typ != "webhook.test" || len(data) != 0 {
		t.Errorf("test %s", p.body)
	}
	fresh := s.call(http.StatusOK, "POST", "/v1/webhooks/"+hook+"/rotate-secret", nil).str(t, "signing_secret")
	p := last()
	if !p.signedWith(fresh) || len(strings.Fields(p.header.Get("webhook-signature"))) != 2 {
		t.Errorf("overlap: %v", p.header)
	}
	p.header.Set("X-Service-Signature", p.header.Get("X-Service-Signature-Previous"))
	if !p.signedWith(old) {
		t.Errorf("the old secret does not sign: %v", p.header)
	}
	s.restart(syscall.SIGTERM) // secrets are kept, sealed
	if p := last(); !p.signedWith(fresh) {
		t.Errorf("after a restart: %v", p.header)
	}
	third := s.call(http.StatusOK, "POST", "/v1/webhooks/"+hook+"/rotate-secret", map[string]any{"overlap_hours": 0}).str(t, "signing_secret")
	if p := last(); !p.signedWith(third) || len(strings.Fields(p.header.Get("webhook-signature"))) != 1 || p.header.Get("X-Service-Signature-Previous") != "" {
		t.Errorf("without overlap: %v", p.header)
	}
	if strings.Contains(s.output.String(), "whsec_") {
		t.Error("a secret is in the log")
	}
}

// Guarantee: a delivery never reaches Keygate's own listeners, nor this machine
// unless its network is allowed; both are told in the log of deliveries.
func TestAddressesOfReceivers(t *testing.T) {
	s := startServer(t, quickHooks()...)
	attempt := func(url string) string {
		t.Helper()
		hook, _ := s.newWebhook(url, "key.created")
		id := s.call(http.StatusOK, "POST", "/v1/webhooks/"+hook+"/test", nil).str(t, "delivery_id")
		var d map[string]any
		if !eventually(patience, func() bool {
			d = s.call(http.StatusOK, "GET", "/v1/webhook-deliveries/"+id, nil).json(t)
			return d["state"] == "failed"
		}) {
			t.Fatalf("%s: %v\n%s", url, d, s.output)
		}
		first := d["attempts"].([]any)[0].(map[string]any)
		if first["status"] != nil || first["error"] == nil {
			t.Errorf("%s: %v", url, first)
		}
		return fmt.Sprint(first["error"])
	}
	for _, own := range []string{s.gateway, s.admin, s.ops, "localhost" + s.admin[strings.LastIndex(s.admin, ":"):]} {
		attempt("http://" + own + "/livez")
	}
	b := newInbox(t)
	strict := startServer(t, "--webhook-allow-http", "--webhook-backoff", "1ms,1ms,1ms,1ms")
	s = strict
	if reason := attempt(b.URL + "/in"); !strings.Contains(reason, "--webhook-allow-network") {
		t.Errorf("the log says %q, not what to change", reason)
	}
	if n := len(b.all()); n != 0 {
		t.Errorf("%d requests arrived", n)
	}
	bare := startServer(t)
	if a, err := bare.try(bare.key, "POST", "/v1/webhooks", map[string]any{"url": b.URL, "events": []string{"key.created"}}); err != nil || a.status != http.StatusUnprocessableEntity ||
		a.str(t, "field") != "url" || !strings.Contains(a.str(t, "message"), "--webhook-allow-network") {
		t.Errorf("%v %d %s", err, a.status, a.body)
	}
}

// Guarantee: the server ends in time though a receiver hangs, and what was on its
// way is delivered after the start.
func TestStopWhileReceiverHangs(t *testing.T) {
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
	s := startServer(t, quickHooks()...)
	s.newWebhook(hanging.URL+"/in", "key.created")
	s.newKey(nil)
	first := <-arrived
	if status := s.end(syscall.SIGTERM); status != 0 {
		t.Errorf("exit status %d\n%s", status, s.output)
	}
	close(release)
	s.start()
	select {
	case again := <-arrived:
		if again != first {
			t.Errorf("another event: %s, first %s", again, first)
		}
	case <-time.After(patience):
		t.Errorf("nothing arrived after the start\n%s", s.output)
	}
}

// Guarantee: however many requests meet a broken upstream, there is at most one
// event a second for the route and status, and the occurrences of all add up to
// the requests, those just before the end of the server included. Of refusals
// every 100th makes an event.
func TestEventsOfAnOutageAddUp(t *testing.T) {
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }))
	defer up.Close()
	s := startServer(t)
	s.newGateway(up.URL, nil)
	_, key := s.newKey(nil)
	_, limited := s.newKey(map[string]any{"rate_limit": "1/h"})
	send := func(n int, key string, want int) {
		t.Helper()
		const callers = 8
		var wg sync.WaitGroup
		for c := range callers {
			wg.Go(func() {
				for range n / callers {
					if a, err := s.through("GET", "/x", key); err != nil || a.status != want {
						t.Errorf("caller %d: %v, status %d, want %d", c, err, a.status, want)
						return
					}
				}
			})
		}
		wg.Wait()
	}
	sum := func() (occurrences float64, times []time.Time) {
		t.Helper()
		for path := "/v1/events?limit=100&type=gateway.upstream_error"; path != ""; {
			page := s.call(http.StatusOK, "GET", path, nil).json(t)
			for _, item := range page["data"].([]any) {
				e := item.(map[string]any)
				occurrences += e["data"].(map[string]any)["occurrences"].(float64)
				at, err := time.Parse(time.RFC3339Nano, e["created_at"].(string))
				if err != nil {
					t.Fatal(err)
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
	const first, second = 4000, 800
	send(first, key, http.StatusInternalServerError)
	if !eventually(patience, func() bool { n, _ := sum(); return n >= first }) {
		n, _ := sum()
		t.Fatalf("%v of %d errors were told\n%s", n, first, s.output)
	}
	send(second, key, http.StatusInternalServerError)
	s.restart(syscall.SIGTERM)
	n, times := sum()
	if n != first+second {
		t.Errorf("the events tell of %v errors, there were %d", n, first+second)
	}
	for i := 1; i < len(times); i++ { // the newest first; the end of a server does not wait
		if gap := times[i-1].Sub(times[i]); i > 1 && gap < time.Second {
			t.Errorf("two events %v apart", gap)
		}
	}

	if a, err := s.through("GET", "/x", limited); err != nil || a.status != http.StatusInternalServerError {
		t.Fatalf("%v %d", err, a.status)
	}
	send(240, limited, http.StatusTooManyRequests)
	var breaches []float64
	eventually(patience, func() bool {
		breaches = nil
		for _, e := range s.list("/v1/events?type=rate_limit.exceeded") {
			breaches = append(breaches, e["data"].(map[string]any)["breaches"].(float64))
		}
		return len(breaches) >= 3
	})
	slices.Sort(breaches) // the callers of two breaches may be told of in any order
	if !slices.Equal(breaches, []float64{1, 101, 201}) {
		t.Errorf("events of the breaches %v", breaches)
	}
}

// Guarantee: a signing secret stands nowhere but in the answer that shows it: not
// in the store, in what is kept for an Idempotency-Key, in the log, in a list, in
// the audit log, or in what a delivery shows.
func TestSigningSecretsStayHidden(t *testing.T) {
	b := newInbox(t)
	b.answer(http.StatusInternalServerError)
	s := startServer(t, append(quickHooks(), "--log-level", "debug")...)
	body := map[string]any{"url": b.URL + "/in", "events": []string{"key.created"}, "signing_secret": "mine: sixteen bytes and more"}
	made := s.call(http.StatusCreated, "POST", "/v1/webhooks", body, "Idempotency-Key: one")
	hook := made.str(t, "webhook_id")
	again := s.call(http.StatusCreated, "POST", "/v1/webhooks", body, "Idempotency-Key: one")
	body["signing_secret"] = "auto"
	auto := s.call(http.StatusCreated, "POST", "/v1/webhooks", body, "Idempotency-Key: two")
	rotated := s.call(http.StatusOK, "POST", "/v1/webhooks/"+hook+"/rotate-secret", nil, "Idempotency-Key: three")
	secrets := []string{"mine: sixteen bytes and more", made.str(t, "standard_webhooks_secret"), auto.str(t, "signing_secret"), rotated.str(t, "signing_secret")}
	for _, secret := range slices.Clone(secrets) {
		if key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_")); err == nil {
			secrets = append(secrets, string(key))
		}
	}
	s.call(http.StatusUnprocessableEntity, "POST", "/v1/webhooks", map[string]any{"url": "nonsense", "events": []string{"key.created"}, "signing_secret": secrets[0]})
	s.newKey(nil)
	if !eventually(patience, func() bool {
		failed := 0
		for _, d := range s.list("/v1/webhook-deliveries") {
			if d["state"] == "failed" {
				failed++
			}
		}
		return failed == 2
	}) {
		t.Fatalf("no failed deliveries\n%s", s.output)
	}
	places := map[string][]byte{"the replay": again.body}
	for _, path := range []string{"/v1/webhooks", "/v1/webhooks/" + hook, "/v1/events", "/v1/webhook-deliveries", "/v1/audit-log", "/v1/settings"} {
		places[path] = s.call(http.StatusOK, "GET", path, nil).body
	}
	for _, d := range s.list("/v1/webhook-deliveries") {
		id := d["delivery_id"].(string)
		places[id] = s.call(http.StatusOK, "GET", "/v1/webhook-deliveries/"+id, nil).body
	}
	if status := s.end(syscall.SIGTERM); status != 0 {
		t.Errorf("exit status %d", status)
	}
	places["the log"] = []byte(s.output.String())
	files, err := os.ReadDir(s.dataDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if places[f.Name()], err = os.ReadFile(filepath.Join(s.dataDir, f.Name())); err != nil {
			t.Fatal(err)
		}
	}
	if len(places["keygate.db"]) == 0 || !bytes.Contains(places["keygate.db"], []byte(hook)) {
		t.Error("the store was not looked at")
	}
	for name, content := range places {
		for _, secret := range secrets {
			if bytes.Contains(content, []byte(secret)) {
				t.Errorf("%s holds the secret %q", name, secret)
			}
		}
	}
}
