package control

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/event"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/service"
	"github.com/keygate/keygate/internal/snapshot"
)

// How long a call waits for the data plane to apply its change, and how long between attempts. A
// large route table takes seconds on a busy machine, and waits for others.
const (
	publishWithin      = 5 * time.Second
	publishTableWithin = time.Minute
	publishRetry       = 50 * time.Millisecond
)

// work is one operation inside its transaction. Its methods write the records that accompany each
// change.
type work struct {
	Tx
	actor      *Actor
	bounds     *AccountBounds
	now        time.Time
	changes    []snapshot.Change // that the data plane must apply
	wake       bool              // there may be new deliveries
	operatorID *string           // see operatorOf
	sized      bool              // the size of the configuration is noted; see mayGrow
}

// inTx runs f in one transaction, which writes all of f's state, audit records, events and change log
// entries and the stored response to a call with an Idempotency-Key, or nothing. If there is a change
// log entry, inTx then waits until the data plane has applied it, even if the caller hangs up. With several
// nodes it waits, even if nothing changed, until everything that the transaction has seen is in force on
// all nodes. f may run more than once, so it must not keep state outside of w.
func inTx[T any](ctx context.Context, s *Service, actor *Actor, f func(w *work) (T, error)) (T, error) {
	return inTxOnly(ctx, s, actor, func(w *work) (result T, err error) {
		if result, err = f(w); err == nil {
			err = w.storeResponse(ctx, result)
		}
		return result, err
	})
}

// OnlyCheck returns the context for an operation whose request is known to be invalid. The operation
// checks its input and returns what is wrong with it; if it finds nothing, it fails instead of
// beginning its transaction.
func OnlyCheck(ctx context.Context) context.Context {
	return context.WithValue(ctx, onlyCheckKey{}, true)
}

type onlyCheckKey struct{}

func onlyChecks(ctx context.Context) bool { return ctx.Value(onlyCheckKey{}) != nil }

// checked returns the error of an operation that only checks its input: invalid, together with what check finds in the
// store.
func (s *Service) checked(ctx context.Context, actor *Actor, invalid error, check func(tx ReadTx) error) error {
	_, bad := read(ctx, s, actor, func(tx ReadTx) (any, error) { return nil, check(tx) })
	return cmp.Or(fault.Join(invalid, bad), errOnlyChecked)
}

var errOnlyChecked = errors.New("the input was only checked")

// inTxOnly is inTx without storing a response, for the transactions of an operation before its last.
func inTxOnly[T any](ctx context.Context, s *Service, actor *Actor, f func(w *work) (T, error)) (T, error) {
	var result T
	if onlyChecks(ctx) {
		return result, errOnlyChecked
	}
	if err := actor.check(); err != nil {
		return result, err
	}
	var changes []snapshot.Change
	var wake bool
	var head snapshot.Position
	var number int64 // of the account's newest change
	err := s.cfg.Store.Update(ctx, func(tx Tx) error {
		w := &work{Tx: tx, actor: actor, bounds: &s.cfg.Bounds, now: s.now()}
		if shared, ok := tx.(CommitReporter); ok {
			shared.OnCommit(actor.Account.ID, func(p snapshot.Position, ofAccount int64) { head, number = p, ofAccount })
		}
		err := w.admitActor(ctx)
		if err != nil {
			return err
		}
		if err := w.rejectRepeat(ctx); err != nil {
			return err
		}
		if result, err = f(w); err == nil {
			err = w.checkGrowth(ctx)
		}
		changes, wake = w.changes, w.wake
		return err
	})
	err = notStored(ctx, err)
	// If the caller hangs up or the store goes away during the commit, the result of the commit is
	// unknown. Publishing without a change does no harm.
	mayBe := err == nil || ctx.Err() != nil || errors.Is(err, ErrInDoubt)
	giveNumbers(changes, head.Number)
	if wake && mayBe {
		s.cfg.Wake()
	}
	if len(changes) > 0 && mayBe {
		err = errors.Join(err, s.publish(ctx, changes))
	}
	if err == nil {
		err = s.confirm(ctx, head, number)
	}
	if err != nil {
		var none T
		return none, err
	}
	return result, nil
}

// giveNumbers gives a number to each of changes that has none yet, because the store has several nodes: the number of
// the newest change or, if that is not known, a number that the change log does not reach.
func giveNumbers(changes []snapshot.Change, newest int64) {
	for i := range changes {
		if changes[i].Seq == 0 {
			changes[i].Seq = cmp.Or(newest, math.MaxInt64)
		}
	}
}

