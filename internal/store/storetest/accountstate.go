package storetest

import (
	"context"
	"strings"
	"time"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/acme"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/calendar"
	"github.com/keygate/keygate/internal/canary"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/event"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/issuer"
	"github.com/keygate/keygate/internal/owner"
	"github.com/keygate/keygate/internal/plan"
	"github.com/keygate/keygate/internal/snapshot"
	"github.com/keygate/keygate/internal/traffic"
	"github.com/keygate/keygate/internal/user"
	"github.com/keygate/keygate/internal/webhook"
)

func (h *harness) accounts(f control.AccountFilter, p control.Page) string {
	h.Helper()
	var names []string
	for _, a := range get(h, func(ctx context.Context, tx control.ReadTx) ([]account.Account, error) { return tx.Accounts(ctx, f, p) }) {
		names = append(names, a.Name)
	}
	return strings.Join(names, " ")
}

func (h *harness) setState(a *account.Account, s account.State) {
	h.Helper()
	if a.State = s; s == account.Deleted {
		a.Name = a.ID
	}
	h.update(func(ctx context.Context, tx control.Tx) error { return tx.UpdateAccount(ctx, a) })
}

// Guarantee: a list of accounts is newest first, has pages and filters, and lacks deleted
// accounts, whose names are free. An update writes every field.
func testAccounts(h *harness) {
	a, b, c := h.insertAccount("Acme"), h.insertAccount("beta"), h.insertAccount("acme 2")
	a.Name, a.Tier, a.Hosts, a.DefaultPlanID, a.Version = "ACME", account.Scale, []string{"x.example"}, id.New(id.Plan), 7
	h.setState(a, account.Suspended)
	same(h, "updated", get(h, func(ctx context.Context, tx control.ReadTx) (*account.Account, error) { return tx.Account(ctx, a.ID) }), a)
	all := control.Page{Limit: 10}
	same(h, "all", h.accounts(control.AccountFilter{}, all), "acme 2 beta ACME")
	same(h, "a page", h.accounts(control.AccountFilter{}, control.Page{Limit: 1, After: c.ID}), "beta")
	same(h, "state", h.accounts(control.AccountFilter{State: account.Suspended}, all), "ACME")
	same(h, "plan", h.accounts(control.AccountFilter{Tier: account.Platform}, all), "acme 2 beta")
	same(h, "text", h.accounts(control.AccountFilter{Query: "Acme"}, all), "acme 2 ACME")
	same(h, "wildcards are text", h.accounts(control.AccountFilter{Query: "%"}, all), "")
	h.conflict("name", func(ctx context.Context, tx control.Tx) error {
		twin := *b
		twin.Name = "ACME"
		return tx.UpdateAccount(ctx, &twin)
	})
	h.setState(b, account.Deleted)
	same(h, "without the deleted one", h.accounts(control.AccountFilter{}, all), "acme 2 ACME")
	listed, err := h.Accounts(h.Context())
	same(h, "for snapshots", []any{len(listed), err}, []any{2, error(nil)})
	h.insertAccount("beta")
	h.rejected(fault.NotFound, func(ctx context.Context, tx control.Tx) error {
		return tx.UpdateAccount(ctx, &account.Account{ID: id.New(id.Account), Name: "none"})
	})
}

// Guarantee: the deliveries of a suspended account are neither claimed nor failed nor counted
// as late, and are claimed when it is resumed.
func testSuspendedQueue(h *harness) {
	a, other := h.insertAccount("a"), h.insertAccount("other")
	w := h.insertWebhook(a, event.KeyCreated)
	h.insertWebhook(other, event.KeyCreated)
	h.append(h.at(a, event.KeyCreated, epoch()), h.at(other, event.KeyCreated, epoch()))
	h.setState(a, account.Suspended)
	jobs := h.claim(after(time.Hour))
	if len(jobs) != 1 || jobs[0].Endpoint.WebhookID == w.ID {
		h.Fatalf("got %d jobs, want only that of the other account", len(jobs))
	}
	same(h, "stranding", len(h.stranding()), 0)
	backlog, err := h.DeliveryBacklog(h.Context(), epoch().Add(time.Hour))
	same(h, "backlog", []any{backlog, err}, []any{webhook.Backlog{Waiting: 1}, error(nil)})
	h.setState(a, account.Active)
	jobs = h.claim(after(time.Hour))
	if len(jobs) != 1 || jobs[0].Endpoint.WebhookID != w.ID {
		h.Fatalf("resumed: got %d jobs, want the waiting delivery", len(jobs))
	}
}

