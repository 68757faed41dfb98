package storetest

import (
	"context"
	"time"

	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
)

func newRepository(g *gateway.Gateway) *gateway.ConnectedRepository {
	return &gateway.ConnectedRepository{
		GatewayID: g.ID, AccountID: g.AccountID, URL: "https://git.example/api.git", Branch: "main", Path: "openapi.yaml",
		Kind: gateway.SpecDocument, Interval: "60s", CreatedAt: epoch(), Version: 1,
	}
}

func (h *harness) putRepository(r *gateway.ConnectedRepository) {
	h.Helper()
	h.update(func(ctx context.Context, tx control.Tx) error { return tx.PutRepository(ctx, r) })
}

func (h *harness) repository(accountID, gatewayID string) *gateway.ConnectedRepository {
	h.Helper()
	return get(h, func(ctx context.Context, tx control.ReadTx) (*gateway.ConnectedRepository, error) {
		return tx.Repository(ctx, accountID, gatewayID)
	})
}

func (h *harness) noRepository(what, accountID, gatewayID string) {
	h.Helper()
	missing(h, what, func(ctx context.Context, tx control.ReadTx) (*gateway.ConnectedRepository, error) {
		return tx.Repository(ctx, accountID, gatewayID)
	})
}

// repositoryOf draws a repository of g.
func repositoryOf(g *gateway.Gateway) *rapid.Generator[*gateway.ConnectedRepository] {
	return rapid.Custom(func(t *rapid.T) *gateway.ConnectedRepository {
		r := newRepository(g)
		for name, to := range map[string]*string{
			"url": &r.URL, "branch": &r.Branch, "path": &r.Path, "interval": &r.Interval, "known_hosts": &r.KnownHosts, "host_key": &r.HostKey,
			"provider": &r.StatusProvider, "last": &r.LastCommit, "failed": &r.FailedCommit, "error": &r.LastError, "kind": &r.FailureKind,
			"warning": &r.Warning,
		} {
			*to = text().Draw(t, name)
		}
		r.Kind = rapid.SampledFrom([]gateway.DocumentKind{gateway.SpecDocument, gateway.ConfigDocument}).Draw(t, "document")
		sealed := maybe(rapid.SliceOfN(rapid.Byte(), 1, 100))
		r.Credential, r.HookSecret, r.StatusToken = sealed.Draw(t, "credential"), sealed.Draw(t, "hook"), sealed.Draw(t, "token")
		r.Notified = maybe(rapid.SliceOfN(rapid.StringMatching("[0-9a-f]{40}"), 1, 3)).Draw(t, "notified")
		r.Paused, r.Failures = rapid.Bool().Draw(t, "paused"), rapid.IntRange(0, 1<<40).Draw(t, "failures")
		when := maybe(moment())
		r.LastAttemptAt, r.LastSyncedAt, r.NextSyncAt = when.Draw(t, "attempt"), when.Draw(t, "synced"), when.Draw(t, "next")
		r.CreatedAt = moment().Draw(t, "created")
		r.Version = rapid.Int64Min(1).Draw(t, "version")
		return r
	})
}

// Guarantee: a repository is returned as it was put, and is replaced as a whole, except for CreatedAt.
func testRepositoryRoundTrip(h *harness) {
	a := h.insertAccount("a")
	rapid.Check(h, func(t *rapid.T) {
		g := newGateway(a)
		h.update(func(ctx context.Context, tx control.Tx) error { return tx.InsertGateway(ctx, g) })
		r := repositoryOf(g).Draw(t, "repository")
		h.putRepository(r)
		same(t, "inserted", h.repository(a.ID, g.ID), r)
		changed := repositoryOf(g).Draw(t, "changed")
		h.putRepository(changed)
		changed.CreatedAt = r.CreatedAt
		same(t, "replaced", h.repository(a.ID, g.ID), changed)
		same(t, "found without the account", get(h, func(ctx context.Context, tx control.ReadTx) (*gateway.ConnectedRepository, error) {
			return tx.RepositoryOf(ctx, g.ID)
		}), changed)
	})
}