// notStored adds to a 503 of the store that nothing was changed: a transaction that failed is rolled
// back. err is returned as it is if the result of the commit is unknown.
func notStored(ctx context.Context, err error) error {
	var public *fault.Error
	if !errors.As(err, &public) || public.Code != fault.Unavailable || ctx.Err() != nil || errors.Is(err, ErrInDoubt) {
		return err
	}
	return &fault.Error{Code: fault.Unavailable, Message: strings.TrimSuffix(public.Message, ".") + ". Nothing was changed", Err: err}
}

// read runs f over one consistent state of the store, for a call of actor.
func read[T any](ctx context.Context, s *Service, actor *Actor, f func(tx ReadTx) (T, error)) (result T, err error) {
	if err := actor.check(); err != nil {
		return result, err
	}
	return view(ctx, s, f)
}

// readOf is read for what belongs to a gateway of the actor's account. If there is no such gateway, the error is
// fault.NotFound.
func readOf[T any](ctx context.Context, s *Service, actor *Actor, gatewayID string, f func(tx ReadTx, g *gateway.Gateway) (T, error)) (T, error) {
	return read(ctx, s, actor, func(tx ReadTx) (result T, err error) {
		g, err := tx.Gateway(ctx, actor.Account.ID, gatewayID)
		if err != nil {
			return result, err
		}
		return f(tx, g)
	})
}

// search does what read does, for reads that may take long.
func search[T any](ctx context.Context, s *Service, actor *Actor, f func(tx ReadTx) (T, error)) (result T, err error) {
	if err := actor.check(); err != nil {
		return result, err
	}
	return readIn(ctx, s.cfg.Store.Search, f)
}

// view does what read does, for work without an actor.
func view[T any](ctx context.Context, s *Service, f func(tx ReadTx) (T, error)) (T, error) {
	return readIn(ctx, s.cfg.Store.View, f)
}

func readIn[T any](ctx context.Context, view func(context.Context, func(ReadTx) error) error, f func(tx ReadTx) (T, error)) (T, error) {
	var result T
	err := view(ctx, func(tx ReadTx) (err error) {
		result, err = f(tx)
		return err
	})
	if err != nil {
		var none T
		return none, err
	}
	return result, nil
}

// publish waits until the data plane of this node has applied the changes, which are committed. It goes on
// if the caller hangs up, because they are stored. If it fails, the error says so, and what holds
// meanwhile. The data plane follows the change log and applies the changes later.
func (s *Service) publish(ctx context.Context, changes []snapshot.Change) error {
	within := publishWithin
	for _, c := range changes {
		if c.Kind == snapshot.GatewayChange {
			within = publishTableWithin
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), within)
	defer cancel()
	for {
		err := s.cfg.Publisher.CatchUp(ctx, changes...)
		if err == nil {
			return nil
		}
		s.cfg.Log.WarnContext(ctx, "committed change not applied yet", "error", err)
		if !service.Wait(ctx, publishRetry) {
			return &fault.Error{
				Code:    fault.Unavailable,
				Message: notInForce(changes),
				Err:     fmt.Errorf("publish a committed change: %w", err),
			}
		}
	}
}

// notInForce says what is true after changes were committed and could not be applied.
func notInForce(changes []snapshot.Change) string {
	meanwhile := "the gateway works as before the call"
	for _, c := range changes {
		switch {
		case c.Kind == snapshot.WebhookChange && meanwhile[0] == 't':
			meanwhile = "the endpoint may still get deliveries as it was before the call"
		case c.Kind == snapshot.OwnerChange && meanwhile[0] != 'k':
			meanwhile = "the owner's keys work as before the call: those of one that was suspended are still accepted"
		case c.Kind == snapshot.IssuerChange && meanwhile[0] != 'k':
			meanwhile = "tokens of the issuer are accepted as before the call"
		case c.Kind == snapshot.DenialChange && meanwhile[0] != 'k':
			meanwhile = "tokens of the issuer are accepted as before the call: those that were denied, too"
		case c.Kind == snapshot.PlanChange && meanwhile[0] != 'k':
			meanwhile = "the limits of the plan are those of before the call"
		case c.Kind == snapshot.KeyChange, c.Kind == snapshot.HolderChange, c.Kind == snapshot.ConcurrencyChange, c.Kind == snapshot.ImportChange, c.Kind == snapshot.AddressChange:
			meanwhile = "keys work as before the call: one that was revoked or has a new expiry is still accepted as it was, and a new one is not accepted yet"
		case c.Kind == snapshot.AccountChange && meanwhile[0] != 'k':
			meanwhile = "the account's keys and gateways work as before the call"
		}
	}
	return "the change is stored but not in force yet. Until then, " + meanwhile +
		". Keygate tries again several times a second; do not repeat the call"
}

