package control_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/owner"
	"github.com/keygate/keygate/internal/store"
)

// manyKeys are as many as need three pieces. Their import is importTransactions: its beginning, the pieces, the one that
// completes it, and two for the records of the other pieces.
const (
	manyKeys           = 250
	completing         = 4 // the number of the transaction, from 0
	importTransactions = 7

	ownKeys = 2 // that the account of the importer has at first
)

var errCrashed = errors.New("the store has crashed")

// failingImport is a store of which one transaction fails: the one after so many others. If dead is set, none succeeds
// after it.
type failingImport struct {
	control.Store
	after int
	dead  bool
}

func (s *failingImport) Update(ctx context.Context, f func(control.Tx) error) error {
	if s.after--; s.after == -1 || s.dead && s.after < 0 {
		return errCrashed
	}
	return s.Store.Update(ctx, f)
}

// hookedStore calls before with the number of each transaction, from 0, before it begins.
type hookedStore struct {
	control.Store
	n      int
	before func(n int)
}

func (s *hookedStore) Update(ctx context.Context, f func(control.Tx) error) error {
	n := s.n
	s.n++
	s.before(n)
	return s.Store.Update(ctx, f)
}

// importer is a service on one engine with an account that imports keys.
type importer struct {
	*harness
	engine store.Engine
	caller *control.Actor
	name   string
}

// onEngines runs a test on each engine.
func onEngines(t *testing.T, f func(i *importer)) {
	t.Helper()
	for name, open := range engines() {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t)
			engine := open(t, h, nil)
			t.Cleanup(func() { h.must(engine.Close()) })
			h.serve(engine)
			f(&importer{harness: h, engine: engine})
		})
	}
}

// account makes another account the importer's.
func (i *importer) account(name string) {
	i.tb.Helper()
	i.caller, i.name = i.harness.caller(name, "admin"), name
}

// secret returns the string of a key.
func (i *importer) secret(n int) string { return fmt.Sprint(foreignKey, "-", i.name, "-", n) }

// keys returns the keys with these numbers, of which every tenth has an owner of its own and the others share one.
func (i *importer) keys(which ...int) []control.ImportInput {
	all := make([]control.ImportInput, len(which))
	for at, n := range which {
		all[at] = foreign(func(in *control.ImportInput) {
			in.Secret, in.Owner, in.Name = i.secret(n), "shared", "imported"
			if n%10 == 0 {
				in.Owner = fmt.Sprint("customer-", n)
			}
		})
	}
	return all
}