// fill gives an account records of every kind.
func (h *harness) fill(a *account.Account) *gateway.Gateway {
	h.Helper()
	g := h.insertGateway(a)
	h.putRepository(newRepository(g))
	h.insertCanary(g, canary.Running)
	h.insertWebhook(a, event.KeyCreated)
	h.insertPlan(a, "free")
	h.insertDenial(newDenial(h.insertIssuer(a, "login")))
	h.insertCertificateOf(g, "a.example.com", epoch())
	h.insertOwner(a, "ada", nil)
	for _, limit := range []string{"x", "y"} {
		k := quotaKey(a, limit, calendar.Total)
		h.claimQuotas("p", epoch(), quotaClaim(k, 10, 1))
		h.grantQuota(k, epoch(), 1)
	}
	h.append(h.at(a, event.KeyCreated, epoch()), h.at(a, webhook.Test, epoch()))
	var keys []string
	for range 5 {
		keys = append(keys, h.insertKey(a, func(k *apikey.Key) { k.GatewayID = g.ID }).ID)
	}
	h.update(func(ctx context.Context, tx control.Tx) error {
		if err := tx.InsertRoutes(ctx, []gateway.Route{newRoute(g, "/a", "GET"), newRoute(g, "/b", "GET")}); err != nil {
			return err
		}
		if err := tx.InsertRevision(ctx, &gateway.Revision{ID: id.New(id.Revision), GatewayID: g.ID, Number: 1, Content: []byte("x"), CreatedAt: epoch()}); err != nil {
			return err
		}
		if err := tx.PutStoredResponse(ctx, &control.StoredResponse{KeyID: keys[0], Key: "x", CreatedAt: epoch()}); err != nil {
			return err
		}
		return tx.AppendAudit(ctx, newAudit(a, keys[0]))
	})
	h.appendTraffic(newChunk(a.ID, traffic.Keys, traffic.Minutes, 60, 1, 4))
	return g
}

