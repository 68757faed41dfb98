package control

import (
	"context"
	"strings"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
)

// VerifyKey reports whether a key would be accepted for a gateway, method and path; each may be "" if it
// does not matter. It charges no limit, and writes nothing except the response to a call with an
// Idempotency-Key. A key of another account is reported like one that does not exist.
//
// An account-level key is not accepted for any gateway. Without a gateway, its path is one of the
// management API.
func (s *Service) VerifyKey(ctx context.Context, c *Caller, secret, gatewayID, method, path string) (*Verification, error) {
	q := keyCheck{secret: secret, gatewayID: gatewayID, method: method, path: path}
	if err := q.check(); err != nil {
		return nil, err
	}
	if idempotencyOf(ctx) != nil {
		return inTx(ctx, s, c, func(w *work) (*Verification, error) { return s.verify(ctx, w, c, q) })
	}
	return read(ctx, s, func(tx ReadTx) (*Verification, error) { return s.verify(ctx, tx, c, q) })
}

// keyCheck is the arguments of VerifyKey.
type keyCheck struct {
	secret, gatewayID, method, path string
}

// check validates q and normalizes its path, as scopes are matched against normal forms.
func (q *keyCheck) check() error {
	if q.secret == "" {
		return fault.Invalid("key", "is required")
	}
	if q.method != "" && !isMethodName(q.method) {
		return fault.Invalid("method", "must be a method in upper case, such as GET")
	}
	if q.path == "" {
		return nil
	}
	q.path, _, _ = strings.Cut(q.path, "?")
	// A path that the data plane rejects as malformed must not be reported as allowed, because
	// another server might read it differently.
	if err := gateway.CheckPath(q.path); err != nil {
		return fault.Prefixed("path", err)
	}
	q.path = gateway.NormalizePath(nil, q.path)
	return nil
}

func isMethodName(s string) bool {
	return len(s) <= gateway.MaxMethod && strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") == ""
}

func (s *Service) verify(ctx context.Context, tx ReadTx, c *Caller, q keyCheck) (*Verification, error) {
	if q.gatewayID != "" {
		_, err := tx.Gateway(ctx, c.Account.ID, q.gatewayID)
		if fault.CodeOf(err) == fault.NotFound {
			return nil, fault.Invalid("gateway_id", "there is no such gateway")
		}
		if err != nil {
			return nil, err
		}
	}
	unknown := &Verification{Code: string(fault.KeyInvalid)}
	if _, ok := apikey.LevelOf(q.secret); !ok {
		return unknown, nil
	}
	k, err := tx.KeyByDigest(ctx, apikey.DigestOf(q.secret))
	if fault.CodeOf(err) == fault.NotFound || err == nil && k.AccountID != c.Account.ID {
		return unknown, nil
	}
	if err != nil {
		return nil, err
	}
	v := &Verification{Key: k, State: k.State(s.now())}
	v.Code = string(q.refusal(k, v.State))
	v.Valid = v.Code == ""
	return v, nil
}

// refusal checks in the order of the data plane (contract, 4.2). It returns "" for a key that would
// be accepted.
func (q *keyCheck) refusal(k *apikey.Key, state apikey.State) fault.AuthCode {
	switch {
	case state == apikey.Revoked || k.Level == apikey.AccountLevel && q.gatewayID != "":
		return fault.KeyInvalid
	case state == apikey.Expired:
		return fault.KeyExpired
	case q.gatewayID != "" && k.GatewayID != "" && k.GatewayID != q.gatewayID:
		return fault.ScopeInsufficient
	case !q.allowedBy(k):
		return fault.ScopeInsufficient
	default:
		return ""
	}
}

func (q *keyCheck) allowedBy(k *apikey.Key) bool {
	if q.method != "" && !k.Scope.Word.AllowsMethod(q.method) {
		return false
	}
	if q.path == "" {
		return true
	}
	path := q.path
	if k.Level == apikey.AccountLevel { // its resource is matched against the path after /v1
		if below, ok := strings.CutPrefix(path, "/v1/"); ok {
			path = "/" + below
		}
	}
	scope := k.Scope
	scope.Resource = gateway.NormalizePath(nil, scope.Resource)
	return scope.Allows("GET", path) // every word allows GET, so this checks the path only
}
