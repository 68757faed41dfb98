package control

import (
	"context"
	"time"

	"github.com/keygate/keygate/internal/gateway"
)

// RepositoryReader finds the repositories that gateways follow.
type RepositoryReader interface {
	// Repository returns the repository of a gateway.
	Repository(ctx context.Context, accountID, gatewayID string) (*gateway.ConnectedRepository, error)
	// RepositoryOf returns the repository of a gateway of any account.
	RepositoryOf(ctx context.Context, gatewayID string) (*gateway.ConnectedRepository, error)
	// Repositories lists the repositories of all accounts whose gateways have identifiers greater
	// than after, in the order of these, up to limit.
	Repositories(ctx context.Context, after string, limit int) ([]gateway.ConnectedRepository, error)
}

// RepositoryTimes are the times of a poll that found nothing new.
type RepositoryTimes struct {
	GatewayID string
	Version   int64 // of the record that was polled
	Attempt   time.Time
	Synced    time.Time // zero leaves LastSyncedAt as it is
	Next      time.Time
}

// RepositoryStore finds and changes the repositories that gateways follow. The caller sets Version.
type RepositoryStore interface {
	RepositoryReader
	// PutRepository adds or replaces the repository of a gateway. An update does not change
	// CreatedAt. A gateway that does not exist, or belongs to another account, is fault.NotFound.
	PutRepository(ctx context.Context, r *gateway.ConnectedRepository) error
	DeleteRepository(ctx context.Context, accountID, gatewayID string) error
	// SetRepositoryTimes stores t, unless the record is gone or has another version.
	SetRepositoryTimes(ctx context.Context, t RepositoryTimes) error
}
