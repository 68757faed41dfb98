// Package audit defines the records of the audit log and the formats in which it is
// stored, searched, exported and verified (contract, section 7).
//
// An account's log has an open end and a chain of sealed blocks:
//
//	authentications ─► chunks ───────────┐ open end
//	management ──────► records ──────────┤
//	                                     ▼ sealed: sorted, in columns, compressed
//	            block 1 ◄─ block 2 ◄─ … block n      each with the digest of the one before
//	               │          │            │
//	            summary    summary      summary      time bounds, classes, Bloom filter
//	               └───── block group ─────┘         64 summaries, bit-sliced
//
// Package audit/writer appends and seals. Stores implement Source.
package audit

import (
	"strings"
	"time"
)

// Kind is the kind of a record: an authentication or a management action.
type Kind string

// The kinds of records.
const (
	Authentication Kind = "authentication"
	Management     Kind = "management"
)

// Outcome is the outcome of an authentication.
type Outcome string

// The outcomes.
const (
	Success           Outcome = "success"
	KeyInvalid        Outcome = "key_invalid"
	KeyExpired        Outcome = "key_expired"
	ScopeInsufficient Outcome = "scope_insufficient"
	AddressNotAllowed Outcome = "address_not_allowed"
)

// Action is the name of a management action, for example "key.create".
type Action string

// The management actions.
const (
	AccountCreate   Action = "account.create"
	AccountUpdate   Action = "account.update"
	AccountSuspend  Action = "account.suspend"
	AccountResume   Action = "account.resume"
	AccountDelete   Action = "account.delete"
	GatewayCreate   Action = "gateway.create"
	GatewayUpdate   Action = "gateway.update"
	GatewayDelete   Action = "gateway.delete"
	GatewayTry      Action = "gateway.try" // a request was sent to it; the diff has its method and path
	UpstreamCreate  Action = "upstream.create"
	UpstreamUpdate  Action = "upstream.update"
	UpstreamDelete  Action = "upstream.delete"
	TargetAdd       Action = "target.add"
	TargetUpdate    Action = "target.update"
	TargetDrain     Action = "target.drain" // an update that takes it away
	TargetDelete    Action = "target.delete"
	TargetReturn    Action = "target.return" // its ejection was ended by hand
	CanaryStart     Action = "canary.start"
	CanaryPause     Action = "canary.pause"
	CanaryResume    Action = "canary.resume"
	CanaryAdvance   Action = "canary.advance"
	CanaryAbort     Action = "canary.abort"
	CanaryPromote   Action = "canary.promote"
	RouteCreate     Action = "route.create"
	RouteUpdate     Action = "route.update"
	RouteDelete     Action = "route.delete"
	KeyCreate       Action = "key.create"
	KeyImport       Action = "key.import"
	KeyUpdate       Action = "key.update"
	KeyRotate       Action = "key.rotate"
	KeyRevoke       Action = "key.revoke"
	SpecPush        Action = "spec.push"
	ConfigPush      Action = "config.push"
	RevisionRestore Action = "revision.rollback"
	GapNoted        Action = "audit.gap" // records are missing; the diff has lost_records, first_at, last_at and reason

	RepositorySet    Action = "repository.set"
	RepositoryDelete Action = "repository.delete"
	RepositorySync   Action = "repository.sync"  // asked for by a call
	RepositoryPause  Action = "repository.pause" // by a rollback
	RepositoryResume Action = "repository.resume"

	WebhookCreate       Action = "webhook.create"
	WebhookUpdate       Action = "webhook.update"
	WebhookDelete       Action = "webhook.delete"
	WebhookDisable      Action = "webhook.disable"       // because of its endpoint's responses; there is no actor
	WebhookRotateSecret Action = "webhook.rotate_secret" //nolint:gosec // the name of an action
	WebhookTest         Action = "webhook.test"
	WebhookRecover      Action = "webhook.recover"
	DeliveryRedeliver   Action = "delivery.redeliver"

	NodeDelete Action = "node.delete"

	OwnerCreate  Action = "owner.create"
	OwnerUpdate  Action = "owner.update"
	OwnerSuspend Action = "owner.suspend"
	OwnerResume  Action = "owner.resume"
	OwnerDelete  Action = "owner.delete"
	PlanCreate   Action = "plan.create"
	PlanUpdate   Action = "plan.update"
	PlanDelete   Action = "plan.delete"
	GrantCreate  Action = "grant.create"
	IssuerCreate Action = "issuer.create"
	IssuerUpdate Action = "issuer.update"
	IssuerDelete Action = "issuer.delete"

	UserCreate       Action = "user.create" // by the first sign-in
	UserUpdate       Action = "user.update"
	UserSuspend      Action = "user.suspend"
	UserResume       Action = "user.resume"
	UserDelete       Action = "user.delete"
	UserSignIn       Action = "user.sign_in"
	UserRefuse       Action = "user.sign_in_refused" // the identity provider knows who it is; the diff has the reason
	UserTokenCreate  Action = "user.token_create"    //nolint:gosec // the name of an action: a sign-in of a command line
	UserTokenRevoke  Action = "user.token_revoke"    //nolint:gosec // the name of an action
	UserApprove      Action = "user.device_approve"
	UserDeny         Action = "user.device_deny"
	InvitationCreate Action = "invitation.create"
	InvitationDelete Action = "invitation.delete"
	DenialCreate     Action = "denial.create"
	DenialDelete     Action = "denial.delete"

	CertificateRenew Action = "certificate.renew" // asked for by a call
)