// Guarantee: a repository belongs to one gateway of one account, and is removed with it; the list
// over all accounts has each repository once.
func testRepositoryRules(h *harness) {
	a, b := h.insertAccount("a"), h.insertAccount("b")
	first, second, other := h.insertGateway(a), h.insertGateway(a), h.insertGateway(b)
	for _, g := range []*gateway.Gateway{first, second, other} {
		h.putRepository(newRepository(g))
	}
	h.noRepository("another account's", b.ID, first.ID)
	stolen := newRepository(first)
	stolen.AccountID, stolen.URL = b.ID, "https://stolen.example"
	h.rejected(fault.NotFound, func(ctx context.Context, tx control.Tx) error { return tx.PutRepository(ctx, stolen) })
	h.rejected(fault.NotFound, func(ctx context.Context, tx control.Tx) error { return tx.DeleteRepository(ctx, b.ID, first.ID) })
	h.rejected(fault.NotFound, func(ctx context.Context, tx control.Tx) error {
		return tx.PutRepository(ctx, newRepository(newGateway(a)))
	})
	same(h, "untouched", h.repository(a.ID, first.ID), newRepository(first))

	var listed []string
	for after := ""; ; {
		page := get(h, func(ctx context.Context, tx control.ReadTx) ([]gateway.ConnectedRepository, error) {
			return tx.Repositories(ctx, after, 2)
		})
		for _, r := range page {
			listed, after = append(listed, r.GatewayID), r.GatewayID
		}
		if len(page) < 2 {
			break
		}
	}
	same(h, "listed", listed, []string{first.ID, second.ID, other.ID})

	h.update(func(ctx context.Context, tx control.Tx) error { return tx.DeleteRepository(ctx, a.ID, first.ID) })
	h.noRepository("deleted", a.ID, first.ID)
	h.rejected(fault.NotFound, func(ctx context.Context, tx control.Tx) error { return tx.DeleteRepository(ctx, a.ID, first.ID) })
	h.update(func(ctx context.Context, tx control.Tx) error { return tx.DeleteGateway(ctx, a.ID, second.ID) })
	h.noRepository("of a deleted gateway", a.ID, second.ID)
	same(h, "of another account", h.repository(b.ID, other.ID), newRepository(other))
}

// Guarantee: the times of a poll are stored only for the version that was polled, and change nothing
// else.
func testRepositoryTimes(h *harness) {
	g := h.insertGateway(h.insertAccount("a"))
	r := newRepository(g)
	r.LastSyncedAt = epoch()
	h.putRepository(r)
	set := func(t control.RepositoryTimes) {
		h.Helper()
		t.GatewayID = g.ID
		h.update(func(ctx context.Context, tx control.Tx) error { return tx.SetRepositoryTimes(ctx, t) })
	}
	set(control.RepositoryTimes{Version: 2, Attempt: epoch().Add(time.Hour), Synced: epoch().Add(time.Hour), Next: epoch().Add(time.Hour)})
	same(h, "another version", h.repository(r.AccountID, g.ID), r)
	set(control.RepositoryTimes{Version: 1, Attempt: epoch().Add(time.Minute), Next: epoch().Add(time.Hour)})
	r.LastAttemptAt, r.NextSyncAt = epoch().Add(time.Minute), epoch().Add(time.Hour)
	same(h, "a failed poll", h.repository(r.AccountID, g.ID), r)
	set(control.RepositoryTimes{Version: 1, Attempt: epoch().Add(time.Hour), Synced: epoch().Add(time.Hour), Next: epoch().Add(2 * time.Hour)})
	r.LastAttemptAt, r.LastSyncedAt, r.NextSyncAt = epoch().Add(time.Hour), epoch().Add(time.Hour), epoch().Add(2*time.Hour)
	same(h, "a poll", h.repository(r.AccountID, g.ID), r)
	h.update(func(ctx context.Context, tx control.Tx) error { return tx.DeleteGateway(ctx, r.AccountID, g.ID) })
	set(control.RepositoryTimes{Version: 1, Attempt: epoch(), Next: epoch()})
}
