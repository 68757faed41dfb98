package snapshot

import (
	"context"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/gateway"
)

// Source is the stored configuration as the data plane reads it. Each call sees
// one committed state, not older than every change committed before the call. A
// record that is gone is an error with the code fault.NotFound.
type Source interface {
	ChangeLog
	GatewaySource
	KeySource
	// Accounts returns every account.
	Accounts(ctx context.Context) ([]account.Account, error)
}

// GatewaySource reads gateways with their route tables, of all accounts.
type GatewaySource interface {
	// EachGateway calls f for each gateway with its routes, oldest first, until
	// f returns an error, which it returns. f may keep what it is given.
	EachGateway(ctx context.Context, f func(*gateway.Gateway, []gateway.Route) error) error
	GatewayByID(ctx context.Context, gatewayID string) (*gateway.Gateway, []gateway.Route, error)
}

// KeySource reads keys of all accounts. Of a key it needs ID, AccountID, Digest,
// Level, Scope, Owner, GatewayID, RateLimit, BucketID, ExpiresAt and RevokedAt;
// other fields may be left empty.
type KeySource interface {
	// EachKey calls f for each key that is not revoked, expired ones included,
	// in any order, until f returns an error, which it returns. f does not keep
	// the Key, so one may serve for all calls; it does keep the strings.
	EachKey(ctx context.Context, f func(*apikey.Key) error) error
	// KeyByID returns one key, revoked or not.
	KeyByID(ctx context.Context, keyID string) (*apikey.Key, error)
}
