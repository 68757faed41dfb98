package adminapi

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/ratelimit"
	"github.com/keygate/keygate/internal/sso"
)

// Config configures an API.
type Config struct {
	// Control runs the management operations. Required.
	Control *control.Service
	// Authenticate returns the principal of the account-level key with the given
	// digest; see BySnapshot. Required.
	Authenticate func(digest apikey.Digest, now time.Time) (Principal, bool)
	// Now returns the wall clock time. Nil means time.Now.
	Now func() time.Time
	// Clock returns the time for the rate limits of the calling keys. Nil means
	// ratelimit.NewClock().Now.
	Clock func() ratelimit.Instant
	// ClientIP returns the client address for audit records, given the address
	// of the peer and the values of X-Forwarded-For. Nil means the peer.
	ClientIP func(peer netip.Addr, forwardedFor []string) netip.Addr
	// Trusted reports whether the address of a peer belongs to a trusted proxy. Nil means that none
	// is.
	Trusted func(peer netip.Addr) bool
	// BasePath is the path below which browsers reach the API, and the Path of the cookie of
	// sessions without TLS. "" means /.
	BasePath string
	// Version is the version of the server, for GET /v1/settings.
	Version string
	// Settings returns the settings of the installation, without secrets. Nil
	// means none.
	Settings func() []Setting
	// SSO signs users in. Nil means that nobody signs in but with a key.
	SSO *sso.Provider
	// Recorder receives an audit record of each authentication. Nil means that
	// none are recorded.
	Recorder Recorder
	// Dial returns a connection over which this node's data plane serves HTTP/1.1, as if the client with the given
	// address had connected. Nil means that this process has no data plane.
	Dial func(ctx context.Context, client netip.Addr) (net.Conn, error)
	// Reach tries to connect to the upstream of a gateway, and returns why that fails, without addresses, or "". Nil means
	// that this process has no data plane.
	Reach func(ctx context.Context, gatewayID string) string
	// Stall is how long a client may take to read a piece of a stream, of about 128 KB,
	// before the response is broken off. 0 means DefaultStall.
	Stall time.Duration
	// Log receives the causes of responses with status 500 and 503. Nil means
	// that they are discarded.
	Log *slog.Logger
}

// API is the handler of the management API. It is safe for concurrent use.
type API struct {
	cfg     Config
	paths   []path
	bodies  map[string]*huma.Schema // schemas of JSON bodies, by operation ID
	schemas huma.Registry
	limits  *callLimits
	bounds  *bounds
	running *inFlight
	hooks   *hookBounds
	exports *exports
	signIns *attempts[netip.Prefix]
	codes   *attempts[string] // user codes that a user has typed wrong
	tails   *tailSlots
	// stopping ends when the server shuts down.
	stopping context.Context
	stop     context.CancelFunc

	noSecret string // random; hooks of gateways that do not exist are verified with it, and fail

	documentJSON, documentYAML func() ([]byte, error) // each encodes the document on the first call
}

