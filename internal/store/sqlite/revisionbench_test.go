package sqlite_test

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/id"
)

// revised is a store with a gateway that has a number of revisions, each of about 1 KB.
func revised(b *testing.B, n int) (*stock, *gateway.Gateway) {
	b.Helper()
	s := &stock{db: open(b, filepath.Join(b.TempDir(), "keygate.db"))}
	now := time.Now()
	a := account.Account{ID: id.New(id.Account), Name: "acme", Tier: account.Scale, State: account.Active, CreatedAt: now, Version: 1}
	g := gateway.Gateway{ID: id.New(id.Gateway), AccountID: a.ID, Name: "g", Hostname: "g.example", Timeout: "60s", CreatedAt: now, Version: 1}
	s.update(b, func(tx control.Tx) error {
		if err := tx.InsertAccount(b.Context(), &a); err != nil {
			return err
		}
		return tx.InsertGateway(b.Context(), &g)
	})
	for number := 1; number <= n; {
		s.update(b, func(tx control.Tx) error {
			for range min(1000, n-number+1) {
				r := gateway.Revision{ID: id.New(id.Revision), GatewayID: g.ID, Number: int64(number), Source: gateway.CLI, Kind: gateway.SpecDocument,
					CreatedAt: now, Content: make([]byte, 1000)}
				if err := tx.InsertRevision(b.Context(), &r); err != nil {
					return err
				}
				number++
			}
			return nil
		})
	}
	return s, &g
}

// BenchmarkRevisions measures operations whose time must not grow with the number of revisions of a
// gateway: a page of their list at its beginning and in its middle, looking for old ones, and
// removing 50.
func BenchmarkRevisions(b *testing.B) {
	for _, n := range []int{1000, 100_000} {
		s, g := revised(b, n)
		kept := control.KeptRevisions{Newest: n, AccountBytes: 1 << 40}
		for name, run := range map[string]func(tx control.ReadTx) error{
			"FirstPage": func(tx control.ReadTx) error {
				_, err := tx.Revisions(b.Context(), g.ID, 100, 0)
				return err
			},
			"MiddlePage": func(tx control.ReadTx) error {
				_, err := tx.Revisions(b.Context(), g.ID, 100, int64(n/2))
				return err
			},
			"LookForOld": func(tx control.ReadTx) error {
				_, err := tx.HasOldRevisions(b.Context(), kept)
				return err
			},
		} {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				for b.Loop() {
					if err := s.db.View(b.Context(), run); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
		b.Run(fmt.Sprintf("Remove50/%d", n), func(b *testing.B) {
			removed := 0
			for b.Loop() {
				if removed += 50; removed+50 > n {
					b.Skip("there are too few revisions for so many iterations")
				}
				s.update(b, func(tx control.Tx) error {
					_, err := tx.TrimRevisions(b.Context(), control.KeptRevisions{Newest: n - removed, Since: time.Now().Add(time.Hour), AccountBytes: 1 << 40}, 50)
					return err
				})
			}
		})
	}
}