// Guarantee: the records of a deleted account are removed in transactions of bounded size, each
// of which can be the last before a crash. Its audit log and its identifier stay, other accounts
// keep everything, and its gateways are in the change log. An account that is not deleted loses
// nothing.
func testRemoveAccount(h *harness) {
	a, b := h.insertAccount("a"), h.insertAccount("b")
	ours, theirs := h.fill(a), h.fill(b)
	ended, kept := h.newSession(a.ID, h.insertKey(a, nil).ID, 0), h.newSession(b.ID, h.insertKey(b, nil).ID, 0)
	h.insertSession(ended, 1, 1)
	h.insertSession(kept, 1, 1)
	users := map[*account.Account]*user.User{}
	for _, of := range []*account.Account{a, b} {
		u := h.insertUser(of, "ada", nil)
		users[of] = u
		h.insertUserSession(newUserSession(u, 0), 1, 1)
		h.insertInvitation(of, of.ID, epoch())
		h.insertUserToken(newUserToken(u, 0), 1, 1)
		h.insertLogin(newDevice(of, "CODE"+of.Name))
		h.update(func(ctx context.Context, tx control.Tx) error {
			return tx.PutStoredResponse(ctx, &control.StoredResponse{KeyID: u.ID, Key: "x", CreatedAt: epoch()})
		})
	}
	h.setState(a, account.Suspended)
	h.rejected(fault.Internal, func(ctx context.Context, tx control.Tx) error {
		_, err := tx.RemoveAccount(ctx, a.ID, 100)
		return err
	})
	h.setState(a, account.Deleted)
	pending := func() []string {
		return get(h, func(ctx context.Context, tx control.ReadTx) ([]string, error) { return tx.DeletedAccounts(ctx) })
	}
	same(h, "to remove", pending(), []string{a.ID})
	from, steps := h.lastSeq(), 0
	for more := true; more; steps++ {
		h.update(func(ctx context.Context, tx control.Tx) (err error) {
			more, err = tx.RemoveAccount(ctx, a.ID, 1)
			return err
		})
		if steps > 100 {
			h.Fatal("the removal does not end")
		}
	}
	if steps < 10 {
		h.Errorf("got %d transactions of one record, want one for each", steps)
	}
	same(h, "to remove", len(pending()), 0)
	changes, _ := h.changes(from, 10)
	same(h, "changes", []any{len(changes), changes[0].Kind, changes[1].Kind, changes[1].ID}, []any{2, snapshot.CertificateChange, snapshot.GatewayChange, ours.ID})
	left := func(of *account.Account, g *gateway.Gateway) []int {
		page := control.Page{Limit: 10}
		keys := h.keyPage(of.ID, control.KeyFilter{Now: epoch()}, page)
		hooks := get(h, func(ctx context.Context, tx control.ReadTx) ([]webhook.Webhook, error) {
			return tx.Webhooks(ctx, of.ID, page)
		})
		revisions := get(h, func(ctx context.Context, tx control.ReadTx) ([]gateway.Revision, error) {
			return tx.Revisions(ctx, g.ID, 10, 0)
		})
		counts := get(h, func(ctx context.Context, tx control.ReadTx) (control.AccountCounts, error) {
			return tx.AccountCounts(ctx, of.ID)
		})
		plans := get(h, func(ctx context.Context, tx control.ReadTx) ([]plan.Plan, error) {
			return tx.Plans(ctx, of.ID, control.PlanFilter{}, page)
		})
		owners := get(h, func(ctx context.Context, tx control.ReadTx) ([]owner.Owner, error) {
			return tx.Owners(ctx, of.ID, control.OwnerFilter{}, page)
		})
		issuers := get(h, func(ctx context.Context, tx control.ReadTx) ([]issuer.Issuer, error) {
			return tx.Issuers(ctx, of.ID, control.IssuerFilter{}, page)
		})
		certificates := get(h, func(ctx context.Context, tx control.ReadTx) ([]acme.Certificate, error) {
			return tx.Certificates(ctx, of.ID, control.CertificateFilter{}, page)
		})
		denials := 0
		for i := range issuers {
			denials += len(h.denials(&issuers[i], control.DenialFilter{}, epoch()))
		}
		quotas := h.quotaWindows(quotaKey(of, "", calendar.Total), epoch())
		grants := h.quotaGrants(quotaKey(of, "", calendar.Total))
		chunks := h.readTraffic(traffic.ChunkQuery{AccountID: of.ID, Part: traffic.Keys, Tier: traffic.Minutes, Before: 120})
		canaries := get(h, func(ctx context.Context, tx control.ReadTx) ([]canary.Canary, error) {
			return tx.Canaries(ctx, g.ID, page)
		})
		people := get(h, func(ctx context.Context, tx control.ReadTx) (control.UserCounts, error) {
			return tx.UserCounts(ctx, of.ID)
		})
		devices := get(h, func(ctx context.Context, tx control.ReadTx) (int64, error) {
			_, all, err := tx.PendingDevices(ctx, of.ID, "", epoch())
			return all, err
		})
		tokens := 0
		if _, err := try(h, func(ctx context.Context, tx control.ReadTx) (*control.TokenOfUser, error) {
			return tx.UserOfToken(ctx, newUserToken(users[of], 0).Digest)
		}); err == nil {
			tokens++
		}
		return []int{int(people.Users + people.Invitations), int(devices), tokens, int(counts.Responses), len(canaries), len(h.routeTable(g.ID)), len(revisions), len(keys), len(hooks), len(h.deliveries(of.ID, control.DeliveryFilter{})),
			len(h.events(of.ID)), len(chunks), int(counts.Owners), int(counts.Plans), int(counts.Quotas), len(quotas), len(grants), len(plans), len(owners), len(issuers), denials, len(certificates), len(h.auditLog(of.ID))}
	}
	same(h, "of the deleted account", left(a, ours), []int{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1})
	same(h, "of the other account", left(b, theirs), []int{2, 1, 1, 2, 1, 2, 1, 6, 1, 1, 1, 1, 1, 1, 2, 2, 2, 1, 1, 1, 1, 1, 1})
	h.wantSession(ended, false)
	h.wantSession(kept, true)
	gone := get(h, func(ctx context.Context, tx control.ReadTx) (*account.Account, error) { return tx.Account(ctx, a.ID) })
	same(h, "state", gone.State, account.Deleted)
	h.update(func(ctx context.Context, tx control.Tx) error { // a record on its way when it was deleted
		return tx.AppendAudit(ctx, &audit.Record{AccountID: a.ID, Time: epoch(), Kind: audit.Authentication, Outcome: audit.KeyInvalid})
	})
}
