// Package control implements every management operation (contract, sections 2, 3 and 5).
//
// An operation runs in one transaction, which writes the state, the audit record, the events,
// the entry of the change log and, for a call with an Idempotency-Key, the stored response.
// It returns when the data plane has applied the change.
package control

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"time"

	"github.com/keygate/keygate/internal/addrlist"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/cost"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/ratelimit"
	"github.com/keygate/keygate/internal/snapshot"
	"github.com/keygate/keygate/internal/token"
	"github.com/keygate/keygate/internal/validation"
	"github.com/keygate/keygate/internal/webhook"
)

// Publisher brings the data plane up to date with the store.
type Publisher interface {
	// CatchUp returns when this node's data plane has applied the changes in only or, if only is
	// empty, every change that was committed before the call. It does not wait for other nodes.
	CatchUp(ctx context.Context, only ...snapshot.Change) error
}

// Sealer encrypts the secrets in the store.
type Sealer interface {
	Seal(plain []byte) ([]byte, error)
	Open(sealed []byte) ([]byte, error)
}

// Config configures a Service. All fields are required except Log, WebhookURLs, Wake,
// AuditSync, Everywhere, Sources, Quotas, Targets, Repositories, Issuers, ACME, DefaultGlobalLimit, MaxAccountRoutes, MaxAccountGateways, Bounds and Heavy.
type Config struct {
	Store         Store
	Publisher     Publisher
	Sealer        Sealer
	Now           func() time.Time
	Random        io.Reader // cryptographically secure
	GatewayDomain string    // base domain of default hostnames
	Log           *slog.Logger
	WebhookURLs   webhook.URLRule // for endpoints; the zero value allows only https
	// Wake notifies the webhook sender that there may be new deliveries. It must not block.
	// If it is nil, the sender finds them by polling.
	Wake func()
	// EventsFull reports whether an account must raise no more events, because too many wait for their deliveries to
	// be written. Nil means that it always may.
	EventsFull func(accountID string) bool
	// AuditSync flushes the audit records of both planes to the store. If it is nil, lists
	// contain only what is in the store.
	AuditSync Syncer
	// Everywhere waits for the other nodes. Nil means that this is the only one.
	Everywhere Everywhere
	// Sources report on the data plane.
	Sources Sources
	// Quotas is the engine of quotas. Nil means that this process has no data plane: usage is then what the store has.
	Quotas Quotas
	// Targets is what is known of the targets of upstreams at present. Nil means that nothing is.
	Targets Targets
	// Validation has what requests did otherwise than the documents of their gateways say, and Documents these documents. Nil means
	// that nothing is known.
	Validation ValidationReporter
	Documents  *validation.Documents
	// Repositories syncs the Git repositories that gateways follow. If it is nil, no gateway can be
	// connected to a repository.
	Repositories RepositorySyncer
	// SignIn says who may sign in as a user. Nil means nobody.
	SignIn *SignInPolicy
	// Issuers fetches the keys of issuers. If it is nil, this process fetches none.
	Issuers IssuerFetcher
	// ACME is set if servers of the installation get certificates by ACME. Otherwise no gateway can ask for one.
	ACME bool
	// MaxAccountRoutes is the maximum number of routes of all gateways of an account; 0 means
	// gateway.MaxAccountRoutes.
	MaxAccountRoutes int
	// MaxAccountGateways is the maximum number of gateways of an account; 0 means
	// gateway.MaxAccountGateways.
	MaxAccountGateways int
	// DefaultGlobalLimit is the global limit of gateways that have none of their own, for
	// Effect. Zero means 1,000,000 requests a second, as in snapshot.Config.
	DefaultGlobalLimit ratelimit.Rate
	// Bounds are the bounds of what is counted for each account.
	Bounds AccountBounds
	// Heavy has a slot for each piece of work that may keep a processor busy for long: reading
	// and comparing a large document. The Follower takes the same slots. If it is nil, half of
	// the processors are slots, at least one.
	Heavy chan struct{}
}

// Match is the If-Match condition of a call: it reports whether the record may have this
// version. Nil means no condition.
type Match func(version int64) bool

// Idempotency makes an operation store its response in its own transaction. It is passed in
// the context.
type Idempotency struct {
	KeyID       string
	Key         string
	Fingerprint [32]byte
	// Encode turns the operation's result into the response to store, without secrets.
	Encode func(result any) (status int, header map[string]string, body []byte, err error)
}

type idempotencyKey struct{}

// WithIdempotency returns a context for an operation, which then stores its response.
func WithIdempotency(ctx context.Context, i *Idempotency) context.Context {
	return context.WithValue(ctx, idempotencyKey{}, i)
}

// Optional is a field of a PATCH body: absent, null or a value.
type Optional[T any] = gateway.Member[T]

// LimitPatch is the body of an update of a route's limit. An absent field stays as it is; null
// removes it.
type LimitPatch struct {
	RateLimit Optional[RateLimitPatch] // null removes the whole limit
}

