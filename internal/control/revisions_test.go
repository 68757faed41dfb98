package control_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/store/sqlite/sqlitetest"
)

const day = 24 * time.Hour

// addRevisions stores n revisions of a gateway that has none, one for each day until now.
func (h *harness) addRevisions(c *control.Actor, gatewayID string, n int) {
	h.tb.Helper()
	now := h.clock.now()
	h.must(h.db.Update(ctx(), func(tx control.Tx) error {
		for i := 1; i <= n; i++ {
			r := gateway.Revision{ID: id.New(id.Revision), GatewayID: gatewayID, Number: int64(i), Source: gateway.CLI, Kind: gateway.SpecDocument,
				CreatedAt: now.Add(time.Duration(i-n) * day), Content: spec()}
			if err := tx.InsertRevision(ctx(), &r); err != nil {
				return err
			}
		}
		g, err := tx.Gateway(ctx(), c.Account.ID, gatewayID)
		if err != nil {
			return err
		}
		g.Revision = int64(n)
		return tx.UpdateGateway(ctx(), g)
	}))
}

// oldest returns the number of the oldest revision that is kept, found through pages of the list.
func (h *harness) oldest(c *control.Actor, gatewayID string) (number int64) {
	h.tb.Helper()
	for {
		list := must[[]gateway.Revision](h)(h.Revisions(ctx(), c, gatewayID, 100, number))
		if len(list) == 0 {
			return number
		}
		number = list[len(list)-1].Number
	}
}

// trim runs maintenance once, in a bubble of synctest, with retention at the given time.
func (h *harness) trim(retention time.Time) {
	h.tb.Helper()
	m, err := control.NewMaintenance(control.MaintenanceConfig{
		Service: h.Service, Store: h.db, Now: h.clock.now, Retention: func() time.Time { return retention },
	})
	h.must(err)
	h.must(m.Start(ctx()))
	<-time.After(control.DefaultTrimPeriod + time.Second) // on the bubble's clock
	synctest.Wait()
	h.must(m.Stop(ctx()))
}

// Guarantee: the revisions of the last 400 days are kept, and the newest 1,000 if they are more; by
// the clock of retention, so that a wall clock that is ahead removes none.
func TestRevisionsAreKeptFor400DaysOr1000(t *testing.T) {
	for _, tc := range []struct {
		name      string
		revisions int // one a day
		ahead     time.Duration
		oldest    int64
	}{
		{"1,000 that are older", 1000, 800 * day, 1},
		{"1,005 within 1,005 days", 1005, 0, 6},
		{"1,005 of which the newest 1,000 are older", 1005, 900 * day, 6},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := openHarness(t, sqlitetest.Path(t))
				defer h.close()
				caller := h.caller("acme", "admin")
				g := h.gateway(caller)
				h.addRevisions(caller, g.ID, tc.revisions)
				now := h.clock.now()
				h.clock.advance(5000 * day)
				for _, unknown := range []time.Time{{}, now.Add(-700 * day)} {
					h.trim(unknown)
					if got := h.oldest(caller, g.ID); got != 1 {
						t.Fatalf("retention at %v: the oldest revision is %d, want 1", unknown, got)
					}
				}
				h.trim(now.Add(tc.ahead))
				if got := h.oldest(caller, g.ID); got != tc.oldest {
					t.Errorf("the oldest revision is %d, want %d", got, tc.oldest)
				}
				must[*gateway.Revision](h)(h.Revision(ctx(), caller, g.ID, tc.oldest))
			})
		})
	}
}

// Guarantee: all revisions of the last 400 days are kept, however many they are.
func TestAllRevisionsOfTheLast400DaysAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := openHarness(t, sqlitetest.Path(t))
		defer h.close()
		caller := h.caller("acme", "admin")
		g := h.gateway(caller)
		h.addRevisions(caller, g.ID, 1500)
		h.trim(h.clock.now().Add(-800 * day)) // 400 days later than the 300th
		if got := h.oldest(caller, g.ID); got != 300 {
			t.Errorf("the oldest revision is %d, want 300", got)
		}
	})
}

// incompressible returns a spec with a path and about n bytes that differ by seed and cannot be
// compressed to less than half.
func incompressible(n int, path string, seed byte) []byte {
	raw := make([]byte, n/2)
	_, _ = rand.NewChaCha8([32]byte{seed}).Read(raw)
	return append(spec(path), fmt.Sprintf("# %x\n", raw)...)
}

