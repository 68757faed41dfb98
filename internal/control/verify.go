package control

import (
	"context"
	"strings"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
)

// VerifyKey tells whether a key would be let in: to the gateway, the method and
// the path, as far as they are given ("" if not). It charges nothing and writes
// nothing but, for a call with an Idempotency-Key, the answer. A key of another
// account is as unknown as one that never was.
//
// An account-level key is not let in to any gateway; without one, the path is
// one of the management API.
func (s *Service) VerifyKey(ctx context.Context, c *Caller, secret, gatewayID, method, path string) (*Verification, error) {
	q := question{secret: secret, gatewayID: gatewayID, method: method, path: path}
	if err := q.check(); err != nil {
		return nil, err
	}
	if idempotencyOf(ctx) != nil {
		return inTx(ctx, s, c, func(w *work) (*Verification, error) { return s.verify(ctx, w, c, q) })
	}
	return read(ctx, s, func(tx ReadTx) (*Verification, error) { return s.verify(ctx, tx, c, q) })
}

// question is what VerifyKey is asked.
type question struct {
	secret, gatewayID, method, path string
}

// check brings the path into the form that scopes are matched against.
func (q *question) check() error {
	if q.secret == "" {
		return fault.Invalid("key", "is required")
	}
	if q.method != "" && !isMethodName(q.method) {
		return fault.Invalid("method", "must be a method in capitals, as in GET")
	}
	if q.path == "" {
		return nil
	}
	q.path, _, _ = strings.Cut(q.path, "?")
	// What the data plane refuses unread must not be told to be allowed: a
	// server that reads the path otherwise would take it somewhere else.
	if err := gateway.CheckPath(q.path); err != nil {
		return fault.Prefixed("path", err)
	}
	q.path = gateway.NormalizePath(nil, q.path)
	return nil
}

func isMethodName(s string) bool {
	return len(s) <= gateway.MaxMethod && strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") == ""
}

func (s *Service) verify(ctx context.Context, tx ReadTx, c *Caller, q question) (*Verification, error) {
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

// refusal asks in the order of the data plane (contract, 4.2).
func (q *question) refusal(k *apikey.Key, state apikey.State) fault.AuthCode {
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

func (q *question) allowedBy(k *apikey.Key) bool {
	if q.method != "" && !k.Scope.Word.AllowsMethod(q.method) {
		return false
	}
	if q.path == "" {
		return true
	}
	path := q.path
	if k.Level == apikey.AccountLevel { // matched against what follows /v1
		if below, ok := strings.CutPrefix(path, "/v1/"); ok {
			path = "/" + below
		}
	}
	scope := k.Scope
	scope.Resource = gateway.NormalizePath(nil, scope.Resource)
	return scope.Allows("GET", path) // every word allows GET: this asks for the path alone
}
