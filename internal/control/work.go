package control

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/event"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/snapshot"
)

// How long a committed change may wait until the data plane has it in force,
// and how long to wait between attempts.
const (
	publishWithin = 5 * time.Second
	publishRetry  = 50 * time.Millisecond
)

// work is one operation inside its transaction: what it reads, and the records
// that go with what it changes.
type work struct {
	Tx
	caller  *Caller
	key     *apikey.Key // the calling key as it stands in this transaction; nil for an offline command
	now     time.Time
	publish bool   // something changed that the data plane holds a copy of
	wake    bool   // something may wait to be delivered
	recall  string // the endpoint that was changed or deleted; "" if none was
}

// inTx runs f as one change: f's state, audit records, events and change
// log entries, and the answer to keep for a call with an Idempotency-Key, are
// written in one transaction or not at all. If anything was touched it then
// waits until the change is in force, whether or not the caller still waits.
// f may run more than once; it must take all that it remembers from w.
func inTx[T any](ctx context.Context, s *Service, c *Caller, f func(w *work) (T, error)) (T, error) {
	return inTxOnly(ctx, s, c, func(w *work) (result T, err error) {
		if result, err = f(w); err == nil {
			err = w.storeResponse(ctx, result)
		}
		return result, err
	})
}

// inTxOnly is carryOut without an answer to keep: for an operation that takes
// several transactions, the last of which is carryOut's.
func inTxOnly[T any](ctx context.Context, s *Service, c *Caller, f func(w *work) (T, error)) (T, error) {
	var result T
	touched, wake, recall := false, false, ""
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
	// A caller that leaves during the commit cannot tell whether it happened,
	// and neither can we: publishing what may not be there does no harm.
	mayBe := err == nil || ctx.Err() != nil
	if recall != "" && mayBe {
		s.cfg.Recall(recall)
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

// read runs f over one consistent state.
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

// publish waits until what was committed is in force on this node. The change
// is stored by now, so that it goes on when the caller leaves, and says so when
// it fails: the data plane follows the change log by itself later on.
func (s *Service) publish(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), publishWithin)
	defer cancel()
	for {
		err := s.cfg.Publisher.CatchUp(ctx)
		if err == nil {
			return nil
		}
		s.cfg.Log.WarnContext(ctx, "a committed change is not yet in force", "error", err)
		wait := time.NewTimer(publishRetry)
		select {
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
			return &fault.Error{
				Code:    fault.Unavailable,
				Message: "the change is stored and will take effect, but it is not in force yet; do not repeat the call, read the record instead",
				Err:     fmt.Errorf("publish a committed change: %w", err),
			}
		}
	}
}

// admitCaller reads the calling key anew: between the moment at which the call
// was let in and this transaction it may have been revoked, and what it makes
// now would outlive it.
func (w *work) admitCaller(ctx context.Context) error {
	if w.caller.KeyID == "" {
		return nil
	}
	k, err := w.Key(ctx, w.caller.Account.ID, w.caller.KeyID)
	if err != nil && fault.CodeOf(err) != fault.NotFound {
		return err
	}
	if err != nil || k.State(w.now) == apikey.Revoked {
		return &fault.Error{Code: fault.Unauthorized, Auth: fault.KeyInvalid, Message: "the key is not valid"}
	}
	if k.State(w.now) == apikey.Expired {
		return &fault.Error{Code: fault.Unauthorized, Auth: fault.KeyExpired, Message: "the key has expired"}
	}
	w.key = k
	return nil
}

// audit writes the record of a management action on target. gatewayID is the
// gateway that it concerns, or "".
func (w *work) audit(ctx context.Context, a audit.Action, target, gatewayID string, diff audit.Diff) error {
	return w.AppendAudit(ctx, &audit.Record{
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
	})
}

// raise writes an event of the caller's account.
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

// changed writes an entry of the change log.
func (w *work) changed(ctx context.Context, k snapshot.ChangeKind, recordID string) error {
	w.publish = true
	return w.AppendChange(ctx, k, recordID)
}

// require returns fault.PreconditionFailed unless version meets the call's
// condition.
func require(m Match, version int64) error {
	if m == nil || m(version) {
		return nil
	}
	return fault.New(fault.PreconditionFailed, "the record has changed since it was read: read it again, then repeat the call with its new ETag")
}