// Guarantee: when the revisions of an account take more bytes than are kept, the oldest revisions of
// its gateway with the most are removed until they do not. The last revision of a gateway is never
// removed, nor is any of other accounts. Rolling back to a removed revision is fault.NotFound with a
// message that says what is kept.
func TestBytesOfRevisionsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := openHarness(t, sqlitetest.Path(t))
		defer h.close()
		h.bounds = control.AccountBounds{RevisionBytes: 100_000}
		h.serve(h.db)
		caller, other := h.caller("acme", "admin"), h.caller("other", "admin")
		large, small, theirs := h.gateway(caller), h.gateway(caller), h.gateway(other)
		for i := range byte(6) { // 25,000 bytes each
			h.push(caller, large.ID, incompressible(50_000, "/a", i))
			h.push(caller, small.ID, spec("/a", fmt.Sprintf("/b%d", i)))
			h.push(other, theirs.ID, spec("/a", fmt.Sprintf("/b%d", i)))
		}
		h.trim(time.Time{}) // bytes are no matter of time
		for gatewayID, want := range map[string]int64{large.ID: 4, small.ID: 1} {
			if got := h.oldest(caller, gatewayID); got != want {
				t.Errorf("the oldest revision is %d, want %d", got, want)
			}
		}
		if got := h.oldest(other, theirs.ID); got != 1 {
			t.Errorf("the oldest revision of the other account is %d, want 1", got)
		}
		_, err := h.Rollback(ctx(), caller, large.ID, 3, false, nil)
		h.wantCode(err, fault.NotFound, "")
		if err == nil || !strings.Contains(err.Error(), "no longer kept: those of the last 400 days are, and the newest 1000") {
			t.Errorf("got error %v", err)
		}
		must[*control.PushResult](h)(h.Rollback(ctx(), caller, large.ID, 4, false, nil))

		h.bounds.RevisionBytes = 1
		h.serve(h.db)
		h.trim(time.Time{})
		if got := h.oldest(caller, large.ID); got != 7 {
			t.Errorf("the oldest revision is %d, want the last, 7", got)
		}
		last := must[*gateway.Revision](h)(h.Spec(ctx(), caller, large.ID))
		if !bytes.Equal(last.Content, incompressible(50_000, "/a", 3)) {
			t.Error("the last revision has not the content of the one rolled back to")
		}
	})
}

// Guarantee: while the revisions of an account take twice the bytes that are kept, a call that would
// store another revision is fault.RateLimitExceeded with the scope account and changes nothing. Calls
// that change nothing, dry runs and other accounts are not affected. When old revisions are removed
// there is room again.
func TestPushesWaitForOldRevisionsToBeRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := openHarness(t, sqlitetest.Path(t))
		defer h.close()
		h.bounds = control.AccountBounds{RevisionBytes: 40_000}
		h.serve(h.db)
		caller, other := h.caller("acme", "admin"), h.caller("other", "admin")
		g, theirs := h.gateway(caller), h.gateway(other)
		for i := range byte(4) { // 25,000 bytes each
			h.push(caller, g.ID, incompressible(50_000, "/a", i))
		}
		h.wantNoRecords(caller.Account.ID, func() {
			_, err := h.PushSpec(ctx(), caller, g.ID, spec("/b"), false, nil)
			h.wantFull(err)
			_, err = h.Rollback(ctx(), caller, g.ID, 1, false, nil)
			h.wantFull(err)
			_, err = h.CreateGateway(ctx(), caller, newGateway("https://a.example"), string(spec("/b")))
			h.wantFull(err)
			if got := h.push(caller, g.ID, incompressible(50_000, "/a", 3)); got.Revision != 0 {
				t.Errorf("got revision %d of a push of what is in force", got.Revision)
			}
		})
		h.push(other, theirs.ID, spec("/b"))
		h.trim(time.Time{})
		if got := h.push(caller, g.ID, spec("/b")); got.Revision != 5 {
			t.Errorf("got revision %d, want 5", got.Revision)
		}
	})
}

// wantFull reports an error unless err says that the account has to wait.
func (h *harness) wantFull(err error) {
	h.tb.Helper()
	h.wantCode(err, fault.RateLimitExceeded, "")
	var f *fault.Error
	if errors.As(err, &f) && (f.Limit == nil || f.Limit.Scope != "account" || f.Limit.ResetAt <= h.clock.now().Unix()) {
		h.tb.Errorf("got limit %+v of %v", f.Limit, err)
	}
}