// New returns an API. It fails if a required field of cfg is missing.
func New(cfg Config) (*API, error) {
	switch {
	case cfg.Control == nil:
		return nil, errors.New("adminapi: Config.Control is required")
	case cfg.Authenticate == nil:
		return nil, errors.New("adminapi: Config.Authenticate is required")
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Clock == nil {
		cfg.Clock = ratelimit.NewClock().Now
	}
	cfg.Stall = cmp.Or(cfg.Stall, DefaultStall)
	cfg.BasePath = cmp.Or(cfg.BasePath, "/")
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	a := &API{cfg: cfg, limits: newCallLimits(cfg.Clock), bounds: newBounds(), running: newInFlight(), exports: newExports(cfg.Now), hooks: newHookBounds(cfg.Clock), signIns: newAttempts[netip.Prefix](), codes: newAttempts[string](), tails: newTailSlots()}
	a.noSecret = rand.Text()
	a.stopping, a.stop = context.WithCancel(context.Background())
	ops := a.operations()
	doc, bodies := describe(ops)
	a.paths, a.bodies, a.schemas = groupByPath(ops), bodies, doc.Components.Schemas
	a.documentJSON = sync.OnceValues(func() ([]byte, error) { return json.Marshal(doc) })
	a.documentYAML = sync.OnceValues(func() ([]byte, error) { return YAML(doc) })
	return a, nil
}

// call holds the state of one request.
type call struct {
	api       *API
	ctx       context.Context
	request   *http.Request
	conn      *http.ResponseController
	header    http.Header // of the response
	requestID string
	now       time.Time
	actor     control.Actor
	principal Principal
	presented presentedKey
	// unconfirmed is set if the node does not hold its lease.
	unconfirmed bool
	keyDigest   apikey.Digest
	session     string // value of the cookie that the call was made with, in place of a key
	tokenDigest apikey.Digest
	// sessionEnds is when that session ends, or the token that the call was made with.
	sessionEnds time.Time

	op      *operation        // nil if the request matches no operation
	params  map[string]string // path parameters, by name
	query   url.Values
	body    []byte
	hook    *control.PushHook // of a push hook that was verified
	match   control.Match
	receipt *control.Receipt // of a mutation
	// completeness says how complete a list or report of records is.
	completeness control.Completeness
	idem         *control.Idempotency // nil unless the response is stored for replays
	held         held

	form    bool           // the body was a form, of which c.body is the object
	invalid error          // what is wrong with the request, which then changes nothing; see refuse
	order   map[string]int // position of each field of the JSON body
}

// ServeHTTP serves one request. The response is the documented response of the
// call, or else a JSON error with a request_id, also after a panic.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := &call{
		api: a, ctx: r.Context(), request: r, conn: http.NewResponseController(w), header: w.Header(), requestID: id.New(id.Request),
		now: a.cfg.Now().UTC().Truncate(time.Microsecond),
	}
	defer c.letGo()
	c.header.Set("X-Request-Id", c.requestID)
	c.header.Set("Cache-Control", "no-store")
	c.header.Set("X-Content-Type-Options", "nosniff")
	res, err := c.serve()
	c.record(err)
	if err != nil {
		a.fail(w, c, err)
		return
	}
	for name, value := range res.header {
		if name == "Location" && strings.HasPrefix(value, "/") {
			value = strings.TrimSuffix(a.cfg.BasePath, "/") + value
		}
		c.header.Set(name, value)
	}
	if res.stream != nil {
		a.stream(w, c, res)
		return
	}
	if c.notModified(&res) {
		c.header.Del("Content-Type")
		w.WriteHeader(http.StatusNotModified)
		return
	}
	content := res.raw
	if content == nil {
		c.header.Set("Content-Type", jsonType)
		if content, err = encode(res.body); err != nil {
			a.fail(w, c, err)
			return
		}
	}
	c.keepPace(len(content))
	a.write(w, res.status, content)
}

