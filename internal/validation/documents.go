package validation

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/openapi"
	"github.com/keygate/keygate/internal/validate"
)

// Config configures Documents.
type Config struct {
	// Read returns the content of a revision of a gateway; nil if it did not come from an OpenAPI document. Required.
	Read func(ctx context.Context, gatewayID string, revision int64) ([]byte, error)
	// Mono reads the monotonic clock. Required.
	Mono func() time.Duration
	// Heavy has a slot for each piece of work that may keep a processor busy for long. Required.
	Heavy chan struct{}
	// Log receives failures. Nil discards them.
	Log *slog.Logger
}

// Documents has the documents of gateways. It is safe for concurrent use.
type Documents struct {
	cfg   Config
	mu    sync.Mutex
	known map[documentID]weak.Pointer[Document]
}

// documentID identifies the document of a revision.
type documentID struct {
	gatewayID string
	revision  int64
}

// New returns Documents. The only error is a missing field of cfg.
func New(cfg Config) (*Documents, error) {
	if cfg.Read == nil || cfg.Mono == nil || cfg.Heavy == nil {
		return nil, errors.New("validation: Config.Read, Mono and Heavy are required")
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Documents{cfg: cfg, known: map[documentID]weak.Pointer[Document]{}}, nil
}

// Of returns the document of the gateway's present revision, or nil if none of its operations is checked. As long as anybody has it, it
// is the same one.
func (d *Documents) Of(g *gateway.Gateway) *Document {
	if d == nil || g.Requests.Checks.Operations == 0 {
		return nil
	}
	id := documentID{g.ID, g.Revision}
	d.mu.Lock()
	defer d.mu.Unlock()
	if known := d.known[id].Value(); known != nil {
		return known
	}
	for other, p := range d.known { // few: gateways with a document
		if other.gatewayID == g.ID && p.Value() == nil {
			delete(d.known, other)
		}
	}
	doc := &Document{cfg: &d.cfg, id: id, accountID: g.AccountID, operations: g.Requests.Checks.Operations, loading: make(chan struct{}, 1)}
	d.known[id] = weak.Make(doc)
	return doc
}

// Document is the OpenAPI document of a revision of a gateway. It is read and compiled when it is needed. It is safe for concurrent
// use.
type Document struct {
	cfg        *Config
	id         documentID
	accountID  string
	operations int // that are checked, from the first on

	checks  atomic.Pointer[checks]
	loading chan struct{} // is held by who loads
	failed  struct {      // guarded by loading
		err error
		at  time.Duration
	}
}

// checks are compiled checks.
type checks struct {
	operations map[operation]*validate.Operation // nil for one that is unchecked
	unchecked  []Unchecked
}

// operation is a method on the path of a route.
type operation struct{ method, path string }

// Unchecked is an operation of the document that is not checked.
type Unchecked struct{ Method, Path, Reason string }

// AccountID returns the account of the gateway.
func (d *Document) AccountID() string { return d.accountID }

// GatewayID returns the gateway.
func (d *Document) GatewayID() string { return d.id.gatewayID }

// failureRests is how long a failure to load a document is the result of all calls.
const failureRests = time.Second

// Operation returns the check of the operation that a route answers with the method; nil if it is not checked. The first call
// reads and compiles the document. The error is ctx.Err(), or says that the document cannot be read.
func (d *Document) Operation(ctx context.Context, method, path string) (*validate.Operation, error) {
	c, err := d.load(ctx)
	if err != nil {
		return nil, err
	}
	if o, known := c.operations[operation{method, path}]; known || method != "HEAD" {
		return o, nil
	}
	return c.operations[operation{"GET", path}], nil
}

// Unchecked returns the operations of the document that are not checked, with the reasons.
func (d *Document) Unchecked(ctx context.Context) ([]Unchecked, error) {
	c, err := d.load(ctx)
	if err != nil {
		return nil, err
	}
	return c.unchecked, nil
}

func (d *Document) load(ctx context.Context) (*checks, error) {
	if c := d.checks.Load(); c != nil {
		return c, nil
	}
	select {
	case d.loading <- struct{}{}:
		defer func() { <-d.loading }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if c := d.checks.Load(); c != nil {
		return c, nil
	}
	if d.failed.err != nil && d.cfg.Mono()-d.failed.at < failureRests {
		return nil, d.failed.err
	}
	c, err := d.compile(ctx)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		d.cfg.Log.Error("the OpenAPI document of a gateway cannot be read", "gateway_id", d.id.gatewayID, "revision", d.id.revision, "error", err)
		d.failed.err = &fault.Error{Code: fault.Unavailable, Message: "this node cannot read the document that requests are held against; try again", Err: err}
		d.failed.at = d.cfg.Mono()
		return nil, d.failed.err
	}
	d.failed.err = nil
	d.checks.Store(c)
	return c, nil
}

func (d *Document) compile(ctx context.Context) (*checks, error) {
	select {
	case d.cfg.Heavy <- struct{}{}:
		defer func() { <-d.cfg.Heavy }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	content, err := d.cfg.Read(ctx, d.id.gatewayID, d.id.revision)
	if err != nil {
		return nil, err
	}
	c := &checks{operations: map[operation]*validate.Operation{}}
	if content == nil {
		return c, nil
	}
	doc, err := openapi.Parse(content)
	if err != nil {
		return nil, err
	}
	for i, r := range doc.Compile(d.operations) {
		o := operation{doc.Routes[i].Methods[0], doc.Routes[i].Path}
		if r.Operation == nil {
			c.unchecked = append(c.unchecked, Unchecked{o.method, o.path, r.Reason})
		}
		c.operations[o] = r.Operation
	}
	return c, nil
}
