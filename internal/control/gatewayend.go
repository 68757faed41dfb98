package control

import (
	"context"
	"errors"
	"time"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/snapshot"
	"github.com/keygate/keygate/internal/user"
)

// EndedGateway is a gateway whose deletion is not finished: it is gone, and the keys that are restricted to it are
// refused, but not all of them are stored as revoked, or not all of its routes are in the audit log.
type EndedGateway struct {
	ID, AccountID string
	At            time.Time // when it was deleted
	Call          RecordedCall
	RoutesTo      string // identifier of the last route in the audit log; "" for none
}

// RecordedCall is a call that goes on after its response, for the audit records that it writes then.
type RecordedCall struct {
	Kind                                                ActorKind
	KeyID, KeyPrefix, Method, Path, ClientIP, RequestID string

	UserID, UserName string    `json:",omitempty"`
	UserRole         user.Role `json:",omitempty"`
}

// One transaction revokes up to endedKeys keys and writes the audit records of up to endedRoutes routes. The call that
// deletes the gateway waits for up to endAtOnce further transactions; the maintenance carries out the rest.
const (
	endedKeys   = 50
	endedRoutes = 150
	endAtOnce   = 10
)

// endedList is how many deleted gateways the maintenance reads at once.
const endedList = 100

// DeleteGateway deletes a gateway with its routes and revisions, and revokes the keys that are
// restricted to it, each with its event and audit record. If the account default has one gateway left,
// that one becomes the default gateway. DeleteGateway returns the gateway as it was.
//
// When it returns, all of the keys are refused and are shown as revoked. If there are many keys or routes, their
// events and audit records are still being written, some in each transaction; a crash only delays this.
func (s *Service) DeleteGateway(ctx context.Context, actor *Actor, gatewayID string, m Match) (*gateway.Gateway, error) {
	if err := actor.authenticatedLately(); err != nil {
		return nil, err
	}
	more := false
	g, err := inTx(Urgent(ctx), s, actor, func(w *work) (*gateway.Gateway, error) {
		g, err := s.gateway(ctx, w, actor, gatewayID)
		if err != nil {
			return nil, err
		}
		if err := require(m, g.Version); err != nil {
			return nil, err
		}
		e := EndedGateway{ID: g.ID, AccountID: g.AccountID, At: w.now, Call: callOf(actor)}
		if err := w.EndGateway(ctx, &e); err != nil {
			return nil, err
		}
		if more, err = w.endSome(ctx, &e); err != nil {
			return nil, err
		}
		if err := w.auditRepositoryOf(ctx, g.ID); err != nil {
			return nil, err
		}
		last, err := w.lastBeside(ctx, g)
		if err != nil {
			return nil, err
		}
		if err := w.meetCertificate(ctx, g, nil); err != nil {
			return nil, err
		}
		if err := w.DeleteGateway(ctx, actor.Account.ID, g.ID); err != nil {
			return nil, err
		}
		if err := w.audit(ctx, audit.GatewayDelete, g.ID, g.ID, gatewayDiff(g, nil)); err != nil {
			return nil, err
		}
		if err := w.changed(ctx, snapshot.GatewayChange, g.ID); err != nil {
			return nil, err
		}
		if last != nil && !last.Default {
			err = w.setDefault(ctx, last, true)
		}
		return g, err
	})
	if err != nil {
		return nil, err
	}
	if s.cfg.Repositories != nil {
		s.cfg.Repositories.Changed(actor.Account.ID, gatewayID)
	}
	if more {
		if err := s.endGateway(ctx, gatewayID, endAtOnce); err != nil {
			s.cfg.Log.WarnContext(ctx, "not all keys and routes of a deleted gateway are recorded yet; the maintenance goes on", "gateway_id", gatewayID, "error", err)
		}
	}
	return g, nil
}

// endSome goes on with the deletion of a gateway. more reports whether there is more to do; otherwise the deletion is
// finished.
func (w *work) endSome(ctx context.Context, e *EndedGateway) (more bool, err error) {
	keys, err := w.KeysToRevoke(ctx, e.ID, endedKeys)
	if err != nil {
		return false, err
	}
	for i := range keys {
		if _, err := w.revoke(ctx, &keys[i], e.At); err != nil {
			return false, err
		}
	}
	if len(keys) == endedKeys {
		return true, nil
	}
	routes, err := w.EndedRoutes(ctx, e, endedRoutes)
	if err != nil {
		return false, err
	}
	for i := range routes {
		if err := w.audit(ctx, audit.RouteDelete, routes[i].ID, e.ID, routeDiff(&routes[i], nil)); err != nil {
			return false, err
		}
	}
	if len(routes) == endedRoutes {
		e.RoutesTo = routes[endedRoutes-1].ID
		return true, w.UpdateEndedGateway(ctx, e)
	}
	return false, w.FinishGateway(ctx, e.ID)
}

// endGateway goes on with the deletion of a gateway in up to the given number of transactions, so that other changes
// wait only briefly.
func (s *Service) endGateway(ctx context.Context, gatewayID string, transactions int) error {
	for more := true; more && transactions > 0; transactions-- {
		err := s.cfg.Store.Update(ctx, func(tx Tx) error {
			e, err := tx.EndedGateway(ctx, gatewayID)
			if more = e != nil; err != nil || !more {
				return err
			}
			w := &work{Tx: tx, actor: e.Call.actor(e.AccountID), bounds: &s.cfg.Bounds, now: s.now()}
			more, err = w.endSome(ctx, e)
			return err
		})
		if err != nil {
			return err
		}
		s.cfg.Wake()
	}
	return nil
}

func callOf(a *Actor) RecordedCall {
	c := RecordedCall{Kind: a.Kind, KeyID: a.KeyID, KeyPrefix: a.KeyPrefix, Method: a.Method, Path: a.Path, ClientIP: a.ClientIP, RequestID: a.RequestID}
	if a.User != nil {
		c.UserID, c.UserName, c.UserRole = a.User.ID, a.User.Label(), a.User.Role
	}
	return c
}

// actor returns who made the call.
func (c *RecordedCall) actor(accountID string) *Actor {
	by := &Actor{
		Kind: c.Kind, Account: &account.Account{ID: accountID}, KeyID: c.KeyID, KeyPrefix: c.KeyPrefix,
		Method: c.Method, Path: c.Path, ClientIP: c.ClientIP, RequestID: c.RequestID,
	}
	if c.UserID != "" {
		by.User = &user.User{ID: c.UserID, Name: c.UserName, Role: c.UserRole}
	}
	return by
}

// FinishDeletions goes on with the deletion of gateways, in turn one transaction for each, until all are finished.
func (s *Service) FinishDeletions(ctx context.Context) error {
	for {
		list, err := view(ctx, s, func(tx ReadTx) ([]EndedGateway, error) { return tx.EndedGateways(ctx, endedList) })
		if err != nil || len(list) == 0 {
			return err
		}
		for i := range list {
			err = errors.Join(err, s.endGateway(ctx, list[i].ID, 1))
		}
		if err != nil {
			return err
		}
	}
}