// serve runs the checks and then the operation. It returns a panic as an error.
func (c *call) serve() (res response, err error) {
	defer func() {
		switch p := recover(); p {
		case nil:
		case http.ErrAbortHandler:
			panic(p)
		default:
			c.api.cfg.Log.Error("management call panicked", "request_id", c.requestID, "method", c.request.Method,
				"path", c.request.URL.EscapedPath(), "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			res, err = response{}, fault.New(fault.Internal, "an internal error occurred: look for this request_id in the server's log")
		}
	}()
	release := func() {}
	defer func() { release() }()
	for _, check := range []func() error{c.find, c.admit, c.takeCallSlot, c.readBody, c.readSyntax, c.checkQuery} {
		if err := check(); err != nil {
			return response{}, err
		}
	}
	c.expectChange()
	if c.invalid == nil {
		var stored *response
		stored, release, err = c.replay()
		if err == nil && stored != nil {
			err = c.api.cfg.Control.Confirm(c.ctx, c.actor.Account.ID)
		}
		if err != nil {
			return response{}, err
		}
		if stored != nil {
			c.reportChange()
			return *stored, nil
		}
	}
	res, err = c.op.run(c)
	if c.invalid != nil || fault.CodeOf(err) == fault.ValidationFailed {
		return response{}, c.allInvalid(err)
	}
	c.setRefusal(err)
	if err == nil {
		c.reportChange()
	}
	return res, err
}

// admit performs the 401, 404 (path), 405, 429 and 403 checks, and the checks of a hook. It passes
// a call that needs no key.
func (c *call) admit() error {
	if c.op != nil && c.op.hook {
		return c.admitHook()
	}
	if c.op != nil && c.op.public {
		return nil
	}
	if err := c.authenticate(); err != nil {
		return err
	}
	if err := c.charge(); err != nil {
		return err
	}
	if c.session != "" && c.request.Method != http.MethodGet && c.request.Method != http.MethodHead {
		if err := c.checkOrigin(false); err != nil {
			return err
		}
	}
	return c.authorize()
}

// fail writes an error response. The cause of a 500 or 503 appears only in the
// log. If an error quotes a key that the caller sent in the wrong place, the key appears in
// neither.
func (a *API) fail(w http.ResponseWriter, c *call, err error) {
	if code := fault.CodeOf(err); code == fault.Internal || code == fault.Unavailable {
		level := slog.LevelError
		if errors.Is(err, context.Canceled) {
			level = slog.LevelDebug // the client hung up
		}
		a.cfg.Log.Log(c.ctx, level, "management call failed", "request_id", c.requestID, "method", c.request.Method,
			"path", apikey.Redact(c.request.URL.EscapedPath()), "error", err.Error())
	}
	status, content := fault.Response(err, c.requestID)
	content = []byte(apikey.Redact(string(content)))
	if c.op != nil && c.op.page && c.wantsPage() {
		a.failPage(w, c, status, content)
		return
	}
	if status == http.StatusUnauthorized {
		c.header.Set("WWW-Authenticate", "Bearer")
	}
	c.header.Set("Content-Type", jsonType)
	a.write(w, status, content)
}

func (a *API) write(w http.ResponseWriter, status int, content []byte) {
	w.Header().Set("Content-Length", strconv.Itoa(len(content)))
	w.WriteHeader(status)
	_, _ = w.Write(content) // fails only if the client has hung up
}

func encode(body any) ([]byte, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(body); err != nil {
		return nil, fmt.Errorf("encode the response: %w", err)
	}
	return out.Bytes(), nil
}

// setActor sets c.actor to the key or user of the call.
func (c *call) setActor() {
	c.actor = control.Actor{
		Kind: control.KeyActor, User: c.principal.User, Lately: c.principal.Lately, AuthTime: c.principal.AuthTime, TokenID: c.principal.TokenID, Account: c.principal.Account, KeyID: c.principal.KeyID, KeyPrefix: c.principal.KeyPrefix, Scope: c.principal.Scope,
		Source: gateway.API, Method: c.request.Method, Path: c.request.URL.EscapedPath(),
		ClientIP: c.api.clientIP(c.request), RequestID: c.requestID,
	}
	if c.actor.User != nil {
		c.actor.Kind = control.UserActor
	}
	switch c.request.Header.Get("X-Keygate-Source") {
	case "cli":
		c.actor.Source = gateway.CLI
	case "dashboard":
		c.actor.Source = gateway.Dashboard
	}
}

// clientIP returns the client's address, or RemoteAddr unchanged if RemoteAddr is not an address
// with a port.
func (a *API) clientIP(r *http.Request) string {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	addr := peer.Addr().Unmap().WithZone("")
	if a.cfg.ClientIP != nil {
		addr = a.cfg.ClientIP(addr, r.Header.Values("X-Forwarded-For"))
	}
	return addr.String()
}