// Diff maps the name of each field that a management action changed to its values before
// and after. The value of a secret is "***". A value that is larger than MaxDiffValue is stored, and read,
// as an Omitted.
type Diff map[string][2]any

// Record is one entry of an account's audit log. An empty string means no value (null in
// the API).
type Record struct {
	AccountID string
	Seq       int64  // number of a management record in the account's log, from 1 without gaps; set by the store
	Cursor    string // of a record that was read: the cursor of the page after it
	Time      time.Time
	Kind      Kind
	Outcome   Outcome
	KeyPrefix string // only of a string with the format and checksum of a key
	KeyID     string
	GatewayID string
	// Token is set if the request had a token in the place of a key. IssuerID is then the issuer, if the token was known to
	// be of one of the gateway's, and Subject is set if the token passed its checks. For the session of a user, Token is set
	// and Subject is the identifier of the user.
	Token     bool
	IssuerID  string
	Subject   string
	Method    string
	Path      string // without the query
	ClientIP  string
	RequestID string
	// Count is how many refused authentications the record stands for: those of one address within a minute, of which
	// Time, Method, Path, ClientIP and RequestID are the first one's, and what says who made
	// it (KeyPrefix, KeyID, GatewayID and those of a token) is set if it is the same in all. 0 means that the record is of one event alone.
	Count      int64
	Action     Action // for Management, with the three below
	Target     string // identifier of the changed record
	ActorKeyID string // "" if the actor is not a key
	Actor      Actor  // if it is not a key
	Diff       Diff
}

// Credential returns what the request had: key, token, user for the session of one, or "" for nothing that is known.
func (r *Record) Credential() string {
	return credentialOf(r.Token, r.IssuerID, r.Subject, r.KeyPrefix, r.KeyID)
}

func credentialOf(token bool, issuerID, subject, prefix, keyID string) string {
	switch {
	case token && issuerID == "" && strings.HasPrefix(subject, userMark): // a token that was verified has an issuer
		return "user"
	case token:
		return "token"
	case prefix != "" || keyID != "":
		return "key"
	default:
		return ""
	}
}

// Filter selects records. Zero fields do not filter. Since is inclusive, Until exclusive.
type Filter struct {
	Kind         Kind
	Outcome      Outcome
	Notable      bool // only changes and refusals: no authentications that succeeded
	KeyPrefix    string
	KeyID        string
	GatewayID    string
	Actor        string // identifier of the key or user, or the kind of another actor
	Since, Until time.Time
}

// Head is the end of an account's chain of sealed blocks.
type Head struct {
	Number int64 // of the last sealed block, from 1; 0 if there is none
	Digest [32]byte
	Time   time.Time
}
