package control

import (
	"context"
	"errors"
	"slices"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/issuer"
	"github.com/keygate/keygate/internal/owner"
	"github.com/keygate/keygate/internal/token"
)

// VerifyToken is VerifyKey for a token: of an issuer that the gateway names or, without a gateway, of any issuer of the
// account. The keys of the issuer are those that are stored; none are fetched.
func (s *Service) VerifyToken(ctx context.Context, actor *Actor, compact, gatewayID, method, path string) (*Verification, error) {
	q := credentialCheck{field: "token", secret: compact, gatewayID: gatewayID, method: method, path: path}
	return s.verifyWith(ctx, actor, &q, s.verifyToken)
}

// verifyToken returns whether the token of q would be accepted, by the checks of the data plane in their order.
func (s *Service) verifyToken(ctx context.Context, tx ReadTx, actor *Actor, q *credentialCheck) (*Verification, error) {
	p, err := token.Check(q.secret, func(iss string) ([]*token.Issuer, error) { return issuersOf(ctx, tx, actor, q, iss) }, s.now())
	var refusal *token.Refusal
	switch {
	case errors.As(err, &refusal):
		v := &Verification{Code: string(fault.TokenInvalid), Refusal: refusal}
		if refusal.Expired() {
			v.Code = string(fault.TokenExpired)
		}
		return v, nil
	case err != nil:
		return nil, err
	}
	v := &Verification{Principal: p}
	suspended, err := isSuspended(ctx, tx, actor.Account.ID, p.Owner)
	switch {
	case err != nil:
		return nil, err
	case suspended:
		v.Code = string(fault.OwnerSuspended)
	case !q.allowedByScopes(p.Scopes, q.path):
		v.Code = string(fault.ScopeInsufficient)
	}
	v.Valid = v.Code == ""
	return v, nil
}

// issuersOf returns the issuers with the claim iss that q is about.
func issuersOf(ctx context.Context, tx ReadTx, actor *Actor, q *credentialCheck, iss string) (found []*token.Issuer, err error) {
	all, err := tx.Issuers(ctx, actor.Account.ID, IssuerFilter{}, Page{Limit: issuer.MaxIssuers})
	if err != nil {
		return nil, err
	}
	for n := range all {
		if all[n].URL != iss || q.gateway != nil && !slices.Contains(q.gateway.Requests.Issuers, all[n].Name) {
			continue
		}
		i, err := token.NewIssuer(&all[n], nil, nil, 0)
		if err != nil {
			return nil, err
		}
		found = append(found, i)
	}
	return found, nil
}

// isSuspended reports whether the account has an owner with the external ID that is suspended.
func isSuspended(ctx context.Context, tx OwnerReader, accountID, externalID string) (bool, error) {
	if externalID == "" {
		return false, nil
	}
	o, err := tx.OwnerByExternalID(ctx, accountID, externalID)
	if fault.CodeOf(err) == fault.NotFound {
		return false, nil
	}
	return err == nil && o.State == owner.Suspended, err
}
