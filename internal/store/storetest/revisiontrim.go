package storetest

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/gateway"
)

// keptRevision is a revision that should be there.
type keptRevision struct {
	number  int64
	created time.Time
	bytes   int64 // as counted
}

// history is the revisions that a gateway should have, the oldest first.
type history struct {
	gateway *gateway.Gateway
	last    int64
	days    int // after the epoch, when last was pushed
	kept    []keptRevision
}

// older returns the number of bytes of all revisions but the newest.
func (m *history) older() (n int64) {
	for _, r := range m.kept[:max(0, len(m.kept)-1)] {
		n += r.bytes
	}
	return n
}

// histories are the revisions that the gateways of an account should have.
type histories struct {
	account  *account.Account
	gateways []*history
}

func (m *histories) bytes() (n int64) {
	for _, g := range m.gateways {
		for _, r := range g.kept {
			n += r.bytes
		}
	}
	return n
}

func (m *histories) push(h *harness, t *rapid.T) {
	g := m.gateways[rapid.IntRange(0, len(m.gateways)-1).Draw(t, "gateway")]
	g.last++
	r := newRevision(g.gateway, g.last)
	g.days += rapid.IntRange(0, 3).Draw(t, "days later")
	r.CreatedAt = epoch().Add(time.Duration(g.days) * 24 * time.Hour)
	r.Content = make([]byte, rapid.IntRange(0, 3000).Draw(t, "size"))
	_, _ = rand.NewChaCha8([32]byte{byte(g.last)}).Read(r.Content) // cannot be compressed
	before := h.revisionBytes(m.account)
	h.update(func(ctx context.Context, tx control.Tx) error { return tx.InsertRevision(ctx, r) })
	added := h.revisionBytes(m.account) - before
	if added < int64(len(r.Content)) {
		t.Fatalf("a revision of %d bytes counts %d", len(r.Content), added)
	}
	g.kept = append(g.kept, keptRevision{r.Number, r.CreatedAt, added})
}

// trim removes from the model what is not kept.
func (m *histories) trim(k control.KeptRevisions) {
	for _, g := range m.gateways {
		for len(g.kept) > k.Newest && g.kept[0].created.Before(k.Since) {
			g.kept = g.kept[1:]
		}
	}
	for m.bytes() > k.AccountBytes {
		largest := slices.MaxFunc(m.gateways, func(a, b *history) int {
			return cmp.Or(cmp.Compare(a.older(), b.older()), cmp.Compare(a.gateway.ID, b.gateway.ID))
		})
		if largest.older() == 0 {
			return
		}
		largest.kept = largest.kept[1:]
	}
}

func (m *histories) check(h *harness, t fataler) {
	same(t, "bytes of the account", h.revisionBytes(m.account), m.bytes())
	for i, g := range m.gateways {
		var got, want []int64
		for _, r := range h.revisions(g.gateway.ID) {
			got = append(got, r.Number)
		}
		for _, r := range slices.Backward(g.kept) {
			want = append(want, r.number)
		}
		same(t, fmt.Sprintf("revisions of gateway %d", i), got, want)
	}
}

func (h *harness) revisions(gatewayID string) []gateway.Revision {
	h.Helper()
	return get(h, func(ctx context.Context, tx control.ReadTx) ([]gateway.Revision, error) {
		return tx.Revisions(ctx, gatewayID, 1000, 0)
	})
}

func (h *harness) revisionBytes(a *account.Account) int64 {
	h.Helper()
	return get(h, func(ctx context.Context, tx control.ReadTx) (control.AccountCounts, error) {
		return tx.AccountCounts(ctx, a.ID)
	}).RevisionBytes
}

func (h *harness) hasOldRevisions(k control.KeptRevisions) bool {
	h.Helper()
	return get(h, func(ctx context.Context, tx control.ReadTx) (bool, error) { return tx.HasOldRevisions(ctx, k) })
}

// trimRevisions removes revisions that are not kept, in steps of the given limit, and returns the number of steps.
func (h *harness) trimRevisions(k control.KeptRevisions, limit int) (steps int) {
	h.Helper()
	for more := true; more; steps++ {
		h.update(func(ctx context.Context, tx control.Tx) (err error) {
			more, err = tx.TrimRevisions(ctx, k, limit)
			return err
		})
	}
	return steps
}

