package control

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/event"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/owner"
	"github.com/keygate/keygate/internal/plan"
	"github.com/keygate/keygate/internal/snapshot"
)

const (
	// importPiece is how many keys of an import one transaction stores, records or deletes. An import that has no more is one
	// transaction.
	importPiece = 100
	// importAttempts is how often an import begins anew because something that its keys name was deleted meanwhile.
	importAttempts = 3
	// importAbandoned is how many times in a row FinishImports must see an import of another node with as many pieces before
	// it gives the import up: a minute, with the period of the maintenance.
	importAbandoned = 60
	// giveUpWithin bounds how long a call that fails takes to delete its pieces. The maintenance deletes the rest.
	giveUpWithin = 10 * time.Second
	// importList is how many imports the maintenance reads at once.
	importList = 100
)

const importKind id.Kind = "imp"

// importTable is the imports in pieces that this process carries out. It is safe for concurrent use.
type importTable struct {
	calls *keyedLocks // by account: an account imports once at a time

	mu      sync.Mutex
	running map[string]bool
	seen    map[string]sighting // imports of other nodes that FinishImports has seen
}

// sighting is how many pieces an import had when FinishImports saw it last, and how many times in a row.
type sighting struct{ pieces, times int }

func newImportTable() *importTable {
	return &importTable{calls: newKeyedLocks(), running: map[string]bool{}, seen: map[string]sighting{}}
}

// run notes that this process carries an import out, until the caller calls end.
func (t *importTable) run(importID string) (end func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.running[importID] = true
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.running, importID)
	}
}

// abandoned returns those of the imports that are not complete and that nobody carries out any more. Without other nodes,
// this is known at once: an earlier process has begun them.
func (t *importTable) abandoned(list []KeyImport, shared bool) map[string]bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	over, seen := map[string]bool{}, map[string]sighting{}
	for i := range list {
		m := &list[i]
		if m.State != ImportWriting || t.running[m.ID] {
			continue
		}
		last := t.seen[m.ID]
		if last.pieces != m.Pieces {
			last = sighting{pieces: m.Pieces}
		}
		last.times++
		seen[m.ID] = last
		over[m.ID] = !shared || last.times > importAbandoned
	}
	t.seen = seen
	return over
}

func (t *importTable) isRunning(importID string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.running[importID]
}

var (
	// errStray means that a gateway, plan or owner of an imported key was deleted before the import was complete.
	errStray = errors.New("a gateway, plan or owner of an imported key was deleted")

	errImportGone = fault.New(fault.Unavailable, "the import took so long that another node has given it up. Nothing was imported: repeat the call")
)

// importInPieces imports keys in many transactions, so that other changes wait only for one of them (docs/adr/0037). The keys
// of a piece do not exist for any reader until the last transaction marks the import complete and writes its entries of
// the change log; they count only for the bounds of the account. New owners are created with the piece of their first key.
// If the call fails, what it has stored is deleted again, except owners that somebody has made use of. If it crashes, the
// maintenance does the same. The events and audit records of the keys are written after the last transaction, some in each
// further one; the call waits for them, and a crash only delays them.
func (s *Service) importInPieces(ctx context.Context, actor *Actor, all []importedKey) ([]NewKey, error) {
	if err := actor.check(); err != nil {
		return nil, err
	}
	unlock, err := s.imports.calls.lock(ctx, actor.Account.ID)
	if err != nil {
		return nil, err
	}
	defer unlock()
	for range importAttempts {
		made, err := s.importOnce(ctx, actor, all)
		if !errors.Is(err, errStray) {
			return made, err
		}
	}
	return nil, fault.New(fault.Conflict, "gateways, plans or owners of the keys are deleted while the keys are imported: repeat the call when that is over")
}

// importOnce carries out one attempt of importInPieces. The error is errStray if it should begin anew.
func (s *Service) importOnce(ctx context.Context, actor *Actor, all []importedKey) ([]NewKey, error) {
	checked, err := read(ctx, s, actor, func(tx ReadTx) (c checkedImport, err error) {
		if c.plans, err = findReferences(ctx, tx, actor, all); err == nil {
			c.digests, err = digestsOf(ctx, tx, actor, all)
		}
		return c, err
	})
	if err != nil {
		return nil, err
	}
	m := &KeyImport{ID: id.New(importKind), AccountID: actor.Account.ID, Call: callOf(actor)}
	defer s.imports.run(m.ID)()
	made, err := s.storeInPieces(ctx, actor, m, all, checked)
	if err != nil {
		s.giveUpImport(ctx, m.ID)
		return nil, err
	}
	if err := s.finishImport(ctx, m.ID, false); err != nil {
		s.cfg.Log.WarnContext(ctx, "not all imported keys are in the audit log and have their events yet; the maintenance goes on", "account_id", m.AccountID, "error", err)
	}
	return made, nil
}

