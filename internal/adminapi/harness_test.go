package adminapi_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/adminapi"
	auditwriter "github.com/keygate/keygate/internal/audit/writer"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/ratelimit"
	requestwriter "github.com/keygate/keygate/internal/requestlog/writer"
	"github.com/keygate/keygate/internal/secret"
	"github.com/keygate/keygate/internal/snapshot"
	"github.com/keygate/keygate/internal/store/sqlite"
	"github.com/keygate/keygate/internal/store/sqlite/sqlitetest"
	"github.com/keygate/keygate/internal/traffic/meter"
)

// server is a management API on a real store and snapshot.
type server struct {
	bounds  control.AccountBounds // from the next open on
	lease   *lease
	t       testing.TB
	dir     string
	clock   *clock
	db      *sqlite.DB
	control *control.Service
	api     adminapi.Config
	handler *adminapi.API
	http    *httptest.Server
	admin   string // key of the account default
	events  *events
	shard   *accesslog.Shard          // takes the access records of the data plane
	search  func(ctx context.Context) // called in each search of the store, if it is not nil
	levels  func()                    // called when levels of limits are read, if it is not nil
	logs    syncers                   // Sync returns when the records are in the store
	close   func()
	repos   *syncer
	targets *knownTargets // nil for none; read by open
	signIns *signIns      // nil for no identity provider; read by open
}

// readLevels calls the server's levels when levels of limits are read.
type readLevels struct {
	control.LevelSource
	s *server
}

// Levels implements control.LevelSource.
func (l readLevels) Levels(ctx context.Context, gatewayID string, f func(ratelimit.Level)) {
	if l.s.levels != nil {
		l.s.levels()
	}
	l.LevelSource.Levels(ctx, gatewayID, f)
}

// searchedStore calls the server's search in each search.
type searchedStore struct {
	control.Store
	s *server
}

func (w searchedStore) Search(ctx context.Context, f func(control.ReadTx) error) error {
	if w.s.search != nil {
		w.s.search(ctx)
	}
	return w.Store.Search(ctx, f)
}

