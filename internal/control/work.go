package control

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/event"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/snapshot"
)

// How long the data plane may take to apply a committed change, and how long to wait between
// attempts.
const (
	publishWithin = 5 * time.Second
	publishRetry  = 50 * time.Millisecond
)

// work is one operation inside its transaction. Its methods write the records that accompany each
// change.
type work struct {
	Tx
	caller  *Caller
	key     *apikey.Key // the calling key, as of this transaction; nil for an offline command
	now     time.Time
	publish bool     // the data plane must apply a change
	wake    bool     // there may be new deliveries
	recall  []string // the webhook endpoints that were changed or deleted, or must wait
}

// inTx runs f in one transaction, which writes all of f's state, audit records, events and change log
// entries and the stored response to a call with an Idempotency-Key, or nothing. If there is a change
// log entry, inTx then waits until the data plane has applied it, even if the caller hangs up. f may run
// more than once, so it must not keep state outside of w.
func inTx[T any](ctx context.Context, s *Service, c *Caller, f func(w *work) (T, error)) (T, error) {
	return inTxOnly(ctx, s, c, func(w *work) (result T, err error) {
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

var errOnlyChecked = errors.New("the input was only checked")

// inTxOnly is inTx without storing a response, for the transactions of an operation before its last.
func inTxOnly[T any](ctx context.Context, s *Service, c *Caller, f func(w *work) (T, error)) (T, error) {
	var result T
	if onlyChecks(ctx) {
		return result, errOnlyChecked
	}
	var touched, wake bool
	var recall []string
	err := s.cfg.Store.Update(ctx, func(tx Tx) error {
		w := &work{Tx: tx, caller: c, now: s.now()}
		err := w.admitCaller(ctx)
		if err != nil {
			return err
		}
		if err := w.rejectRepeat(ctx); err != nil {
			return err
		}
		result, err = f(w)
		touched, wake, recall = w.publish, w.wake, w.recall
		return err
	})
	// If the caller hangs up during the commit, the result of the commit is unknown. Publishing
	// without a change does no harm.
	mayBe := err == nil || ctx.Err() != nil
	for _, webhookID := range recall {
		if mayBe {
			s.cfg.Recall(webhookID)
		}
	}
	if wake && mayBe {
		s.cfg.Wake()
	}
	if touched && mayBe {
		err = errors.Join(err, s.publish(ctx))
	}
	if err != nil {
		var none T
		return none, err
	}
	return result, nil
}

// read runs f over one consistent state of the store.
func read[T any](ctx context.Context, s *Service, f func(tx ReadTx) (T, error)) (T, error) {
	var result T
	err := s.cfg.Store.View(ctx, func(tx ReadTx) (err error) {
		result, err = f(tx)
		return err
	})
	if err != nil {
		var none T
		return none, err
	}
	return result, nil
}

// publish waits until the data plane of this node has applied the committed changes. It goes on if the
// caller hangs up, because the change is stored. If it fails, the error says so; the data plane follows
// the change log and applies the change later.
func (s *Service) publish(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), publishWithin)
	defer cancel()
	for {
		err := s.cfg.Publisher.CatchUp(ctx)
		if err == nil {
			return nil
		}
		s.cfg.Log.WarnContext(ctx, "committed change not applied yet", "error", err)
		wait := time.NewTimer(publishRetry)
		select {
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
			return &fault.Error{
				Code:    fault.Unavailable,
				Message: "the change is stored but not in force yet: do not repeat the call, read the record to check",
				Err:     fmt.Errorf("publish a committed change: %w", err),
			}
		}
	}
}

// admitCaller checks the calling key again. It may have been revoked after it was authenticated, or its
// account suspended, and a key that it creates now would outlive it.
func (w *work) admitCaller(ctx context.Context) error {
	if w.caller.KeyID == "" {
		return nil
	}
	a, err := w.Account(ctx, w.caller.Account.ID)
	if err != nil && fault.CodeOf(err) != fault.NotFound {
		return err
	}
	active := err == nil && a.State == account.Active
	k, err := w.Key(ctx, w.caller.Account.ID, w.caller.KeyID)
	if err != nil && fault.CodeOf(err) != fault.NotFound {
		return err
	}
	if err != nil || !active || k.State(w.now) == apikey.Revoked {
		return &fault.Error{Code: fault.Unauthorized, Auth: fault.KeyInvalid, Message: "the key is not valid"}
	}
	if k.State(w.now) == apikey.Expired {
		return &fault.Error{Code: fault.Unauthorized, Auth: fault.KeyExpired, Message: "the key has expired"}
	}
	w.key = k
	return nil
}

// audit writes the audit record of a management action on target. gatewayID is the gateway that it
// concerns, or "".
func (w *work) audit(ctx context.Context, a audit.Action, target, gatewayID string, diff audit.Diff) error {
	return w.AppendAudit(ctx, w.auditRecord(a, target, gatewayID, diff))
}

func (w *work) auditRecord(a audit.Action, target, gatewayID string, diff audit.Diff) *audit.Record {
	return &audit.Record{
		AccountID:  w.caller.Account.ID,
		Time:       w.now,
		Kind:       audit.Management,
		Outcome:    audit.Success,
		KeyPrefix:  w.caller.KeyPrefix,
		KeyID:      w.caller.KeyID,
		GatewayID:  gatewayID,
		Method:     w.caller.Method,
		Path:       w.caller.Path,
		ClientIP:   w.caller.ClientIP,
		RequestID:  w.caller.RequestID,
		Action:     a,
		Target:     target,
		ActorKeyID: w.caller.KeyID,
		Diff:       diff,
	}
}

// raise stores an event of the caller's account.
func (w *work) raise(ctx context.Context, t event.Type, data any) error {
	w.wake = true
	return raise(ctx, w.Tx, w.caller.Account.ID, t, w.now, data)
}

func raise(ctx context.Context, tx Tx, accountID string, t event.Type, at time.Time, data any) error {
	e, err := event.New(accountID, t, at, data)
	if err != nil {
		return err
	}
	return tx.AppendEvent(ctx, &e)
}

// changed appends an entry to the change log.
func (w *work) changed(ctx context.Context, k snapshot.ChangeKind, recordID string) error {
	w.publish = true
	return w.AppendChange(ctx, k, recordID)
}

// require returns fault.PreconditionFailed unless version satisfies m.
func require(m Match, version int64) error {
	if m == nil || m(version) {
		return nil
	}
	return fault.New(fault.PreconditionFailed, "the record has changed since it was read: read it again, then repeat the call with its new ETag")
}
