package control

import (
	"context"
	"time"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/event"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/ratelimit"
	"github.com/keygate/keygate/internal/snapshot"
	"github.com/keygate/keygate/internal/webhook"
)

// Store keeps everything that survives a restart. Both engines implement it
// and pass store/storetest.
//
// Every method that looks a record up by an identifier returns an error with
// the code fault.NotFound if there is none, or if it belongs to another account
// than the one asked for. A store that is locked by another process, read-only,
// full or newer than the binary gives fault.Unavailable.
type Store interface {
	// Update runs f in one serializable transaction and commits if f returns
	// nil; otherwise nothing of it remains. What is acknowledged survives a
	// power loss.
	Update(ctx context.Context, f func(tx Tx) error) error
	// View runs f over one consistent state.
	View(ctx context.Context, f func(tx ReadTx) error) error
}

// ReadTx reads one consistent state of the store.
type ReadTx interface {
	AccountReader
	GatewayReader
	KeyReader
	WebhookReader
	EventReader
	DeliveryReader
	LedgerReader
}

// Tx reads and changes the store in one transaction.
type Tx interface {
	ReadTx
	AccountWriter
	GatewayWriter
	KeyWriter
	WebhookWriter
	EventWriter
	DeliveryWriter
	LedgerWriter
}

// Page asks for up to Limit records, newest first, that stand after the record
// After in that order; "" asks for the first page.
type Page struct {
	Limit int
	After string
}

// AccountReader finds accounts.
type AccountReader interface {
	Account(ctx context.Context, accountID string) (*account.Account, error)
	AccountByName(ctx context.Context, name string) (*account.Account, error)
}

// AccountWriter makes accounts. A name that is taken is fault.Conflict.
type AccountWriter interface {
	InsertAccount(ctx context.Context, a *account.Account) error
}

// GatewayReader finds gateways, routes and revisions.
type GatewayReader interface {
	Gateway(ctx context.Context, accountID, gatewayID string) (*gateway.Gateway, error)
	Gateways(ctx context.Context, accountID string, p Page) ([]gateway.Gateway, error)
	Route(ctx context.Context, gatewayID, routeID string) (*gateway.Route, error)
	Routes(ctx context.Context, gatewayID string, p Page) ([]gateway.Route, error)
	// RouteTable returns all routes of a gateway, oldest first.
	RouteTable(ctx context.Context, gatewayID string) ([]gateway.Route, error)
	// Revision returns one revision with its Content and Routes.
	Revision(ctx context.Context, gatewayID string, number int64) (*gateway.Revision, error)
	// Revisions lists without Content and Routes; before is the number after
	// which the page begins, 0 for the first page.
	Revisions(ctx context.Context, gatewayID string, limit int, before int64) ([]gateway.Revision, error)
}

// GatewayWriter changes gateways, routes and revisions. A hostname that is
// taken, by any account, is fault.Conflict with the field "hostname". Updates
// and deletions of a record that is gone are fault.NotFound. The caller sets
// Version.
type GatewayWriter interface {
	InsertGateway(ctx context.Context, g *gateway.Gateway) error
	UpdateGateway(ctx context.Context, g *gateway.Gateway) error
	// DeleteGateway removes the gateway, its routes and its revisions.
	DeleteGateway(ctx context.Context, accountID, gatewayID string) error
	InsertRoutes(ctx context.Context, routes []gateway.Route) error
	UpdateRoutes(ctx context.Context, routes []gateway.Route) error
	DeleteRoutes(ctx context.Context, gatewayID string, routeIDs []string) error
	InsertRevision(ctx context.Context, r *gateway.Revision) error
}

// KeyFilter narrows a list of keys. Zero members do not filter.
type KeyFilter struct {
	State     apikey.State
	GatewayID string
	Level     apikey.Level
	Owner     string
	Query     string    // part of the name, case ignored for ASCII, or the beginning of the prefix
	Now       time.Time // decides between active and expired
}

// KeyReader finds keys.
type KeyReader interface {
	Key(ctx context.Context, accountID, keyID string) (*apikey.Key, error)
	KeyByDigest(ctx context.Context, d apikey.Digest) (*apikey.Key, error)
	Keys(ctx context.Context, accountID string, f KeyFilter, p Page) ([]apikey.Key, error)
	// KeysOfGateway returns the keys restricted to the gateway that are not
	// revoked.
	KeysOfGateway(ctx context.Context, accountID, gatewayID string) ([]apikey.Key, error)
	// KeysOfBucket returns the keys that share a per-key bucket and are not
	// revoked.
	KeysOfBucket(ctx context.Context, accountID, bucketID string) ([]apikey.Key, error)
	// SharedBuckets returns the per-key bucket of each of the account's keys, in
	// any state, that was made by a rotation: that of the first key.
	SharedBuckets(ctx context.Context, accountID string) (map[string]string, error)
	// KeysToNotify returns up to limit keys that are not revoked, whose expiry
	// is at or before now and was not told yet, the earliest first.
	KeysToNotify(ctx context.Context, now time.Time, limit int) ([]apikey.Key, error)
}

// KeyWriter changes keys. The caller sets Version. UpdateKey writes everything
// but ID, AccountID, Digest, Prefix, CreatedAt and LastUsedAt.
type KeyWriter interface {
	InsertKey(ctx context.Context, k *apikey.Key) error
	UpdateKey(ctx context.Context, k *apikey.Key) error
	// TouchKeys sets LastUsedAt where the given time is later than the stored
	// one. Keys that are gone are passed over.
	TouchKeys(ctx context.Context, used map[string]time.Time) error
}

