package adminapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"runtime/debug"
	"strconv"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/ratelimit"
)

// Config is what an API is made of.
type Config struct {
	// Control carries the calls out. Required.
	Control *control.Service
	// Authenticate finds who holds a key string; see BySnapshot. Required.
	Authenticate func(secret string, now time.Time) (Principal, bool)
	// Now is the wall clock. Nil is time.Now.
	Now func() time.Time
	// Clock reads the clocks of the keys' own limits. Nil is ratelimit.NewClock().Now.
	Clock func() ratelimit.Instant
	// ClientIP tells whose address is noted in audit records, of the peer's and
	// those in its X-Forwarded-For fields. Nil takes the peer's.
	ClientIP func(peer netip.Addr, forwardedFor []string) netip.Addr
	// Settings tells the settings of the installation, without secrets. Nil
	// tells none.
	Settings func() []Setting
	// Recorder keeps the authentication events. Nil keeps none.
	Recorder Recorder
	// Log receives what answers 500 and 503 do not tell. Nil discards.
	Log *slog.Logger
}

// API is the handler of the management API. It is safe for concurrent use.
type API struct {
	cfg     Config
	paths   []path
	bodies  map[string]*huma.Schema // of JSON bodies, by operation
	schemas huma.Registry
	limits  *callLimits
	running *inFlight

	documentJSON []byte
	documentYAML func() ([]byte, error) // made when it is first asked for
}

// New returns the handler over cfg.
func New(cfg Config) (*API, error) {
	if cfg.Control == nil || cfg.Authenticate == nil {
		return nil, errors.New("adminapi: Control and Authenticate are required")
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Clock == nil {
		cfg.Clock = ratelimit.NewClock().Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	a := &API{cfg: cfg, limits: newCallLimits(), running: newInFlight()}
	ops := a.operations()
	doc, bodies := describe(ops)
	a.paths, a.bodies, a.schemas = groupByPath(ops), bodies, doc.Components.Schemas
	var err error
	if a.documentJSON, err = json.Marshal(doc); err != nil {
		return nil, fmt.Errorf("write the API document: %w", err)
	}
	a.documentYAML = sync.OnceValues(func() ([]byte, error) { return YAML(doc) })
	return a, nil
}

// call is one request on its way.
type call struct {
	api       *API
	ctx       context.Context
	request   *http.Request
	header    http.Header // of the answer
	requestID string
	now       time.Time
	caller    control.Caller
	principal Principal
	presented presentedKey

	op     *operation
	params map[string]string // from the path
	query  url.Values
	body   []byte
	match  control.Match
	idem   *control.Idempotency // nil unless the answer is to be kept
}

// ServeHTTP answers one request. Whatever happens, the answer is JSON with a
// request_id, or what the call is documented to give.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := &call{
		api: a, ctx: r.Context(), request: r, header: w.Header(), requestID: id.New(id.Request),
		now: a.cfg.Now().UTC().Truncate(time.Microsecond),
	}
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
		c.header.Set(name, value)
	}
	content := res.raw
	if content == nil {
		c.header.Set("Content-Type", jsonType)
		if content, err = encode(res.body); err != nil {
			a.fail(w, c, err)
			return
		}
	}
	a.write(w, res.status, content)
}

// serve runs the checks and the call. A panic becomes an error.
func (c *call) serve() (res response, err error) {
	defer func() {
		switch p := recover(); p {
		case nil:
		case http.ErrAbortHandler:
			panic(p)
		default:
			c.api.cfg.Log.Error("panic in a management call", "request_id", c.requestID, "method", c.request.Method,
				"path", c.request.URL.EscapedPath(), "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			res, err = response{}, fault.New(fault.Internal, "an internal error happened; the server's log has it under this request_id")
		}
	}()
	release := func() {}
	defer func() { release() }()
	for _, check := range []func() error{c.find, c.admit, c.readBody, c.readSyntax, c.checkQuery} {
		if err := check(); err != nil {
			return response{}, err
		}
	}
	kept, release, err := c.replay()
	if err != nil || kept != nil {
		return value(kept), err
	}
	return c.op.run(c)
}

// admit is checks 401 to 403. A path that needs no key passes at once.
func (c *call) admit() error {
	if c.op != nil && c.op.public {
		return nil
	}
	if err := c.authenticate(); err != nil {
		return err
	}
	if err := c.charge(); err != nil {
		return err
	}
	return c.authorise()
}

// fail answers with an error. Only the log learns the cause of a 500 or 503.
func (a *API) fail(w http.ResponseWriter, c *call, err error) {
	if code := fault.CodeOf(err); code == fault.Internal || code == fault.Unavailable {
		level := slog.LevelError
		if errors.Is(err, context.Canceled) {
			level = slog.LevelDebug // the client left
		}
		a.cfg.Log.Log(c.ctx, level, "management call failed", "request_id", c.requestID, "method", c.request.Method,
			"path", c.request.URL.EscapedPath(), "error", err.Error())
	}
	status, content := fault.Response(err, c.requestID)
	if status == http.StatusUnauthorized {
		c.header.Set("WWW-Authenticate", "Bearer")
	}
	c.header.Set("Content-Type", jsonType)
	a.write(w, status, append(content, '\n'))
}

func (a *API) write(w http.ResponseWriter, status int, content []byte) {
	w.Header().Set("Content-Length", strconv.Itoa(len(content)))
	w.WriteHeader(status)
	// A client that left cannot be told.
	_, _ = w.Write(content)
}

func encode(body any) ([]byte, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(body); err != nil {
		return nil, fmt.Errorf("write the answer: %w", err)
	}
	return out.Bytes(), nil
}

// setCaller fills what the audit record tells of the call.
func (c *call) setCaller() {
	c.caller = control.Caller{
		Account: c.principal.Account, KeyID: c.principal.KeyID, KeyPrefix: c.principal.KeyPrefix, Scope: c.principal.Scope,
		Source: gateway.API, Method: c.request.Method, Path: c.request.URL.EscapedPath(),
		ClientIP: c.api.clientIP(c.request), RequestID: c.requestID,
	}
	switch c.request.Header.Get("X-Keygate-Source") {
	case "cli":
		c.caller.Source = gateway.CLI
	case "dashboard":
		c.caller.Source = gateway.Dashboard
	}
}

// clientIP returns the address that stands for the caller.
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
