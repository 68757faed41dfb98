package control

import (
	"context"

	"github.com/keygate/keygate/internal/canary"
	"github.com/keygate/keygate/internal/gateway"
)

// CanaryReader finds canaries.
type CanaryReader interface {
	Canary(ctx context.Context, accountID, gatewayID, canaryID string) (*canary.Canary, error)
	// CanaryByID returns a canary of any account.
	CanaryByID(ctx context.Context, canaryID string) (*canary.Canary, error)
	Canaries(ctx context.Context, gatewayID string, p Page) ([]canary.Canary, error)
	// RunningCanaries returns up to limit running canaries of all accounts, in the order of their identifiers, after one of
	// them.
	RunningCanaries(ctx context.Context, after string, limit int) ([]canary.Canary, error)
	// HasCanaries reports whether the account has at least n canaries that have not ended.
	HasCanaries(ctx context.Context, accountID string, n int) (bool, error)
	// HasRunningCanaries reports whether at least n canaries of all accounts are running.
	HasRunningCanaries(ctx context.Context, n int) (bool, error)
	// CanaryLead returns which process judges canaries; the zero value if none ever did.
	CanaryLead(ctx context.Context) (canary.Lead, error)
}

// CanaryStore finds and changes canaries. The caller sets Version.
type CanaryStore interface {
	CanaryReader
	InsertCanary(ctx context.Context, c *canary.Canary) error
	UpdateCanary(ctx context.Context, c *canary.Canary) error
	// SetCanaryShare sets gateway.Gateway.Canary, which UpdateGateway leaves as it is.
	SetCanaryShare(ctx context.Context, accountID, gatewayID string, share *gateway.CanaryShare) error
	// TrimCanaries removes some of the oldest canaries that have ended, if there are more than ofGateway of the gateway or
	// more than ofAccount of the account.
	TrimCanaries(ctx context.Context, accountID, gatewayID string, ofGateway, ofAccount int) error
}
