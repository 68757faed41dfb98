package control

import (
	"context"
	"time"

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
	Denials int64
}

// DenialFilter selects denials for a list. Fields that are zero select every denial.
type DenialFilter struct {
	Subject, JTI string // in the form of issuer.Recorded
}

// NamedIssuer is what a gateway that names an issuer depends on.
type NamedIssuer struct {
	Name         string            `json:"-"`
	URL          string            `json:"issuer"`
	ClaimHeaders map[string]string `json:"claim_headers"`
}

// IssuerUser is a gateway that names issuers.
type IssuerUser struct {
	GatewayID, Gateway string
	Issuers            []string
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
	// Denial returns a denial of an issuer of the account that ends after now.
	Denial(ctx context.Context, accountID, issuerID, denialID string, now time.Time) (*issuer.Denial, error)
	// Denials lists denials of an issuer that end after now, newest first.
	Denials(ctx context.Context, issuerID string, f DenialFilter, now time.Time, p Page) ([]issuer.Denial, error)
	// IssuersNamed returns those of the issuers that exist, in any order. It reads no others.
	IssuersNamed(ctx context.Context, accountID string, names []string) ([]NamedIssuer, error)
	// IssuersOfURL returns the names of the issuers with a claim iss.
	IssuersOfURL(ctx context.Context, accountID, url string) ([]string, error)
	// GatewaysOfIssuer returns up to limit gateways of the account that name the issuer, in the order of their creation. It
	// reads neither their settings nor those of others.
	GatewaysOfIssuer(ctx context.Context, accountID, name string, limit int) ([]IssuerUser, error)
}

// IssuerStore finds and changes issuers. A name that is in use is fault.Conflict with the field "name". The caller sets
// Version.
type IssuerStore interface {
	IssuerReader
	InsertIssuer(ctx context.Context, i *issuer.Issuer) error
	// UpdateIssuer writes all fields but ID, AccountID and CreatedAt.
	UpdateIssuer(ctx context.Context, i *issuer.Issuer) error
	// DeleteIssuer deletes an issuer. Its denials are no others' any more, and Trimmer.TrimDenials removes them.
	DeleteIssuer(ctx context.Context, accountID, issuerID string) error
	// InsertDenial inserts a denial of an issuer that exists, and counts it.
	InsertDenial(ctx context.Context, d *issuer.Denial) error
	// DeleteDenial deletes a denial, and counts it no more.
	DeleteDenial(ctx context.Context, d *issuer.Denial) error
}
