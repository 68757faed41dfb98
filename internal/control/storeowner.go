package control

import (
	"context"
	"time"

	"github.com/keygate/keygate/internal/owner"
)

// OwnerFilter selects owners for a list. Fields that are zero select every owner.
type OwnerFilter struct {
	ExternalID string // the whole external ID
	State      owner.State
	PlanID     string
	Query      string // a part of the name or of the external ID, ignoring the case of ASCII letters
}

// Searches reports whether many other owners may have to be read to find the owners.
func (f *OwnerFilter) Searches() bool {
	return f.Query != "" || f.State != "" && f.PlanID != ""
}

// OwnerReader finds owners.
type OwnerReader interface {
	Owner(ctx context.Context, accountID, ownerID string) (*owner.Owner, error)
	OwnerByExternalID(ctx context.Context, accountID, externalID string) (*owner.Owner, error)
	// OwnersByExternalID returns those of the owners that exist, in any order.
	OwnersByExternalID(ctx context.Context, accountID string, externalIDs []string) ([]owner.Owner, error)
	// Owners lists owners, newest first.
	Owners(ctx context.Context, accountID string, f OwnerFilter, p Page) ([]owner.Owner, error)
	// OwnerHasActiveKeys reports whether a key of the owner is active at the time now.
	OwnerHasActiveKeys(ctx context.Context, accountID, ownerID string, now time.Time) (bool, error)
}

// OwnerStore finds and changes owners. An external ID that is in use is fault.Conflict with the field "external_id".
// The caller sets Version.
type OwnerStore interface {
	OwnerReader
	InsertOwner(ctx context.Context, o *owner.Owner) error
	// UpdateOwner writes all fields but ID, AccountID, ExternalID and CreatedAt.
	UpdateOwner(ctx context.Context, o *owner.Owner) error
	DeleteOwner(ctx context.Context, accountID, ownerID string) error
}
