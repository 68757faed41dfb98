package control

import (
	"context"
	"time"

	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/issuer"
)

// IssuerFilter selects issuers for a list. Fields that are zero select every issuer.
type IssuerFilter struct {
	Name  string // the whole name
	Query string // a part of the name, ignoring the case of ASCII letters
}

// IssuerUse is how much the issuers of an account take.
type IssuerUse struct {
	Issuers int64
	Bytes   int64 // of their settings, as they are stored
	Fetched int64 // bytes of what was fetched for them, as it is stored
}

// IssuerReader finds issuers.
type IssuerReader interface {
	Issuer(ctx context.Context, accountID, issuerID string) (*issuer.Issuer, error)
	// Issuers lists issuers, newest first.
	Issuers(ctx context.Context, accountID string, f IssuerFilter, p Page) ([]issuer.Issuer, error)
	// IssuerUse returns how much the issuers of the account take, without that of an identifier.
	IssuerUse(ctx context.Context, accountID, without string) (IssuerUse, error)
	// DueIssuers returns up to limit issuers of active accounts whose keys are to be fetched at now, and of each account
	// the perAccount that are due longest. Accounts take turns: those that are due longest of each come first.
	DueIssuers(ctx context.Context, now time.Time, perAccount, limit int) ([]issuer.Issuer, error)
	// UnreachableIssuers returns how many issuers of all accounts are unreachable.
	UnreachableIssuers(ctx context.Context) (int, error)
	// GatewaysOfIssuer returns up to limit gateways of the account that name the issuer, in the order of their creation.
	GatewaysOfIssuer(ctx context.Context, accountID, name string, limit int) ([]gateway.Gateway, error)
}

// IssuerStore finds and changes issuers. A name that is in use is fault.Conflict with the field "name". The caller sets
// Version.
type IssuerStore interface {
	IssuerReader
	InsertIssuer(ctx context.Context, i *issuer.Issuer) error
	// UpdateIssuer writes all fields but ID, AccountID and CreatedAt.
	UpdateIssuer(ctx context.Context, i *issuer.Issuer) error
	DeleteIssuer(ctx context.Context, accountID, issuerID string) error
}
