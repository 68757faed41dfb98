package snapshot

import (
	"context"
	"time"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/gateway"
)

// Source is the stored configuration as the data plane reads it. Each call reads one
// committed state, which includes every change committed before the call. A record that
// does not exist is an error with the code fault.NotFound.
type Source interface {
	ChangeLog
	GatewaySource
	KeySource
	// Accounts returns every account that is not deleted.
	Accounts(ctx context.Context) ([]account.Account, error)
}

// GatewaySource reads gateways of all accounts, with their routes.
type GatewaySource interface {
	// EachGateway calls f for each gateway with its routes, oldest first. It stops at the
	// first error of f and returns it. f may keep its arguments.
	EachGateway(ctx context.Context, f func(*gateway.Gateway, []gateway.Route) error) error
	GatewayByID(ctx context.Context, gatewayID string) (*gateway.Gateway, []gateway.Route, error)
	// DefaultGateway returns the identifier of the gateway with Default set, or "".
	DefaultGateway(ctx context.Context) (gatewayID string, err error)
}

// KeySource reads keys of all accounts. The fields ID, AccountID, Digest, Level, Scope,
// Owner, GatewayID, RateLimit, BucketID, ExpiresAt and RevokedAt must be set; others may be
// left empty.
type KeySource interface {
	// EachKey calls f for each key that is not revoked, including expired ones and those of
	// deleted accounts, and for each key that was revoked at revokedSince or later, in any
	// order. It stops at the first error of f and returns it. f may keep the strings of a
	// Key, but not the Key, which may be reused.
	EachKey(ctx context.Context, revokedSince time.Time, f func(*apikey.Key) error) error
	// KeyByID returns one key, whether or not it is revoked.
	KeyByID(ctx context.Context, keyID string) (*apikey.Key, error)
}