// WebhookReader finds endpoints.
type WebhookReader interface {
	Webhook(ctx context.Context, accountID, webhookID string) (*webhook.Webhook, error)
	Webhooks(ctx context.Context, accountID string, p Page) ([]webhook.Webhook, error)
}

// WebhookWriter changes endpoints. The caller sets Version. UpdateWebhook writes
// everything but ID, AccountID and CreatedAt.
type WebhookWriter interface {
	InsertWebhook(ctx context.Context, w *webhook.Webhook) error
	UpdateWebhook(ctx context.Context, w *webhook.Webhook) error
	DeleteWebhook(ctx context.Context, accountID, webhookID string) error
}

// EventReader finds events. A filter by time is held against the time in the
// identifiers (id.NewAt), which is CreatedAt.
type EventReader interface {
	Event(ctx context.Context, accountID, eventID string) (*event.Event, error)
	Events(ctx context.Context, accountID string, f EventFilter, p Page) ([]event.Event, error)
}

// EventWriter appends events.
type EventWriter interface {
	// AppendEvent stores e and makes a delivery of it, pending from its
	// CreatedAt, for each active endpoint of the account that lists its type. One
	// of the type webhook.Test stands in no list and makes no delivery.
	AppendEvent(ctx context.Context, e *event.Event) error
}

// DeliveryReader finds deliveries, as EventReader does events.
type DeliveryReader interface {
	// Delivery returns one delivery with its Payload.
	Delivery(ctx context.Context, accountID, deliveryID string) (*webhook.Delivery, error)
	Deliveries(ctx context.Context, accountID string, f DeliveryFilter, p Page) ([]webhook.Delivery, error)
	// DeliveriesToRecover returns up to limit deliveries to the endpoint that
	// failed at or after since and whose event was not delivered to it again
	// since, the earliest failure first.
	DeliveriesToRecover(ctx context.Context, webhookID string, since time.Time, limit int) ([]webhook.Delivery, error)
	// StrandingWebhooks returns the endpoints of all accounts that are disabled
	// or gone and for which deliveries wait.
	StrandingWebhooks(ctx context.Context) ([]string, error)
}

// DeliveryWriter makes and ends deliveries. Their attempts are written by the
// queue (webhook/sender.Queue).
type DeliveryWriter interface {
	// InsertDelivery makes a delivery of an event that is stored. Those of the
	// same event to the same endpoint that failed count as delivered again.
	InsertDelivery(ctx context.Context, d *webhook.Delivery) error
	// FailStranded fails up to limit deliveries that wait for the endpoint and are
	// not leased at now, if it is disabled or gone; the log shows an attempt that
	// was not made and why. more tells that there may be others.
	FailStranded(ctx context.Context, webhookID string, now time.Time, limit int) (more bool, err error)
	// TrimDeliveries removes what was delivered before delivered, and what failed
	// before failed, at most limit of each. more tells that there may be others.
	TrimDeliveries(ctx context.Context, delivered, failed time.Time, limit int) (more bool, err error)
}

// StoredResponse is a stored answer to a call with an Idempotency-Key. It holds no
// secret.
type StoredResponse struct {
	KeyID       string   // the calling key
	Key         string   // the Idempotency-Key
	Fingerprint [32]byte // of method, path, query and body
	Status      int
	Header      map[string]string
	Body        []byte
	CreatedAt   time.Time
}

// LedgerReader reads the records that go with every change.
type LedgerReader interface {
	// Audit lists the account's management records that are in no block yet,
	// newest first. Page.After is the Seq of the last one.
	Audit(ctx context.Context, accountID string, p Page) ([]audit.Record, error)
	// AuditLog lists all of the account's audit records, newest first. Page.After
	// is the Place of the last one.
	AuditLog(ctx context.Context, accountID string, f audit.Filter, p Page) ([]audit.Record, error)
	// AuditChain tells what the account's chain of blocks holds.
	AuditChain(ctx context.Context, accountID string) (audit.Chain, error)
	// AuditBlocks returns up to limit blocks of the account's chain after the
	// one with the number after, in order.
	AuditBlocks(ctx context.Context, accountID string, after int64, limit int) ([]*audit.Block, error)
	// Changes returns up to limit entries of the change log after seq, oldest
	// first. complete is false if entries after seq were already trimmed, so
	// that the reader must load everything again.
	Changes(ctx context.Context, seq int64, limit int) (changes []snapshot.Change, complete bool, err error)
	// StoredResponse returns the stored answer, or fault.NotFound.
	StoredResponse(ctx context.Context, keyID, key string) (*StoredResponse, error)
	// DailyCounts returns all counts of the day.
	DailyCounts(ctx context.Context, day int64) ([]ratelimit.DailyCount, error)
}

// LedgerWriter writes the records that go with every change.
type LedgerWriter interface {
	AppendAudit(ctx context.Context, r *audit.Record) error
	// AppendChange writes an entry of the change log.
	AppendChange(ctx context.Context, k snapshot.ChangeKind, recordID string) error
	PutStoredResponse(ctx context.Context, a *StoredResponse) error
	// PutDailyCounts sets each count, whatever it was before.
	PutDailyCounts(ctx context.Context, counts []ratelimit.DailyCount) error
	// Trim removes answers older than answers, entries of the change log older
	// than changes, events older than events and counts of days before day; at
	// most limit rows of each. more tells that there may be others. What a
	// delivery needs of an event stays until the last of them is removed.
	Trim(ctx context.Context, answers, changes, events time.Time, day int64, limit int) (more bool, err error)
}
