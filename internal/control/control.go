// Package control holds every management operation. An operation runs in one
// transaction that writes the state, the audit record, the events, the entry of
// the change log and, for a call with an Idempotency-Key, the stored answer;
// then it waits until the data plane has the change in force, and returns
// (architecture; contract, sections 2, 3 and 5).
package control

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"time"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/webhook"
)

// Publisher brings the data plane up to date with the store.
type Publisher interface {
	// CatchUp returns once every change committed before the call is in force
	// on this node's data plane.
	CatchUp(ctx context.Context) error
}

// Sealer encrypts what must not be readable in the store.
type Sealer interface {
	Seal(plain []byte) ([]byte, error)
	Open(sealed []byte) ([]byte, error)
}

// Config is what a Service is made of. Every field is required but Log,
// WebhookURLs, Wake, Recall and Sources.
type Config struct {
	Store         Store
	Publisher     Publisher
	Sealer        Sealer
	Now           func() time.Time
	Random        io.Reader // a cryptographic source
	GatewayDomain string    // base domain of the hostnames given to gateways
	Log           *slog.Logger
	WebhookURLs   webhook.URLRule // of endpoints; zero is https alone
	// Wake tells the sender of webhooks that deliveries may wait. It must not
	// block. Nil does nothing: the sender then finds them by itself.
	Wake func()
	// Recall tells the sender of webhooks that an endpoint was changed or deleted,
	// so that nothing more goes out as it stood before. It must not block. Nil does
	// nothing: what a sender took before then goes out.
	Recall func(webhookID string)
	// AuditSync makes what both planes told until now readable in the store. Nil
	// does nothing.
	AuditSync Syncer
	// Sources are where it is known what the data plane does.
	Sources Sources
}

// Caller is who asks for an operation, and how; it goes into the audit record.
type Caller struct {
	Account   *account.Account
	KeyID     string // "" for an offline command
	KeyPrefix string
	Scope     apikey.Scope
	Source    gateway.Source // what a push by this caller is recorded as: API, CLI or Dashboard
	Method    string
	Path      string // without the query
	ClientIP  string
	RequestID string
}

// Match is the If-Match of a call: the versions that the record may have. Nil
// means no condition.
type Match func(version int64) bool

// Idempotency makes an operation store its answer in its own transaction. It
// travels in the context.
type Idempotency struct {
	KeyID       string
	Key         string
	Fingerprint [32]byte
	// Encode turns the operation's result into the answer to keep, without
	// secrets.
	Encode func(result any) (status int, header map[string]string, body []byte, err error)
}

type idempotencyKey struct{}

// WithIdempotency returns a context that makes the operation called with it
// store its answer.
func WithIdempotency(ctx context.Context, i *Idempotency) context.Context {
	return context.WithValue(ctx, idempotencyKey{}, i)
}

// Optional is a member of a PATCH body: absent, null, or a value.
type Optional[T any] struct {
	Present bool
	Null    bool
	Value   T
}

// LimitPatch is the body of a route's limit update: an absent member stays,
// null removes it.
type LimitPatch struct {
	RateLimit Optional[RateLimitPatch] // null removes the whole limit
}

// RateLimitPatch is the member rate_limit of LimitPatch.
type RateLimitPatch struct {
	Sustained, Burst, Daily, Per Optional[string]
}

// KeyInput is the body of a key's creation. Scope, rate and expiry are as the
// user wrote them; the operation validates all.
type KeyInput struct {
	Name      string
	Scope     string
	ExpiresAt string
	GatewayID string
	RateLimit string
	Level     string // "" is gateway
	Owner     string
	Metadata  map[string]string
}

// KeyPatch is the body of a key's update.
type KeyPatch struct {
	Name      Optional[string]
	Owner     Optional[string]
	RateLimit Optional[string]
	Metadata  Optional[map[string]string]
	ExpiresAt Optional[string]
}

// NewKey is a key just made, with its string, which is shown this once.
type NewKey struct {
	apikey.Key
	Secret        string
	OverlapEndsAt time.Time // of a rotation
}

// Verification is the answer to whether a key would be let in.
type Verification struct {
	Valid bool
	Code  string // "" or key_invalid, key_expired, scope_insufficient
	Key   *apikey.Key
	State apikey.State
}

// RouteChange is one line of a push's difference.
type RouteChange struct {
	Path    string
	Methods []string
	RouteID string // "" for a route that a dry run would add
}

// PushResult is the answer to a push, a dry run or a rollback. Revision is 0
// if none was made.
type PushResult struct {
	Revision  int64
	Added     []RouteChange
	Removed   []RouteChange
	Changed   []RouteChange
	Unchanged int
	Warnings  []string
}

// Service carries out management operations. Each returns errors of package
// fault; a record of another account is fault.NotFound. It is safe for
// concurrent use.
type Service struct {
	cfg Config
}

// New returns a service over cfg. It fails if a required field is absent.
func New(cfg Config) (*Service, error) {
	if cfg.Store == nil || cfg.Publisher == nil || cfg.Sealer == nil || cfg.Now == nil || cfg.Random == nil || cfg.GatewayDomain == "" {
		return nil, errors.New("control: Store, Publisher, Sealer, Now, Random and GatewayDomain are required")
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Wake == nil {
		cfg.Wake = func() {}
	}
	if cfg.Recall == nil {
		cfg.Recall = func(string) {}
	}
	return &Service{cfg: cfg}, nil
}

// now returns the time in the form that every store keeps: UTC and whole
// microseconds.
func (s *Service) now() time.Time { return s.cfg.Now().UTC().Truncate(time.Microsecond) }
