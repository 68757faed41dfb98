// Package audit defines the records of the audit log (contract, section 7).
package audit

import "time"

// Kind tells authentication events from management actions.
type Kind string

// The kinds of records.
const (
	Authentication Kind = "authentication"
	Management     Kind = "management"
)

// Outcome is how an authentication ended.
type Outcome string

// The outcomes.
const (
	Success           Outcome = "success"
	KeyInvalid        Outcome = "key_invalid"
	KeyExpired        Outcome = "key_expired"
	ScopeInsufficient Outcome = "scope_insufficient"
)

// Action names a management action, as "key.create".
type Action string

// The management actions.
const (
	AccountCreate   Action = "account.create"
	GatewayCreate   Action = "gateway.create"
	GatewayUpdate   Action = "gateway.update"
	GatewayDelete   Action = "gateway.delete"
	RouteCreate     Action = "route.create"
	RouteUpdate     Action = "route.update"
	RouteDelete     Action = "route.delete"
	KeyCreate       Action = "key.create"
	KeyUpdate       Action = "key.update"
	KeyRotate       Action = "key.rotate"
	KeyRevoke       Action = "key.revoke"
	SpecPush        Action = "spec.push"
	ConfigPush      Action = "config.push"
	RevisionRestore Action = "revision.rollback"
	GapNoted        Action = "audit.gap" // records are missing: lost_records, first_at, last_at and reason stand in the diff

	WebhookCreate       Action = "webhook.create"
	WebhookUpdate       Action = "webhook.update"
	WebhookDelete       Action = "webhook.delete"
	WebhookDisable      Action = "webhook.disable"       // by its answers: nobody is the actor
	WebhookRotateSecret Action = "webhook.rotate_secret" //nolint:gosec // the name of an action
	WebhookTest         Action = "webhook.test"
	WebhookRecover      Action = "webhook.recover"
	DeliveryRedeliver   Action = "delivery.redeliver"
)

// Diff maps the name of each field that a management action changed to its
// values before and after. A secret stands as "***".
type Diff map[string][2]any

// Record is one entry of an account's audit log. An empty string stands for
// an absent value (null in the API).
type Record struct {
	AccountID  string
	Seq        int64  // place of a management record in the account's log, from 1 without gaps; the store gives it
	Place      string // of a record that was read: what Page.After takes
	Time       time.Time
	Kind       Kind
	Outcome    Outcome
	KeyPrefix  string // only of a string that has a key's form and checksum
	KeyID      string
	GatewayID  string
	Method     string
	Path       string // without the query
	ClientIP   string
	RequestID  string
	Action     Action // for Management, with the three below
	Target     string // identifier of the record acted on
	ActorKeyID string // "" for an offline command
	Diff       Diff
}

// Filter narrows a list of records. Zero members do not filter. Since is
// included, Until is not.
type Filter struct {
	Kind         Kind
	Outcome      Outcome
	KeyPrefix    string
	KeyID        string
	GatewayID    string
	Actor        string // actor_key_id
	Since, Until time.Time
}

// Head is the end of an account's chain of sealed blocks.
type Head struct {
	Number int64 // of the last sealed block, from 1; 0 if there is none
	Digest [32]byte
	Time   time.Time
}