// Guarantee: whatever is pushed, exactly these revisions are removed: first all that are older than
// the time and not among the newest, then the oldest of the gateway whose older revisions take the
// most bytes, until the account keeps to its bytes. The last revision of a gateway always stays, with
// its content. The bytes of an account are the sum of what its revisions took.
func testTrimRevisions(h *harness) {
	names := 0
	rapid.Check(h, func(t *rapid.T) {
		var models []*histories
		for range 2 {
			names++
			m := &histories{account: h.insertAccount(fmt.Sprintf("revisions %d", names))}
			for range 3 {
				m.gateways = append(m.gateways, &history{gateway: h.insertGateway(m.account)})
			}
			models = append(models, m)
		}
		for range rapid.IntRange(1, 3).Draw(t, "rounds") {
			for range rapid.IntRange(0, 8).Draw(t, "pushes") {
				models[rapid.IntRange(0, 1).Draw(t, "account")].push(h, t)
			}
			k := control.KeptRevisions{
				Newest:       rapid.IntRange(1, 4).Draw(t, "newest"),
				Since:        epoch().Add(time.Duration(rapid.IntRange(0, 12).Draw(t, "since")) * 24 * time.Hour),
				AccountBytes: int64(rapid.IntRange(0, 20_000).Draw(t, "bytes")),
			}
			before := fmt.Sprint(models[0].numbers(), models[1].numbers())
			for _, m := range models {
				m.trim(k)
			}
			same(t, "something to remove", h.hasOldRevisions(k), before != fmt.Sprint(models[0].numbers(), models[1].numbers()))
			h.trimRevisions(k, rapid.IntRange(1, 5).Draw(t, "limit"))
			for _, m := range models {
				m.check(h, t)
			}
			same(t, "something left to remove", h.hasOldRevisions(k), false)
		}
		for _, m := range models { // so that the next run finds none of these
			for _, g := range m.gateways {
				h.update(func(ctx context.Context, tx control.Tx) error {
					return tx.DeleteGateway(ctx, m.account.ID, g.gateway.ID)
				})
			}
		}
		h.trimRevisions(control.KeptRevisions{Newest: 1, AccountBytes: 1 << 40}, 100)
		for _, m := range models {
			same(t, "bytes after the gateways were deleted", h.revisionBytes(m.account), int64(0))
		}
	})
}

func (m *histories) numbers() (all []int) {
	for _, g := range m.gateways {
		all = append(all, len(g.kept))
	}
	return all
}

// Guarantee: the deletion of a gateway removes its revisions in small steps, and the remaining
// revisions keep their content. The content of a removed revision is removed from the disk too.
func testTrimDeletedGateway(h *harness) {
	a := h.insertAccount("a")
	goes, stays := h.insertGateway(a), h.insertGateway(a)
	for _, g := range []*gateway.Gateway{goes, stays} {
		for n := range int64(7) {
			r := newRevision(g, n+1)
			r.Content = bytes.Repeat([]byte{byte(n)}, 200)
			h.update(func(ctx context.Context, tx control.Tx) error { return tx.InsertRevision(ctx, r) })
		}
	}
	all := control.KeptRevisions{Newest: 1000, AccountBytes: 1 << 40}
	same(h, "old revisions", h.hasOldRevisions(all), false)
	before := h.revisionBytes(a)
	h.update(func(ctx context.Context, tx control.Tx) error { return tx.DeleteGateway(ctx, a.ID, goes.ID) })
	same(h, "revisions of the deleted gateway", len(h.revisions(goes.ID)), 0)
	same(h, "old revisions", h.hasOldRevisions(all), true)
	same(h, "bytes before they are removed", h.revisionBytes(a), before)
	if steps := h.trimRevisions(all, 2); steps != 4 {
		h.Errorf("7 revisions were removed in %d steps of 2, want 4", steps)
	}
	same(h, "bytes after that", h.revisionBytes(a), before/2)
	same(h, "revisions of the other gateway", len(h.revisions(stays.ID)), 7)
	h.trimRevisions(control.KeptRevisions{Newest: 3, Since: epoch().Add(time.Hour), AccountBytes: 1 << 40}, 100)
	for more := true; more; {
		h.update(func(ctx context.Context, tx control.Tx) (err error) {
			more, err = tx.TrimTables(ctx, epoch(), 3)
			return err
		})
	}
	for n := int64(5); n <= 7; n++ {
		same(h, "content of a revision that stays", h.revision(stays.ID, n).Content, bytes.Repeat([]byte{byte(n - 1)}, 200))
	}
	missing(h, "removed revision", func(ctx context.Context, tx control.ReadTx) (*gateway.Revision, error) {
		return tx.Revision(ctx, stays.ID, 4)
	})
}