func upTo(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

// importState is what readers find of an account.
type importState struct {
	listed, searched, ofOwner, loaded int // keys
	active                            bool
	owners                            []string
	counted                           control.AccountCounts
	audits, events                    map[string]int // of keys, each with the number of its records
}

func (i *importer) state() (s importState) {
	i.tb.Helper()
	account := i.caller.Account.ID
	filtered := func(tx control.ReadTx, f control.KeyFilter) int {
		f.Now = i.clock.now()
		total, after := 0, ""
		for {
			page := must[[]apikey.Key](i.harness)(tx.Keys(ctx(), account, f, control.Page{Limit: 70, After: after}))
			if total += len(page); len(page) < 70 {
				return total
			}
			after = page[len(page)-1].ID
		}
	}
	i.must(i.engine.View(ctx(), func(tx control.ReadTx) (err error) {
		s.listed = filtered(tx, control.KeyFilter{Level: apikey.GatewayLevel})
		s.searched = filtered(tx, control.KeyFilter{Query: "porte"})
		s.ofOwner = filtered(tx, control.KeyFilter{Owner: "shared", State: apikey.Active})
		for _, o := range must[[]owner.Owner](i.harness)(tx.Owners(ctx(), account, control.OwnerFilter{}, control.Page{Limit: 1000})) {
			s.owners = append(s.owners, o.ExternalID)
			if o.ExternalID == "shared" {
				s.active, err = tx.OwnerHasActiveKeys(ctx(), account, o.ID, i.clock.now())
			}
		}
		if err != nil {
			return err
		}
		s.counted, err = tx.AccountCounts(ctx(), account)
		return err
	}))
	i.must(i.engine.EachKey(ctx(), i.clock.now(), func(k *apikey.Key) error {
		if k.AccountID == account && k.Imported && k.RevokedAt.IsZero() {
			s.loaded++
		}
		return nil
	}))
	slices.Sort(s.owners)
	s.audits, s.events = map[string]int{}, map[string]int{}
	r := i.logs(account)
	for _, a := range r.audits {
		if a.Action == "key.import" {
			s.audits[a.Target]++
		}
	}
	for _, e := range r.events {
		if keyID, ok := dataOf(e)["key_id"].(string); ok && e.Type == "key.created" && dataOf(e)["level"] == "gateway" {
			s.events[keyID]++
		}
	}
	return s
}

// wantKeys checks that every reader finds so many imported keys, and that the account has nothing else of an import.
func (i *importer) wantKeys(when string, n, owners int) {
	i.tb.Helper()
	s := i.state()
	shared := n - n/10
	if s.listed != n || s.searched != n || s.ofOwner != shared || s.loaded != n || s.active != (n > 0) {
		i.tb.Errorf("%s: %d keys are listed, %d found, %d of their owner listed (active: %v), %d loaded; want %d, and %d of the owner", when, s.listed, s.searched, s.ofOwner, s.active, s.loaded, n, shared)
	}
	if len(s.owners) != owners {
		i.tb.Errorf("%s: there are the owners %q; want %d", when, s.owners, owners)
	}
	if s.counted.LiveKeys != int64(n)+ownKeys || s.counted.Keys != int64(n)+ownKeys || s.counted.Owners != int64(owners) {
		i.tb.Errorf("%s: got the counts %+v; want %d keys and %d owners", when, s.counted, n+ownKeys, owners)
	}
	for kind, of := range map[string]map[string]int{"audit records": s.audits, "events": s.events} {
		if len(of) != n {
			i.tb.Errorf("%s: %d keys have %s; want %d", when, len(of), kind, n)
		}
		for keyID, times := range of {
			if times != 1 {
				i.tb.Errorf("%s: %s has %d %s; want one", when, keyID, times, kind)
			}
		}
	}
	i.must(i.engine.View(ctx(), func(tx control.ReadTx) error {
		left, err := tx.KeyImports(ctx(), 10)
		if len(left) > 0 {
			i.tb.Errorf("%s: an import is left: %+v", when, left)
		}
		return err
	}))
}

const manyOwners = manyKeys/10 + 1

// Guarantee: no key of an import in pieces exists for any reader before all of them do, and nothing of it is in the audit log or
// an event; from then on all exist. Between any two of its transactions, another account's key is revoked at once.
func TestImportsInPieces(t *testing.T) {
	onEngines(t, func(i *importer) {
		other := i.harness.caller("other", "admin")
		free := i.keysOf(other, "", importTransactions+1)
		i.account("acme")
		hooked := &hookedStore{Store: i.engine}
		aside := must[*control.Service](i.harness)(control.New(control.Config{
			Store: i.engine, Publisher: i.pub, Sealer: i.box, Now: i.clock.now, Random: noRandom{}, GatewayDomain: domain}))
		hooked.before = func(n int) {
			want := 0
			if n > completing {
				want = manyKeys
			}
			if s := i.state(); s.listed != want || s.searched != want || s.loaded != want || s.ofOwner != want-want/10 || s.active != (want > 0) || want == 0 && len(s.audits)+len(s.events) > 0 {
				t.Errorf("before transaction %d: %d keys are listed, %d found, %d of their owner, %d loaded, %d and %d recorded; want %d", n, s.listed, s.searched, s.ofOwner, s.loaded, len(s.audits), len(s.events), want)
			}
			must[*apikey.Key](i.harness)(aside.RevokeKey(ctx(), other, free[n].ID, nil))
		}
		i.serve(hooked)
		made := i.importKeys(i.caller, i.keys(upTo(manyKeys)...)...)
		if hooked.n != importTransactions {
			t.Errorf("the import had %d transactions; want %d", hooked.n, importTransactions)
		}
		i.wantKeys("at the end", manyKeys, manyOwners)
		for n, k := range made {
			if want := must[*apikey.Key](i.harness)(i.Key(ctx(), i.caller, k.ID)); k.Prefix != i.secret(n)[:6] || k.OwnerID == "" || k.OwnerID != want.OwnerID || k.Version != 1 || k.Name != want.Name {
				t.Fatalf("key %d was returned as %+v and is stored as %+v", n, k.Key, want)
			}
		}
	})
}

// noRandom is a source of randomness for a service that makes no keys.
type noRandom struct{}

func (noRandom) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// Guarantee: whichever transaction of an import the process dies before, the next process leaves all of its keys or none,
// with one event and one audit record each; what is left counts for nothing, no owner is left, and the import can be repeated.
func TestImportsGoOnAfterACrash(t *testing.T) {
	onEngines(t, func(i *importer) {
		for at := range importTransactions {
			i.account(fmt.Sprint("acme-", at))
			i.serve(&failingImport{Store: i.engine, after: at, dead: true})
			_, err := i.ImportKeys(ctx(), i.caller, i.keys(upTo(manyKeys)...))
			if complete := at > completing; complete != (err == nil) || !complete && !errors.Is(err, errCrashed) {
				t.Errorf("death before transaction %d: got error %v", at, err)
			}
			i.serve(i.engine) // another process
			i.must(i.FinishImports(ctx()))
			when := fmt.Sprint("death before transaction ", at)
			if at > completing {
				i.wantKeys(when, manyKeys, manyOwners)
				continue
			}
			i.wantKeys(when, 0, 0)
			i.importKeys(i.caller, i.keys(upTo(manyKeys)...)...)
			i.wantKeys(when+", repeated", manyKeys, manyOwners)
		}
	})
}

// Guarantee: an import that fails at any of its transactions leaves nothing when its call returns, except owners that
// somebody else has given a key or has changed.
func TestFailedImportsLeaveNothing(t *testing.T) {
	onEngines(t, func(i *importer) {
		for at := range completing + 1 {
			i.account(fmt.Sprint("acme-", at))
			i.serve(&failingImport{Store: i.engine, after: at})
			if _, err := i.ImportKeys(ctx(), i.caller, i.keys(upTo(manyKeys)...)); !errors.Is(err, errCrashed) {
				t.Errorf("transaction %d fails: got error %v", at, err)
			}
			i.wantKeys(fmt.Sprint("transaction ", at, " fails"), 0, 0)
		}
		i.account("used")
		failing := &failingImport{Store: i.engine, after: completing}
		i.serve(&hookedStore{Store: failing, before: func(n int) {
			if n != 2 {
				return
			}
			i.serve(i.engine)
			must[*control.NewKey](i.harness)(i.CreateKey(ctx(), i.caller, control.KeyInput{Name: "k", Scope: "read", Owner: "customer-10"}))
			for _, o := range must[[]owner.Owner](i.harness)(i.Owners(ctx(), i.caller, control.OwnerFilter{ExternalID: "customer-20"}, control.Page{Limit: 1})) {
				must[*owner.Owner](i.harness)(i.UpdateOwner(ctx(), i.caller, o.ID, control.OwnerPatch{Name: value("renamed")}, nil))
			}
		}})
		if _, err := i.ImportKeys(ctx(), i.caller, i.keys(upTo(manyKeys)...)); !errors.Is(err, errCrashed) {
			t.Errorf("got error %v", err)
		}
		if s := i.state(); !slices.Equal(s.owners, []string{"customer-10", "customer-20"}) || s.loaded != 0 {
			t.Errorf("the owners %q are left and %d keys; want the two that were used", s.owners, s.loaded)
		}
	})
}

// Guarantee: what the keys of an import name is there when it is complete. If a gateway was deleted meanwhile, the error is that
// of a call after the deletion and nothing is left; a deleted owner is created again.
func TestImportMeetsDeletions(t *testing.T) {
	onEngines(t, func(i *importer) {
		i.account("acme")
		before := func(n int, f func()) {
			i.serve(&hookedStore{Store: i.engine, before: func(at int) {
				if at == n {
					service := i.Service
					i.serve(i.engine)
					f()
					i.Service = service
				}
			}})
		}
		g := i.gateway(i.caller)
		all := i.keys(upTo(manyKeys)...)
		all[120].GatewayID = g.ID
		before(3, func() { must[*gateway.Gateway](i.harness)(i.DeleteGateway(ctx(), i.caller, g.ID, nil)) })
		_, err := i.ImportKeys(ctx(), i.caller, all)
		i.wantCode(err, fault.ValidationFailed, "keys[120].gateway_id")
		i.wantKeys("without the gateway", 0, 0)

		before(2, func() {
			for _, o := range must[[]owner.Owner](i.harness)(i.Owners(ctx(), i.caller, control.OwnerFilter{}, control.Page{Limit: 1000})) {
				must[*owner.Owner](i.harness)(i.DeleteOwner(ctx(), i.caller, o.ID, nil))
			}
		})
		i.importKeys(i.caller, i.keys(upTo(manyKeys)...)...)
		i.wantKeys("with deleted owners", manyKeys, manyOwners)
	})
}

// Guarantee: the keys that an import has stored so far count for the bounds of the account, so that other calls cannot
// pass them, and what an import has stored that fails is room again.
func TestImportsReserveTheirKeys(t *testing.T) {
	h := newHarness(t)
	h.bounds = control.AccountBounds{LiveKeys: manyKeys + 10, Keys: 10_000}
	i := &importer{harness: h, engine: h.db}
	h.serve(h.db)
	i.account("acme")
	created := 0
	h.serve(&hookedStore{Store: h.db, before: func(n int) {
		if n != completing {
			return
		}
		service := h.Service
		h.serve(h.db)
		for {
			_, err := h.CreateKey(ctx(), i.caller, control.KeyInput{Name: "k", Scope: "read"})
			if err != nil {
				h.wantCode(err, fault.Conflict, "")
				break
			}
			created++
		}
		h.Service = service
	}})
	h.importKeys(i.caller, i.keys(upTo(manyKeys)...)...)
	if want := 10 - ownKeys; created != want {
		t.Errorf("%d keys were created beside the import; want %d", created, want)
	}
}

// Guarantee: of imports of the same keys that run at once on several nodes, at most one succeeds, and the others are conflicts;
// when none has, nothing is left, and the next import succeeds.
func TestImportsOfTheSameKeysAtOnce(t *testing.T) {
	onEngines(t, func(i *importer) {
		i.account("acme")
		first, second := i.keys(upTo(manyKeys)...), i.keys(upTo(manyKeys)...)
		slices.Reverse(second)
		var errs [3]error
		var all sync.WaitGroup
		for n, inputs := range [][]control.ImportInput{first, second, first} {
			node := must[*control.Service](i.harness)(control.New(control.Config{
				Store: i.engine, Publisher: i.pub, Sealer: i.box, Now: i.clock.now, Random: noRandom{}, GatewayDomain: domain}))
			all.Go(func() { _, errs[n] = node.ImportKeys(ctx(), i.caller, inputs) })
		}
		all.Wait()
		succeeded := 0
		for n, err := range errs {
			if err == nil {
				succeeded++
			} else if fault.CodeOf(err) != fault.Conflict {
				t.Errorf("node %d got %v; want success or %s", n, err, fault.Conflict)
			}
		}
		if succeeded > 1 {
			t.Errorf("%d imports of the same keys succeeded", succeeded)
		}
		if succeeded == 0 {
			i.wantKeys("all failed", 0, 0)
			i.importKeys(i.caller, first...)
		}
		i.wantKeys("at the end", manyKeys, manyOwners)
	})
}

// Guarantee: with several nodes, an import that goes on is not given up; one that does not is, after so many looks, and its call
// fails without having imported anything.
func TestAbandonedImports(t *testing.T) {
	h := newHarness(t)
	i := &importer{harness: h, engine: h.db}
	i.account("acme")
	looking := must[*control.Service](h)(control.New(control.Config{
		Store: h.db, Publisher: h.pub, Everywhere: &everywhere{}, Sealer: h.box, Now: h.clock.now, Random: noRandom{}, GatewayDomain: domain}))
	look := func(times int) {
		for range times {
			h.must(looking.FinishImports(ctx()))
		}
	}
	h.serve(&hookedStore{Store: h.db, before: func(n int) {
		if n > 0 && n <= completing {
			look(60)
		}
	}})
	h.importKeys(i.caller, i.keys(upTo(manyKeys)...)...)
	i.wantKeys("while another node looks", manyKeys, manyOwners)

	i.account("slow")
	h.serve(&hookedStore{Store: h.db, before: func(n int) {
		if n == 3 {
			look(61)
		}
	}})
	_, err := h.ImportKeys(ctx(), i.caller, i.keys(upTo(manyKeys)...))
	h.wantCode(err, fault.Unavailable, "")
	i.wantKeys("given up", 0, 0)
}

// Guarantee: whatever imports, revocations and crashes there are, an import stores all of its keys or none: none if the
// account has, or had, one of them.
func TestImportsAgainstModel(t *testing.T) {
	h := newHarness(t)
	i := &importer{harness: h, engine: h.db}
	i.account("acme")
	random := rand.New(rand.NewPCG(1, 2))
	had, live := map[int]bool{}, map[int]string{} // numbers of keys; live ones with their identifiers
	for step := range 24 {
		from, n := random.IntN(2000), 1+random.IntN(manyKeys)
		chosen := make([]int, n)
		conflict := false
		for at := range chosen {
			chosen[at] = from + at
			conflict = conflict || had[chosen[at]]
		}
		random.Shuffle(n, func(a, b int) { chosen[a], chosen[b] = chosen[b], chosen[a] })
		crashing := &failingImport{Store: h.db, after: random.IntN(2 * importTransactions), dead: true}
		h.serve(crashing)
		made, err := h.ImportKeys(ctx(), i.caller, i.keys(chosen...))
		switch {
		case conflict:
			h.wantCode(err, fault.Conflict, "")
		case err == nil:
			for at, k := range made {
				had[chosen[at]], live[chosen[at]] = true, k.ID
			}
		case !errors.Is(err, errCrashed):
			t.Errorf("step %d: got error %v", step, err)
		}
		h.serve(h.db)
		h.must(h.FinishImports(ctx()))
		for n, keyID := range live {
			if random.IntN(20) == 0 {
				must[*apikey.Key](h)(h.RevokeKey(ctx(), i.caller, keyID, nil))
				delete(live, n)
			}
		}
		s := i.state()
		if s.loaded != len(live) || s.listed != len(had) || len(s.audits) != len(had) || len(s.events) != len(had) || s.counted.LiveKeys != int64(len(live))+ownKeys || s.counted.Keys != int64(len(had))+ownKeys {
			t.Fatalf("step %d: %d keys are in force, %d listed, %d and %d recorded, %d live and %d counted; want %d of %d", step, s.loaded, s.listed, len(s.audits), len(s.events), s.counted.LiveKeys, s.counted.Keys, len(live), len(had))
		}
		owners := map[string]bool{}
		for n := range had {
			owners[cmp.Or(map[bool]string{true: fmt.Sprint("customer-", n)}[n%10 == 0], "shared")] = true
		}
		if len(s.owners) != len(owners) {
			t.Fatalf("step %d: there are %d owners; want %d", step, len(s.owners), len(owners))
		}
	}
}
