package snapshot

import (
	"context"
	"time"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/issuer"
	"github.com/keygate/keygate/internal/owner"
	"github.com/keygate/keygate/internal/plan"
)

// Source is the stored configuration as the data plane reads it. Each call reads one
// committed state, which includes every change committed before the call. A record that
// does not exist is an error with the code fault.NotFound.
type Source interface {
	ChangeLog
	GatewaySource
	KeySource
	PlanSource
	IssuerSource
	// Accounts returns every account that is not deleted.
	Accounts(ctx context.Context) ([]account.Account, error)
}

// GatewaySource reads gateways of all accounts, with their routes.
type GatewaySource interface {
	// EachGateway calls f for each gateway with its routes, oldest first. It stops at the
	// first error of f and returns it. f may keep its arguments.
	EachGateway(ctx context.Context, f func(*gateway.Gateway, []gateway.Route) error) error
	// GatewayIDs returns the identifiers of all gateways.
	GatewayIDs(ctx context.Context) ([]string, error)
	// HasGateway reports whether there is a gateway.
	HasGateway(ctx context.Context, gatewayID string) (bool, error)
	GatewayByID(ctx context.Context, gatewayID string) (*gateway.Gateway, []gateway.Route, error)
	// RouteCount returns the number of routes of a gateway, or 0 if there is no such gateway.
	RouteCount(ctx context.Context, gatewayID string) (int, error)
	// GatewayDelta returns what changed about a gateway: the routes with the given identifiers, and
	// the routes that the change log names after the entry with the sequence number after.
	GatewayDelta(ctx context.Context, gatewayID string, routeIDs []string, after int64) (*GatewayDelta, error)
}

// GatewayDelta is a gateway with some of its routes.
type GatewayDelta struct {
	Gateway *gateway.Gateway
	// Whole is set if the route table was replaced meanwhile, or the change log was trimmed.
	// RouteIDs and Routes are then not set.
	Whole    bool
	RouteIDs []string        // the routes that may have changed, each once
	Routes   []gateway.Route // as far as they exist
}

// KeySource reads keys of all accounts. The fields ID, AccountID, Digest, Level, Scope,
// Owner, OwnerID, PlanID, GatewayID, RateLimit, Concurrency, BucketID, ExpiresAt, Imported, Ended and RevokedAt must
// be set; others may be left empty.
type KeySource interface {
	// EachKey calls f for each key that is not revoked, including expired keys and keys of deleted
	// accounts, and for each key that was revoked at revokedSince or later, in any order. It stops
	// at the first error of f and returns it. f may keep the strings of a Key, but not the Key,
	// which may be reused.
	EachKey(ctx context.Context, revokedSince time.Time, f func(*apikey.Key) error) error
	// KeyByID returns one key, whether or not it is revoked.
	KeyByID(ctx context.Context, keyID string) (*apikey.Key, error)
}

// PlanSource reads plans and owners of all accounts.
type PlanSource interface {
	// EachPlan calls f for each plan, in any order. It stops at the first error of f and returns it. f may keep the
	// Plan.
	EachPlan(ctx context.Context, f func(*plan.Plan) error) error
	PlanByID(ctx context.Context, planID string) (*plan.Plan, error)
	// EachOwner calls f for each owner, in any order. The fields Name, Metadata and Version may be left empty. It
	// stops at the first error of f and returns it. f may keep the strings of an Owner, but not the Owner.
	EachOwner(ctx context.Context, f func(*owner.Owner) error) error
	OwnerByID(ctx context.Context, ownerID string) (*owner.Owner, error)
}

// IssuerSource reads issuers of all accounts.
type IssuerSource interface {
	// EachIssuer calls f for each issuer, in any order. It stops at the first error of f and returns it. f may keep the
	// Issuer.
	EachIssuer(ctx context.Context, f func(*issuer.Issuer) error) error
	IssuerByID(ctx context.Context, issuerID string) (*issuer.Issuer, error)
	// EachDenial calls f for each denial of an issuer, in any order. It stops at the first error of f and returns it.
	EachDenial(ctx context.Context, issuerID string, f func(*issuer.Denial) error) error
	DenialByID(ctx context.Context, denialID string) (*issuer.Denial, error)
}