// checkedImport is what is known of the keys of an import before it begins: their plans, nil for none, and their digests.
type checkedImport struct {
	plans   []*plan.Plan
	digests []apikey.Digest
}

// storeInPieces stores the keys. Unless the error is nil, they do not exist, or that is not known.
func (s *Service) storeInPieces(ctx context.Context, actor *Actor, m *KeyImport, all []importedKey, checked checkedImport) ([]NewKey, error) {
	_, err := inTxOnly(ctx, s, actor, func(w *work) (struct{}, error) {
		if err := s.roomForImport(ctx, w, all); err != nil {
			return struct{}{}, err
		}
		return struct{}{}, w.InsertKeyImport(ctx, m)
	})
	if err != nil {
		return nil, err
	}
	made, ids, owners := make([]NewKey, 0, len(all)), make([]string, 0, len(all)), map[string]*owner.Owner{}
	var first *storedPiece
	for len(made) < len(all) {
		p, err := s.storePiece(ctx, actor, m, all, checked, len(made))
		if err != nil {
			return nil, err
		}
		if first == nil {
			first = p
		}
		made, ids = append(made, p.keys...), append(ids, p.KeyIDs...)
		maps.Copy(owners, p.owners)
	}
	s.warnOfImport(made, all, owners)
	return inTx(ctx, s, actor, func(w *work) ([]NewKey, error) {
		if err := w.importGoesOn(ctx, m.ID); err != nil {
			return nil, err
		}
		stray, err := w.StrayKey(ctx, ids)
		if err != nil {
			return nil, err
		}
		if stray {
			return nil, errStray
		}
		if err := w.SetImportState(ctx, m.ID, ImportComplete); err != nil {
			return nil, err
		}
		// So that this change of the account has a number of its own (X-Keygate-Change): that of its newest audit record.
		for i := range first.keys {
			if err := w.recordImported(ctx, &first.keys[i].Key); err != nil {
				return nil, err
			}
		}
		if err := w.DeletePiece(ctx, &first.ImportPiece); err != nil {
			return nil, err
		}
		return made, w.allChanged(ctx, snapshot.ImportChange, ids)
	})
}

// storedPiece is an ImportPiece with its keys and their owners.
type storedPiece struct {
	ImportPiece
	keys   []NewKey
	owners map[string]*owner.Owner // by their external IDs
}

// storePiece stores the piece of all that begins at first.
func (s *Service) storePiece(ctx context.Context, actor *Actor, m *KeyImport, all []importedKey, checked checkedImport, first int) (*storedPiece, error) {
	end := min(first+importPiece, len(all))
	some := all[first:end]
	return inTxOnly(ctx, s, actor, func(w *work) (*storedPiece, error) {
		if err := w.importGoesOn(ctx, m.ID); err != nil {
			return nil, err
		}
		if err := s.roomForImport(ctx, w, all[first:]); err != nil {
			return nil, err
		}
		if _, err := digestsOf(ctx, w, actor, some); err != nil {
			return nil, err
		}
		owners, err := w.ownersOf(ctx, some)
		if err != nil {
			return nil, err
		}
		p := &storedPiece{keys: newKeys(some, checked.plans[first:end], checked.digests[first:end]), owners: owners}
		p.ImportID, p.Number = m.ID, first/importPiece
		if p.OwnerIDs, err = w.storeOwners(ctx, owners); err != nil {
			return nil, err
		}
		stored := make([]apikey.Key, len(p.keys))
		for i := range p.keys {
			k := &p.keys[i].Key
			if o := owners[k.Owner]; o != nil {
				k.OwnerID = o.ID
			}
			w.identify(k)
			p.KeyIDs = append(p.KeyIDs, k.ID)
			stored[i] = *k
		}
		if err := w.InsertPiece(ctx, m.AccountID, &p.ImportPiece, stored); err != nil {
			return nil, err
		}
		return p, w.allChanged(ctx, snapshot.OwnerChange, p.OwnerIDs)
	})
}

// importGoesOn checks that nobody has given the import up.
func (w *work) importGoesOn(ctx context.Context, importID string) error {
	m, err := w.KeyImport(ctx, importID)
	if err == nil && (m == nil || m.State != ImportWriting) {
		err = errImportGone
	}
	return err
}

// recordImported writes the event and the audit record of an imported key.
func (w *work) recordImported(ctx context.Context, k *apikey.Key) error {
	if err := w.raise(ctx, event.KeyCreated, k.EventData()); err != nil {
		return err
	}
	return w.audit(ctx, audit.KeyImport, k.ID, k.GatewayID, keyDiff(nil, k))
}

