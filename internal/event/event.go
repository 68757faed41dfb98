// Package event defines the events that webhooks deliver, and their envelope
// (specification, Events; contract, section 6).
package event

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/keygate/keygate/internal/id"
)

// Type is the type of an event.
type Type string

// The types of events.
const (
	KeyCreated           Type = "key.created"
	KeyRotated           Type = "key.rotated"
	KeyRevoked           Type = "key.revoked"
	KeyExpired           Type = "key.expired"
	RateLimitExceeded    Type = "rate_limit.exceeded"
	GatewayUpstreamError Type = "gateway.upstream_error"
	GatewaySpecPushed    Type = "gateway.spec_pushed"
	GatewaySyncFailed    Type = "gateway.sync_failed"
	OwnerSuspended       Type = "owner.suspended"
	OwnerResumed         Type = "owner.resumed"
	QuotaThreshold       Type = "quota.threshold"
	UsageFinalized       Type = "usage.finalized"
	UpstreamTargetDown   Type = "upstream.target_down"
	UpstreamTargetUp     Type = "upstream.target_up"
	CanaryAdvanced       Type = "canary.advanced"
	CanaryAborted        Type = "canary.aborted"
	CanaryPromoted       Type = "canary.promoted"
	CanaryPaused         Type = "canary.paused"
	IssuerUnreachable    Type = "issuer.unreachable"
	UserRoleChanged      Type = "user.role_changed"
	UserSuspended        Type = "user.suspended"
	CertificateRenewed   Type = "certificate.renewed"
	CertificateFailed    Type = "certificate.failed"
	CertificateExpiring  Type = "certificate.expiring"
)

// Event is a stored event. Payload is the encoded envelope. It is encoded once, and these
// bytes are signed and sent by every attempt.
type Event struct {
	ID        string
	AccountID string
	Type      Type
	CreatedAt time.Time
	Payload   []byte
}

// Key is the data of key.created, key.revoked and key.expired.
type Key struct {
	KeyID     string     `json:"key_id"`
	KeyPrefix string     `json:"key_prefix"`
	Name      string     `json:"name"`
	Scope     string     `json:"scope"`
	Level     string     `json:"level"`
	Owner     *string    `json:"owner"`
	GatewayID *string    `json:"gateway_id"`
	ExpiresAt *time.Time `json:"expires_at"`
}

// Owner is the data of owner.suspended and owner.resumed.
type Owner struct {
	OwnerID string  `json:"owner_id"`
	Owner   string  `json:"owner"` // the external ID
	Name    *string `json:"name"`
}

// User is the data of user.suspended.
type User struct {
	UserID string  `json:"user_id"`
	Email  *string `json:"email"`
	Name   *string `json:"name"`
	Role   string  `json:"role"`
}

// UserRole is the data of user.role_changed.
type UserRole struct {
	User
	PreviousRole string `json:"previous_role"`
}

// Finalized is the data of usage.finalized. Records is the number of usage records that became final; their requests began
// in the period.
type Finalized struct {
	PeriodStart time.Time `json:"period_start"`
	PeriodEnd   time.Time `json:"period_end"`
	Records     int       `json:"records"`
}

// Threshold is the data of quota.threshold. Count has the grants. Owner and OwnerID are nil for a key without an owner,
// and KeyID for an owner, whose keys count together. WindowEnd is nil if the window never ends.
type Threshold struct {
	Limit       string     `json:"limit"` // its name
	Plan        string     `json:"plan"`
	Meter       string     `json:"meter"`
	Percent     int        `json:"percent"`
	Used        int64      `json:"used"`
	Count       int64      `json:"count"`
	WindowStart time.Time  `json:"window_start"`
	WindowEnd   *time.Time `json:"window_end"`
	Owner       *string    `json:"owner"` // the external ID
	OwnerID     *string    `json:"owner_id"`
	KeyID       *string    `json:"key_id"`
}

// Rotation is the data of key.rotated. By is "holder" if the holder of the key has rotated it, else "".
type Rotation struct {
	KeyID       string `json:"key_id"`
	KeyPrefix   string `json:"key_prefix"`
	OverlapDays int    `json:"overlap_days"`
	NewKeyID    string `json:"new_key_id"`
	By          string `json:"by,omitempty"`
}

// Push is the data of gateway.spec_pushed.
type Push struct {
	GatewayID string  `json:"gateway_id"`
	Revision  int64   `json:"revision"`
	Source    string  `json:"source"`
	Commit    *string `json:"commit"`
	Author    string  `json:"author"`
	Added     int     `json:"added"`
	Removed   int     `json:"removed"`
	Changed   int     `json:"changed"`
}

// SyncFailed is the data of gateway.sync_failed. Commit is nil if the sync failed before it knew one.
type SyncFailed struct {
	GatewayID string  `json:"gateway_id"`
	Commit    *string `json:"commit"`
	Branch    string  `json:"branch"`
	Path      string  `json:"path"`
	Message   string  `json:"message"`
}

// KeysUnreachable is the data of issuer.unreachable.
type KeysUnreachable struct {
	IssuerID string `json:"issuer_id"`
	Name     string `json:"name"`
	Issuer   string `json:"issuer"` // the claim iss of its tokens
	Message  string `json:"message"`
}

// envelope is the body of every event.
type envelope struct {
	ID        string    `json:"id"`
	Type      Type      `json:"type"`
	CreatedAt time.Time `json:"created_at"`
	Data      any       `json:"data"`
}

// New returns an event of type t at the time at. data must have one of this package's data types.
// The identifier contains the time (id.NewAt).
func New(accountID string, t Type, at time.Time, data any) (Event, error) {
	at = at.UTC().Truncate(time.Microsecond)
	e := Event{ID: id.NewAt(id.Event, at), AccountID: accountID, Type: t, CreatedAt: at}
	payload, err := json.Marshal(envelope{ID: e.ID, Type: t, CreatedAt: e.CreatedAt, Data: data})
	if err != nil {
		return Event{}, fmt.Errorf("encode event %s: %w", t, err)
	}
	e.Payload = payload
	return e, nil
}