// RoutePatch is the body of an update of a route. An absent field stays as it is.
type RoutePatch struct {
	Path        Optional[string]                // null is not allowed
	Methods     Optional[[]string]              // replaced as a whole; null is not allowed
	Auth        Optional[string]                // null means that of the gateway
	RateLimit   Optional[RateLimitPatch]        // null removes the whole limit
	Concurrency Optional[ratelimit.Concurrency] // replaced as a whole; null removes it
	Handling    HandlingPatch
	Split       Optional[gateway.Split] // replaced as a whole; null means that of the gateway
	Cost        Optional[cost.Rules]    // replaced as a whole; null removes it
	Upstream    Optional[string]        // by name; null means the default one
}

// RateLimitPatch is the field rate_limit of LimitPatch and RoutePatch.
type RateLimitPatch struct {
	Sustained, Burst, Daily, Per Optional[string]
}

// KeyInput is the body of a key's creation. Scope, limit and expiry are as the user wrote them;
// the operation validates them.
type KeyInput struct {
	Name        string
	Scope       string
	ExpiresAt   string
	GatewayID   string
	RateLimit   KeyLimitInput
	Concurrency *int64 // nil for none
	Level       string // "" means gateway
	Owner       string // external ID; an owner that does not exist is created
	Plan        PlanChoice
	Metadata    map[string]string
	Addresses   addrlist.Lists // that may use the key
}

// KeyLimitInput is the rate_limit of a key: a Rate, or an Object. The zero value means no limit.
type KeyLimitInput struct {
	Rate   string
	Object *KeyLimitObject
}

// KeyLimitObject is the second form of a KeyLimitInput. "" is an absent property.
type KeyLimitObject struct {
	Sustained, Burst, Daily string
}

// KeyPatch is the body of a key's update.
type KeyPatch struct {
	Name        Optional[string]
	Owner       Optional[string]
	Plan        PlanChoice
	RateLimit   Optional[KeyLimitInput]
	Concurrency Optional[int64]
	Metadata    Optional[map[string]string]
	ExpiresAt   Optional[string]
	AllowIPs    Optional[[]string] // replaced as a whole; null is as an empty list
	DenyIPs     Optional[[]string]
}

// NewKey is a new key with its string, which is returned only once.
type NewKey struct {
	apikey.Key
	Secret        string
	OverlapEndsAt time.Time // of a rotation
	Warnings      []string  // likely mistakes
}

// Verification reports whether a key would be accepted.
type Verification struct {
	Valid bool
	Code  string // "" or key_invalid, key_expired, token_invalid, token_expired, scope_insufficient, owner_suspended
	Key   *apikey.Key
	State apikey.State
	// Of a token: whom it identifies, and if it was refused why, and by which issuer if that is known.
	Principal *token.Principal
	Refusal   *token.Refusal
}

// RouteChange is one changed route of a push.
type RouteChange struct {
	Path    string
	Methods []string
	RouteID string          // "" for a route that a dry run would add
	Changes []SettingChange // of a route that exists before and after: rate_limit, auth
}

// PushResult is the result of a push, a dry run or a rollback. Revision is 0 if it created no
// revision.
type PushResult struct {
	Revision  int64
	Added     []RouteChange
	Removed   []RouteChange
	Changed   []RouteChange
	Unchanged int
	Warnings  []string
	// Settings are the settings of the gateway that changed, with secrets as ***.
	Settings []SettingChange

	push *pushChange // of a dry run; see Service.Effect
}

// SettingChange is a setting of a gateway or route before and after a push, as the audit log shows it: nil
// if it is not set, *** for a secret, and a digest for certificates.
type SettingChange struct {
	Field         string // without "gateway."
	Before, After any
}

// Service carries out management operations. Each returns errors of package
// fault; a record of another account is fault.NotFound. It is safe for
// concurrent use.
type Service struct {
	cfg    Config
	codec  *audit.Codec // of the blocks of the audit log
	tables *keyedLocks  // by account and gateway: pushes and changes of single routes or settings

	imports *importTable
}

// New returns a Service. It fails if a required field of cfg is missing.
func New(cfg Config) (*Service, error) {
	for _, required := range []struct {
		name  string
		given bool
	}{
		{"Store", cfg.Store != nil}, {"Publisher", cfg.Publisher != nil}, {"Sealer", cfg.Sealer != nil},
		{"Now", cfg.Now != nil}, {"Random", cfg.Random != nil}, {"GatewayDomain", cfg.GatewayDomain != ""},
	} {
		if !required.given {
			return nil, fmt.Errorf("control: Config.%s is required", required.name)
		}
	}
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	if cfg.Wake == nil {
		cfg.Wake = func() {}
	}
	if cfg.DefaultGlobalLimit.IsZero() {
		cfg.DefaultGlobalLimit = ratelimit.Rate{Count: 1_000_000, Per: time.Second}
	}
	if cfg.Heavy == nil {
		cfg.Heavy = make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2))
	}
	codec, err := audit.NewCodec()
	if err != nil {
		return nil, err
	}
	return &Service{cfg: cfg, codec: codec, tables: newKeyedLocks(), imports: newImportTable()}, nil
}

// now returns the time in the form that stores keep: UTC, in whole microseconds.
func (s *Service) now() time.Time { return s.cfg.Now().UTC().Truncate(time.Microsecond) }