// FinishImports records the keys of imports that are complete, and deletes what imports have stored that failed or were
// abandoned: without other nodes those of an earlier process at once, and otherwise those that have not gone on for a minute.
func (s *Service) FinishImports(ctx context.Context) error {
	list, err := view(ctx, s, func(tx ReadTx) ([]KeyImport, error) { return tx.KeyImports(ctx, importList) }) // usually none
	if err != nil {
		return err
	}
	abandoned := s.imports.abandoned(list, s.cfg.Everywhere != nil)
	for i := range list {
		m := &list[i]
		if s.imports.isRunning(m.ID) || m.State == ImportWriting && !abandoned[m.ID] {
			continue
		}
		err = errors.Join(err, s.finishImport(ctx, m.ID, abandoned[m.ID]))
	}
	return err
}

// giveUpImport deletes what an import has stored, unless it is complete, also if the caller has hung up.
func (s *Service) giveUpImport(ctx context.Context, importID string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveUpWithin)
	defer cancel()
	if err := s.finishImport(ctx, importID, true); err != nil {
		s.cfg.Log.WarnContext(ctx, "what a failed import has stored is not deleted yet, and does not count; the maintenance goes on", "error", err)
	}
}

// finishImport records the keys of an import if it is complete, and deletes them if it was given up, one piece in each
// transaction. An import that is still being written is given up only if giveUp is set.
func (s *Service) finishImport(ctx context.Context, importID string, giveUp bool) error {
	for more := true; more; {
		wake := false
		err := s.cfg.Store.Update(ctx, func(tx Tx) error {
			more, wake = false, false
			m, err := tx.KeyImport(ctx, importID)
			if err != nil || m == nil || m.State == ImportWriting && !giveUp {
				return err
			}
			w := &work{Tx: tx, actor: m.Call.actor(m.AccountID), bounds: &s.cfg.Bounds, now: s.now()}
			more, err = w.finishPiece(ctx, m)
			wake = w.wake
			return err
		})
		if err != nil {
			return err
		}
		if wake {
			s.cfg.Wake()
		}
	}
	return nil
}

// finishPiece records or deletes the first piece of an import, and ends the import after the last one. more reports whether
// there are others.
func (w *work) finishPiece(ctx context.Context, m *KeyImport) (more bool, err error) {
	p, err := w.FirstPiece(ctx, m.ID)
	switch {
	case err != nil:
		return false, err
	case p == nil:
	case m.State == ImportComplete:
		err = w.recordPiece(ctx, p)
	default:
		err = w.deletePiece(ctx, p)
	}
	if err != nil {
		return false, err
	}
	if p != nil {
		if err := w.DeletePiece(ctx, p); err != nil {
			return false, err
		}
	}
	if m.Pieces <= 1 {
		return false, w.DeleteKeyImport(ctx, m.ID)
	}
	if m.State == ImportWriting {
		return true, w.SetImportState(ctx, m.ID, ImportGivenUp)
	}
	return true, nil
}

// recordPiece records the keys of a piece as they were imported, as far as that is known: what has happened to one since has
// records of its own.
func (w *work) recordPiece(ctx context.Context, p *ImportPiece) error {
	list, err := w.ImportedKeys(ctx, p)
	if err != nil {
		return err
	}
	keys := make(map[string]*apikey.Key, len(list))
	for i := range list {
		k := &list[i]
		k.RevokedAt, k.RotatedTo, k.Ended = time.Time{}, "", false
		keys[k.ID] = k
	}
	for _, keyID := range p.KeyIDs {
		if k := keys[keyID]; k != nil {
			if err := w.recordImported(ctx, k); err != nil {
				return err
			}
		}
	}
	return nil
}

// deletePiece deletes the keys of a piece, and the owners that were created for them and that nobody has made use of.
func (w *work) deletePiece(ctx context.Context, p *ImportPiece) error {
	owners, err := w.UnusedOwners(ctx, p)
	if err != nil {
		return err
	}
	if err := w.DeleteImportedKeys(ctx, p); err != nil {
		return err
	}
	ids := make([]string, len(owners))
	for i := range owners {
		o := &owners[i]
		if err := w.DeleteOwner(ctx, o.AccountID, o.ID); err != nil {
			return err
		}
		if err := w.audit(ctx, audit.OwnerDelete, o.ID, "", ownerDiff(o, nil)); err != nil {
			return err
		}
		ids[i] = o.ID
	}
	return w.allChanged(ctx, snapshot.OwnerChange, ids)
}