// clock is a clock that moves only when a test moves it. The rate limits of keys use it too, so
// that a test can exhaust a limit.
type clock struct {
	mu         sync.Mutex
	epoch, now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) move(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func (c *clock) instant() ratelimit.Instant {
	now := c.Now()
	return ratelimit.Instant{Mono: int64(now.Sub(c.epoch)), Wall: now.UnixNano()}
}

func start(t testing.TB) *server {
	t.Helper()
	noon := time.Date(2027, 3, 1, 12, 0, 0, 0, time.UTC)
	s := &server{t: t, dir: filepath.Dir(sqlitetest.Path(t)), lease: &lease{}, clock: &clock{epoch: noon, now: noon}}
	s.open()
	t.Cleanup(func() { s.close() })
	return s
}

// open builds everything over the database in s.dir.
func (s *server) open() {
	s.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	db := must(sqlite.Open(ctx, sqlite.Config{Path: filepath.Join(s.dir, "keygate.db"), Now: s.clock.Now}))(s.t)
	s.db = db
	box := must(secret.New(bytes.Repeat([]byte{7}, 32)))(s.t)
	reserver := must(ratelimit.NewReserver(ratelimit.ReserverConfig{Store: db, Now: s.clock.Now}))(s.t)
	live := must(snapshot.New(snapshot.Config{
		Source: db, Reserver: reserver, OpenSealed: box.Open, GatewayDomain: "localhost", Now: s.clock.instant,
	}))(s.t)
	if err := live.Load(ctx); err != nil {
		s.t.Fatal(err)
	}
	cfg := control.Config{Store: searchedStore{db, s}, Publisher: live, Sealer: box, Now: s.clock.Now, Random: rand.Reader, GatewayDomain: "localhost", Bounds: s.bounds, ACME: true}
	s.repos = &syncer{}
	cfg.Repositories = s.repos
	if s.signIns != nil {
		cfg.SignIn = s.signIns.policy
	}
	if s.targets != nil {
		cfg.Targets = s.targets
	}
	if first := must(must(control.New(cfg))(s.t).FirstStart(ctx, ""))(s.t); first != "" {
		s.admin = first
	}
	s.follow(&cfg, db, live)
	s.control = must(control.New(cfg))(s.t)
	s.api = adminapi.Config{
		Recorder: s.events, Control: s.control, Authenticate: adminapi.BySnapshot(live, s.lease), Now: s.clock.Now, Clock: s.clock.instant,
		Version: "v1.2.3",
		Settings: func() []adminapi.Setting {
			return []adminapi.Setting{{Name: "gateway-addr", Value: "127.0.0.1:8080", Source: "default"}}
		},
	}
	if s.signIns != nil {
		s.api.SSO = s.signIns.provider(s, box)
	}
	s.handler = must(adminapi.New(s.api))(s.t)
	s.http = httptest.NewServer(s.handler)
	s.close = func() {
		s.http.Close()
		cancel()
		if err := db.Close(); err != nil {
			s.t.Error(err)
		}
	}
}

// follow creates the sinks of access records and audit records.
func (s *server) follow(cfg *control.Config, db *sqlite.DB, live *snapshot.Follower) {
	s.t.Helper()
	auditLog := must(auditwriter.New(auditwriter.Config{Store: db, Keeper: db, OperatorID: s.operator(), Now: s.clock.Now}))(s.t)
	counts := must(meter.New(meter.Config{Store: db, Now: s.clock.Now}))(s.t)
	requests := must(requestwriter.New(requestwriter.Config{Store: db, Now: s.clock.Now}))(s.t)
	collector := must(accesslog.NewCollector(accesslog.Config{Sinks: []accesslog.Sink{auditLog, counts, requests}}))(s.t)
	s.shard, s.events = collector.Shard(), &events{next: auditLog}
	s.logs = syncers{collector, auditLog}
	cfg.AuditSync = s.logs
	cfg.Sources = control.Sources{AccessLog: collector, Traffic: counts, Usage: db, Requests: requests, Levels: readLevels{live, s}, Routes: live}
}

// syncers calls Sync of several, one after the other.
type syncers []control.Syncer

func (all syncers) Sync(ctx context.Context) error {
	for _, one := range all {
		if err := one.Sync(ctx); err != nil {
			return err
		}
	}
	return nil
}

// operator returns the identifier of the account default.
func (s *server) operator() (accountID string) {
	s.t.Helper()
	if err := s.db.View(context.Background(), func(tx control.ReadTx) error {
		a, err := tx.AccountByName(context.Background(), account.Default)
		if err == nil {
			accountID = a.ID
		}
		return err
	}); err != nil {
		s.t.Fatal(err)
	}
	return accountID
}

// in returns s for a subtest t, which then reports the failures.
func (s *server) in(t *testing.T) *server {
	sub := *s
	sub.t = t
	return &sub
}

// restart closes everything and opens it again on the same database.
func (s *server) restart() {
	s.t.Helper()
	s.close()
	s.open()
}

// newAccount creates another account and returns its admin key.
func (s *server) newAccount(name string) string {
	s.t.Helper()
	_, key, err := s.control.CreateAccount(context.Background(), name, account.Starter, []string{"*.example.net"})
	if err != nil {
		s.t.Fatal(err)
	}
	return key.Secret
}

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// response is a response with its whole body.
type response struct {
	t      testing.TB
	what   string
	status int
	header http.Header
	raw    string
	json   map[string]any
}

// request is a request to send. A body that is a string is sent as it is, any other
// as JSON.
type request struct {
	method, path string
	key          string // "" for the admin key, "-" for none
	body         any
	header       map[string]string
}

func (s *server) do(q request) *response {
	s.t.Helper()
	var body io.Reader
	header := http.Header{}
	switch b := q.body.(type) {
	case nil:
	case string:
		body = strings.NewReader(b)
	default:
		content, err := json.Marshal(b)
		if err != nil {
			s.t.Fatal(err)
		}
		body = bytes.NewReader(content)
	}
	if body != nil {
		header.Set("Content-Type", "application/json")
	}
	switch q.key {
	case "":
		header.Set("Authorization", "Bearer "+s.admin)
	case "-":
	default:
		header.Set("Authorization", "Bearer "+q.key)
	}
	for name, value := range q.header {
		header.Set(name, value)
		if value == "" {
			header.Del(name)
		}
	}
	req, err := http.NewRequest(q.method, s.http.URL+q.path, body)
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header = header
	res, err := s.http.Client().Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	content, err := io.ReadAll(res.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	r := &response{t: s.t, what: q.method + " " + q.path, status: res.StatusCode, header: res.Header, raw: string(content)}
	if res.Header.Get("Content-Type") == "application/json" && len(content) > 0 {
		if err := json.Unmarshal(content, &r.json); err != nil {
			s.t.Fatalf("%s: the response is not valid JSON: %v\n%s", r.what, err, content)
		}
	}
	return r
}

func (s *server) get(path string) *response {
	s.t.Helper()
	return s.do(request{method: "GET", path: path})
}

func (s *server) post(path string, body any) *response {
	s.t.Helper()
	return s.do(request{method: "POST", path: path, body: body})
}

// want fails the test unless the response has this status.
func (r *response) want(status int) *response {
	r.t.Helper()
	if r.status != status {
		r.t.Fatalf("%s: got status %d, want %d\n%s", r.what, r.status, status, r.raw)
	}
	return r
}

// refused fails the test unless the response is this error, in the form of the
// contract (section 2).
func (r *response) refused(status int, code, field string) *response {
	r.t.Helper()
	r.want(status)
	if r.header.Get("Content-Type") != "application/json" {
		r.t.Errorf("%s: got an error with Content-Type %q, want application/json", r.what, r.header.Get("Content-Type"))
	}
	if r.json["error"] != code {
		r.t.Errorf("%s: got error %v, want %s\n%s", r.what, r.json["error"], code, r.raw)
	}
	if got, _ := r.json["field"].(string); got != field {
		r.t.Errorf("%s: got field %q, want %q\n%s", r.what, got, field, r.raw)
	}
	if m, _ := r.json["message"].(string); m == "" {
		r.t.Errorf("%s: the error has no message\n%s", r.what, r.raw)
	}
	if list, listed := r.json["errors"].([]any); status == 422 && !listed || listed && status != 422 && status != 409 || listed && !reflect.DeepEqual(list[0].(map[string]any)["message"], r.json["message"]) {
		r.t.Errorf("%s: want errors with a 422, and with a 409 of several items, and the message in the first\n%s", r.what, r.raw)
	}
	if r.json["request_id"] != r.header.Get("X-Request-Id") || !strings.HasPrefix(r.header.Get("X-Request-Id"), "req_") {
		r.t.Errorf("%s: got request_id %v and X-Request-Id %q, want the same identifier", r.what, r.json["request_id"], r.header.Get("X-Request-Id"))
	}
	return r
}

// text returns a field of the response that must be a string.
func (r *response) text(name string) string {
	r.t.Helper()
	v, isText := r.json[name].(string)
	if !isText {
		r.t.Fatalf("%s: got %s = %v, want a string\n%s", r.what, name, r.json[name], r.raw)
	}
	return v
}

// data returns the records of a list.
func (r *response) data() []map[string]any {
	r.t.Helper()
	var out []map[string]any
	items, isList := r.json["data"].([]any)
	if !isList {
		r.t.Fatalf("%s: data is not an array\n%s", r.what, r.raw)
	}
	for _, item := range items {
		out = append(out, item.(map[string]any))
	}
	return out
}

// newGateway creates a gateway and returns its identifier.
func (s *server) newGateway(key string) string {
	s.t.Helper()
	return s.do(request{method: "POST", path: "/v1/gateways", key: key, body: map[string]any{
		"name": "orders", "upstream_url": "http://127.0.0.1:9", "allow_duplicate": true,
	}}).want(201).text("gateway_id")
}

// newRoute adds a route to a gateway and returns its identifier.
func (s *server) newRoute(key, gatewayID, path string) string {
	s.t.Helper()
	return s.do(request{method: "POST", path: "/v1/gateways/" + gatewayID + "/routes", key: key, body: map[string]any{
		"path": path, "methods": []string{"GET"},
	}}).want(201).text("route_id")
}

// newKey creates a key with the given additional fields.
func (s *server) newKey(fields map[string]any) *response {
	s.t.Helper()
	body := map[string]any{"name": "test", "scope": "read"}
	for k, v := range fields {
		body[k] = v
	}
	return s.post("/v1/keys", body).want(201)
}

// accountKey creates an account-level key with a scope and returns the full key.
func (s *server) accountKey(scope string) string {
	s.t.Helper()
	return s.newKey(map[string]any{"level": "account", "scope": scope}).text("key")
}

const petSpec = `openapi: 3.0.3
info: {title: pets, version: "1"}
paths:
  /pets:
    get: {responses: {"200": {description: ok}}}
  /pets/{id}:
    get: {responses: {"200": {description: ok}}}
`

// putSpec pushes an OpenAPI document.
func (s *server) putSpec(gatewayID, content string, query ...string) *response {
	s.t.Helper()
	return s.do(request{
		method: "PUT", path: "/v1/gateways/" + gatewayID + "/spec" + strings.Join(query, ""), body: content,
		header: map[string]string{"Content-Type": "application/yaml"},
	})
}
