package storetest

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/control"
)

// countModel is what an account has.
type countModel struct {
	account   *account.Account
	keys      []*apikey.Key
	responses map[string]*control.StoredResponse // by key ID and key
}

func (m *countModel) want(h *harness) (n control.AccountCounts) {
	h.Helper()
	n.Keys = int64(len(m.keys))
	for _, k := range m.keys {
		if k.RevokedAt.IsZero() {
			n.LiveKeys++
		}
	}
	for _, r := range m.responses {
		n.Responses++
		n.ResponseBytes += int64(len(r.Body))
		if len(r.Header) > 0 {
			header, err := json.Marshal(r.Header)
			if err != nil {
				h.Fatal(err)
			}
			n.ResponseBytes += int64(len(header))
		}
	}
	return n
}

// Guarantee: whatever is created, changed, replaced, rolled back and trimmed in whatever order, the counts
// of an account are exactly what it has.
func testAccountCounts(h *harness) {
	names := 0
	rapid.Check(h, func(t *rapid.T) {
		var models []*countModel
		for range 2 {
			names++
			models = append(models, &countModel{account: h.insertAccount(fmt.Sprintf("counted %d", names)), responses: map[string]*control.StoredResponse{}})
		}
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			m := models[rapid.IntRange(0, 1).Draw(t, "account")]
			m.step(h, t)
			for _, m := range models {
				got := get(h, func(ctx context.Context, tx control.ReadTx) (control.AccountCounts, error) {
					return tx.AccountCounts(ctx, m.account.ID)
				})
				same(t, "counts", got, m.want(h))
			}
		}
	})
}

func (m *countModel) step(h *harness, t *rapid.T) {
	h.Helper()
	what := rapid.IntRange(0, 5).Draw(t, "what")
	if what == 0 || len(m.keys) == 0 {
		m.keys = append(m.keys, h.insertKey(m.account, func(*apikey.Key) {}))
		return
	}
	k := m.keys[rapid.IntRange(0, len(m.keys)-1).Draw(t, "key")]
	switch what {
	case 1: // revoke, perhaps again, or with another expiry only
		k.Version++
		k.ExpiresAt, k.ExpiryNotified = epoch(), epoch()
		if rapid.Bool().Draw(t, "revoke") {
			k.RevokedAt = epoch()
		}
		h.update(func(ctx context.Context, tx control.Tx) error { return tx.UpdateKey(ctx, k) })
	case 2:
		h.rejectedUpdate(func(ctx context.Context, tx control.Tx) error {
			return tx.PutStoredResponse(ctx, &control.StoredResponse{KeyID: k.ID, Key: "rolled back", Body: []byte("x"), CreatedAt: epoch()})
		})
	case 3: // all of this account and the other's are younger
		old := &control.StoredResponse{KeyID: k.ID, Key: "old", Body: []byte("x"), CreatedAt: epoch().Add(-time.Hour)}
		h.update(func(ctx context.Context, tx control.Tx) error {
			if err := tx.PutStoredResponse(ctx, old); err != nil {
				return err
			}
			_, err := tx.Trim(ctx, epoch(), time.Time{}, time.Time{}, 0, 10)
			return err
		})
	default:
		r := &control.StoredResponse{KeyID: k.ID, Key: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "response"),
			Body: rapid.SliceOfN(rapid.Byte(), 0, 20).Draw(t, "body"), CreatedAt: epoch()}
		if rapid.Bool().Draw(t, "header") {
			r.Header = map[string]string{"Location": "/v1/kéys"}
		}
		h.update(func(ctx context.Context, tx control.Tx) error { return tx.PutStoredResponse(ctx, r) })
		m.responses[k.ID+" "+r.Key] = r
	}
}

// rejectedUpdate runs f in a transaction that is rolled back.
func (h *harness) rejectedUpdate(f func(ctx context.Context, tx control.Tx) error) {
	h.Helper()
	err := h.Update(h.Context(), func(tx control.Tx) error {
		if err := f(h.Context(), tx); err != nil {
			return err
		}
		return context.DeadlineExceeded
	})
	if err == nil {
		h.Fatal("a transaction whose function failed was committed")
	}
}
