package storetest

import (
	"context"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/id"
)

// Guarantee: an account is returned as it was inserted, by identifier and by name, and its
// name is unique.
func testAccount(h *harness) {
	a := &account.Account{ID: id.New(id.Account), Name: "Ärger & <Söhne> 🦊", Tier: account.Starter,
		Hosts: []string{"*.example.com", "api.example.org"}, State: account.Active, CreatedAt: epoch(), Version: 1}
	h.update(func(ctx context.Context, tx control.Tx) error {
		if err := tx.InsertAccount(ctx, a); err != nil {
			return err
		}
		seen, err := tx.Account(ctx, a.ID) // a transaction sees its own writes
		if err != nil {
			return err
		}
		same(h, "within the transaction", seen, a)
		return nil
	})
	same(h, "by id", get(h, func(ctx context.Context, tx control.ReadTx) (*account.Account, error) { return tx.Account(ctx, a.ID) }), a)
	same(h, "by name", get(h, func(ctx context.Context, tx control.ReadTx) (*account.Account, error) {
		return tx.AccountByName(ctx, a.Name)
	}), a)
	missing(h, "another id", func(ctx context.Context, tx control.ReadTx) (*account.Account, error) {
		return tx.Account(ctx, id.New(id.Account))
	})
	missing(h, "another name", func(ctx context.Context, tx control.ReadTx) (*account.Account, error) {
		return tx.AccountByName(ctx, "nobody")
	})
	twin := &account.Account{ID: id.New(id.Account), Name: a.Name, Tier: account.Scale, CreatedAt: epoch()}
	h.conflict("name", func(ctx context.Context, tx control.Tx) error { return tx.InsertAccount(ctx, twin) })
	h.rejected(fault.Conflict, func(ctx context.Context, tx control.Tx) error {
		return tx.InsertAccount(ctx, &account.Account{ID: a.ID, Name: "other", Tier: account.Scale, CreatedAt: epoch()})
	})
}