// admitActor looks at a calling key again. It may have been revoked after it was authenticated, or its account
// suspended, and a key that it creates now would outlive it.
func (w *work) admitActor(ctx context.Context) error {
	if w.actor.Kind == UserActor {
		return w.admitUser(ctx)
	}
	if w.actor.Kind != KeyActor && w.actor.Kind != HolderActor {
		return nil
	}
	a, err := w.Account(ctx, w.actor.Account.ID)
	if err != nil && fault.CodeOf(err) != fault.NotFound {
		return err
	}
	active := err == nil && a.State == account.Active
	k, err := w.Key(ctx, w.actor.Account.ID, w.actor.KeyID)
	if err != nil && fault.CodeOf(err) != fault.NotFound {
		return err
	}
	if err != nil || !active || k.State(w.now) == apikey.Revoked {
		return &fault.Error{Code: fault.Unauthorized, Auth: fault.KeyInvalid, Message: "the key is not valid"}
	}
	if k.State(w.now) == apikey.Expired {
		return &fault.Error{Code: fault.Unauthorized, Auth: fault.KeyExpired, Message: "the key has expired"}
	}
	return nil
}

// audit writes the audit record of a management action on target. gatewayID is the gateway that it
// concerns, or "".
func (w *work) audit(ctx context.Context, a audit.Action, target, gatewayID string, diff audit.Diff) error {
	return w.AppendAudit(ctx, w.auditRecord(a, target, gatewayID, diff))
}

func (w *work) auditRecord(a audit.Action, target, gatewayID string, diff audit.Diff) *audit.Record {
	return &audit.Record{
		AccountID:  w.actor.Account.ID,
		Time:       w.now,
		Kind:       audit.Management,
		Outcome:    audit.Success,
		KeyPrefix:  w.actor.KeyPrefix,
		KeyID:      w.actor.KeyID,
		GatewayID:  gatewayID,
		Method:     w.actor.Method,
		Path:       w.actor.Path,
		ClientIP:   w.actor.ClientIP,
		RequestID:  w.actor.RequestID,
		Action:     a,
		Target:     target,
		ActorKeyID: w.actor.KeyID,
		Actor:      w.actor.other(),
		Diff:       diff,
	}
}

// raise stores an event of the actor's account.
func (w *work) raise(ctx context.Context, t event.Type, data any) error {
	w.wake = true
	return raise(ctx, w.Tx, w.actor.Account.ID, t, w.now, data)
}

func raise(ctx context.Context, tx Tx, accountID string, t event.Type, at time.Time, data any) error {
	e, err := event.New(accountID, t, at, data)
	if err != nil {
		return err
	}
	return tx.AppendEvent(ctx, &e)
}

// routeChanged appends an entry about one route to the change log.
func (w *work) routeChanged(ctx context.Context, r *gateway.Route) error {
	if r.Auth.TakesTokens() { // earlier versions would let keys pass
		if err := w.changed(ctx, snapshot.UpstreamChange, r.GatewayID); err != nil {
			return err
		}
	}
	return w.changed(ctx, snapshot.RouteChange, snapshot.RouteChangeID(r.GatewayID, r.ID))
}

// changed appends an entry to the change log.
func (w *work) changed(ctx context.Context, k snapshot.ChangeKind, recordID string) error {
	seq, err := w.AppendChange(ctx, k, recordID)
	w.changes = append(w.changes, snapshot.Change{Seq: seq, Kind: k, ID: recordID})
	return err
}

// allChanged appends an entry about each of the records to the change log. There may be none.
func (w *work) allChanged(ctx context.Context, k snapshot.ChangeKind, recordIDs []string) error {
	if len(recordIDs) == 0 {
		return nil
	}
	first, err := w.AppendChanges(ctx, k, recordIDs)
	for i, recordID := range recordIDs {
		c := snapshot.Change{Kind: k, ID: recordID}
		if first > 0 {
			c.Seq = first + int64(i)
		}
		w.changes = append(w.changes, c)
	}
	return err
}

// revoked appends the revocation of a key to the change log.
func (w *work) revoked(ctx context.Context, k *apikey.Key) error {
	seq, err := w.AppendRevocation(ctx, k.ID, k.Digest)
	w.changes = append(w.changes, snapshot.Change{Seq: seq, Kind: snapshot.KeyChange, ID: k.ID})
	return err
}

// require returns fault.PreconditionFailed unless version satisfies m.
func require(m Match, version int64) error {
	if m == nil || m(version) {
		return nil
	}
	return fault.New(fault.PreconditionFailed, "the record has changed since it was read: read it again, then repeat the call with its new ETag")
}
