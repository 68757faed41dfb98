package control

import (
	"context"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/audit"
)

// RecordTry writes the audit record of a request that is about to be sent to a gateway for the actor. path is without
// the query; a key in it is not recorded. If the account has no such gateway, the error is fault.NotFound.
func (s *Service) RecordTry(ctx context.Context, actor *Actor, gatewayID, method, path string) error {
	_, err := inTx(ctx, s, actor, func(w *work) (struct{}, error) {
		g, err := w.Gateway(ctx, actor.Account.ID, gatewayID)
		if err != nil {
			return struct{}{}, err
		}
		return struct{}{}, w.audit(ctx, audit.GatewayTry, g.ID, g.ID, audit.Diff{"method": {nil, method}, "path": {nil, apikey.Redact(path)}})
	})
	return err
}
