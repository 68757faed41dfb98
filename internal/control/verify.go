package control

import (
	"context"
	"slices"
	"strings"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/owner"
)

// VerifyKey reports whether a key would be accepted for a gateway, method and path; each may be "" if it
// does not matter. It charges no limit, and writes nothing except the response to a call with an
// Idempotency-Key. A key of another account is reported like a key that does not exist.
//
// An account-level key is not accepted for any gateway. Without a gateway, the path is a path of
// the management API.
func (s *Service) VerifyKey(ctx context.Context, actor *Actor, secret, gatewayID, method, path string) (*Verification, error) {
	q := credentialCheck{field: "key", secret: secret, gatewayID: gatewayID, method: method, path: path}
	return s.verifyWith(ctx, actor, &q, s.verify)
}

// verifyWith checks q, and then verifies what it has.
func (s *Service) verifyWith(ctx context.Context, actor *Actor, q *credentialCheck, verify func(context.Context, ReadTx, *Actor, *credentialCheck) (*Verification, error)) (*Verification, error) {
	invalid := q.check()
	checked := func(tx ReadTx) (*Verification, error) {
		if err := q.checkGateway(ctx, tx, actor, invalid); err != nil {
			return nil, err
		}
		return verify(ctx, tx, actor, q)
	}
	if idempotencyOf(ctx) != nil {
		return inTx(ctx, s, actor, func(w *work) (*Verification, error) { return checked(w) })
	}
	return read(ctx, s, actor, checked)
}

// credentialCheck is the arguments of VerifyKey and VerifyToken.
type credentialCheck struct {
	field, secret           string // key or token
	gatewayID, method, path string

	gateway      *gateway.Gateway // with the gatewayID
	encodedSlash bool             // path has an encoded slash, which the gateway must allow
}

// check validates q and normalizes its path, as scopes are matched against normal forms.
func (q *credentialCheck) check() error {
	var badKey, badMethod, badPath error
	if q.secret == "" {
		badKey = fault.Invalid(q.field, "is required: give a key or a token")
	}
	if q.method != "" && !isMethodName(q.method) {
		badMethod = fault.Invalid("method", "must be a method in upper case, such as GET")
	}
	if q.path != "" {
		badPath = q.checkPath()
	}
	return fault.Join(badKey, badMethod, badPath)
}

func (q *credentialCheck) checkPath() error {
	q.path, _, _ = strings.Cut(q.path, "?")
	// A path that the data plane rejects as malformed must not be reported as allowed, because
	// another server might read it differently.
	problem, _, encoded := gateway.InspectRequestPath(q.path)
	if problem != "" {
		return fault.Invalid("path", "%s", problem)
	}
	if encoded && q.gatewayID == "" {
		return fault.Invalid("path", "%s: give the gateway_id of a gateway that allows it", gateway.EncodedSlash)
	}
	q.encodedSlash = encoded
	q.path = gateway.NormalizePath(nil, q.path)
	return nil
}

func isMethodName(s string) bool {
	return len(s) <= gateway.MaxMethod && strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") == ""
}

// checkGateway finds the gateway of q, and returns what is wrong with q beside invalid, the error of check.
func (q *credentialCheck) checkGateway(ctx context.Context, tx ReadTx, actor *Actor, invalid error) error {
	if q.gatewayID == "" {
		return invalid
	}
	g, err := tx.Gateway(ctx, actor.Account.ID, q.gatewayID)
	if err != nil {
		return fault.Join(invalid, absent(err, "gateway_id", "there is no such gateway"))
	}
	if q.gateway = g; q.encodedSlash && !g.Requests.AllowEncodedSlashes {
		invalid = fault.Join(invalid, fault.Invalid("path", "%s, which this gateway does not allow: see allow_encoded_slashes", gateway.EncodedSlash))
	}
	return invalid
}

// verify returns whether the key of q would be accepted.
func (s *Service) verify(ctx context.Context, tx ReadTx, actor *Actor, q *credentialCheck) (*Verification, error) {
	unknown := &Verification{Code: string(fault.KeyInvalid)}
	digest, ok := digestFor(actor.Account.ID, q.secret)
	if !ok {
		return unknown, nil
	}
	k, err := tx.KeyByDigest(ctx, digest)
	if fault.CodeOf(err) == fault.NotFound || err == nil && k.AccountID != actor.Account.ID {
		return unknown, nil
	}
	if err != nil {
		return nil, err
	}
	v := &Verification{Key: k, State: k.State(s.now())}
	suspended, err := ofSuspendedOwner(ctx, tx, k)
	if err != nil {
		return nil, err
	}
	v.Code = string(q.refusal(k, v.State, suspended))
	v.Valid = v.Code == ""
	return v, nil
}

// digestFor returns the digest under which an account may have the key with the string secret: one of Keygate's, or an
// imported one. ok is false if there is no such key, whatever is stored.
func digestFor(accountID, secret string) (d apikey.Digest, ok bool) {
	if _, own := apikey.LevelOf(secret); own {
		return apikey.DigestOf(secret), true
	}
	of, ok := id.Parse(id.Account, accountID)
	if !ok || !apikey.MayBeImported(secret) {
		return apikey.Digest{}, false
	}
	return apikey.ImportedDigest(of, apikey.DigestOf(secret)), true
}

// ofSuspendedOwner reports whether the owner of k is suspended and gateways refuse k for that. The management API does
// not look at the owners of keys.
func ofSuspendedOwner(ctx context.Context, tx OwnerReader, k *apikey.Key) (bool, error) {
	if k.OwnerID == "" || k.Level != apikey.GatewayLevel {
		return false, nil
	}
	o, err := tx.Owner(ctx, k.AccountID, k.OwnerID)
	if fault.CodeOf(err) == fault.NotFound { // deleted: then k is not active either
		return false, nil
	}
	return err == nil && o.State == owner.Suspended, err
}

// refusal checks in the order of the data plane (contract, 4.2). It returns "" for a key that would
// be accepted.
func (q *credentialCheck) refusal(k *apikey.Key, state apikey.State, suspended bool) fault.AuthCode {
	switch {
	case state == apikey.Revoked || k.Level == apikey.AccountLevel && q.gatewayID != "":
		return fault.KeyInvalid
	case state == apikey.Expired:
		return fault.KeyExpired
	case q.gatewayID != "" && k.GatewayID != "" && k.GatewayID != q.gatewayID:
		return fault.ScopeInsufficient
	case suspended:
		return fault.OwnerSuspended
	case !q.allowedBy(k):
		return fault.ScopeInsufficient
	default:
		return ""
	}
}

func (q *credentialCheck) allowedBy(k *apikey.Key) bool {
	path := q.path
	if k.Level == apikey.AccountLevel { // its resource is matched against the path after /v1
		if below, ok := strings.CutPrefix(path, "/v1/"); ok {
			path = "/" + below
		}
	}
	return q.allowedByScopes(k.Scope.Normal(), path)
}

// allowedByScopes reports whether one of the scopes, which are in normal form, allows the method on the path.
func (q *credentialCheck) allowedByScopes(scopes apikey.Scopes, path string) bool {
	return slices.ContainsFunc(scopes, func(s apikey.Scope) bool {
		return (q.method == "" || s.Word.AllowsMethod(q.method)) && (path == "" || s.Covers(path))
	})
}
