package storetest

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/addrlist"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/calendar"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/event"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/owner"
	"github.com/keygate/keygate/internal/plan"
	"github.com/keygate/keygate/internal/store/rows"
	"github.com/keygate/keygate/internal/webhook"
)

// countModel is what an account has.
type countModel struct {
	account   *account.Account
	keys      []*apikey.Key
	responses map[string]*control.StoredResponse // by key ID and key
	gateways  []*gateway.Gateway
	routes    map[string][]gateway.Route // by gateway
	webhooks  []*webhook.Webhook
	owners    []*owner.Owner
	plans     []*plan.Plan
	quotas    map[string]bool // by the names of limits
}

func (m *countModel) want(h *harness) (n control.AccountCounts) {
	h.Helper()
	n.Keys = int64(len(m.keys))
	for _, k := range m.keys {
		if k.RevokedAt.IsZero() {
			n.LiveKeys++
			n.KeyBytes += int64(len(k.Scope.String()) - len(k.Scope[0].String()) + len(k.Scope[0].Resource))
			if len(k.Scope) > 1 {
				n.KeyBytes-- // the space after the first
			}
			if !k.Addresses.IsZero() {
				lists, err := json.Marshal(k.Addresses)
				if err != nil {
					h.Fatal(err)
				}
				n.KeyBytes += int64(len(lists))
			}
		}
	}
	for _, g := range m.gateways {
		n.GatewayBytes += m.settingsBytes(h, g)
		n.Targets += int64(g.CountTargets())
		n.RouteBytes += gateway.RouteBytes(m.routes[g.ID])
	}
	for _, hook := range m.webhooks {
		n.WebhookBytes += int64(len(hook.URL))
		for i, e := range hook.Events {
			n.WebhookBytes += int64(len(e) + min(i, 1))
		}
	}
	for _, o := range m.owners {
		n.Owners++
		n.OwnerBytes += int64(len(o.ExternalID) + len(o.TimeZone))
	}
	for _, p := range m.plans {
		limits, err := json.Marshal(p.Limits)
		if err != nil {
			h.Fatal(err)
		}
		n.Plans++
		n.PlanBytes += int64(len(p.Name) + len(p.Title) + len(limits) + len(p.TimeZone))
	}
	n.Quotas = int64(len(m.quotas))
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
			models = append(models, &countModel{account: h.insertAccount(fmt.Sprintf("counted %d", names)), responses: map[string]*control.StoredResponse{}, routes: map[string][]gateway.Route{}, quotas: map[string]bool{}})
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
	switch rapid.IntRange(0, 3).Draw(t, "kind") {
	case 0:
		m.configure(h, t)
		return
	case 1:
		m.sell(h, t)
		return
	}
	what := rapid.IntRange(0, 5).Draw(t, "what")
	if what == 0 || len(m.keys) == 0 {
		m.keys = append(m.keys, h.insertKey(m.account, func(k *apikey.Key) {
			setOwner(k, rapid.StringMatching(`[a-z]{0,9}`).Draw(t, "owner"))
			k.Scope = rapid.SampledFrom([]apikey.Scopes{{{Word: apikey.Read}}, {{Word: apikey.Write, Resource: "orders"}, {Word: apikey.Read}}}).Draw(t, "scope")
			k.Addresses = addressesOf(t)
		}))
		return
	}
	k := m.keys[rapid.IntRange(0, len(m.keys)-1).Draw(t, "key")]
	switch what {
	case 1: // revoke, perhaps again, or with another expiry only
		k.Version++
		k.ExpiresAt, k.ExpiryNotified = epoch(), epoch()
		setOwner(k, rapid.StringMatching(`[a-z]{0,9}`).Draw(t, "owner"))
		k.Addresses = addressesOf(t)
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

// addressesOf returns the lists of a key, or none.
func addressesOf(t *rapid.T) (l addrlist.Lists) {
	l.Allow = rapid.SampledFrom([][]string{nil, {"192.0.2.0/24"}, {"2001:db8::/32", "192.0.2.1/32"}}).Draw(t, "addresses")
	return l
}

// sell adds, changes or deletes an owner or a plan.
func (m *countModel) sell(h *harness, t *rapid.T) {
	h.Helper()
	what := rapid.IntRange(0, 4).Draw(t, "what is sold")
	text := rapid.StringMatching(`[a-zé]{1,9}`).Draw(t, "text")
	if what == 0 || len(m.owners) == 0 || len(m.plans) == 0 {
		m.owners = append(m.owners, h.insertOwner(m.account, id.New(id.Owner), nil))
		m.plans = append(m.plans, h.insertPlan(m.account, id.New(id.Plan)))
		return
	}
	o := m.owners[rapid.IntRange(0, len(m.owners)-1).Draw(t, "owner")]
	p := m.plans[rapid.IntRange(0, len(m.plans)-1).Draw(t, "plan")]
	switch what {
	case 1:
		o.Name, o.TimeZone, o.Version = text, text, o.Version+1
		h.update(func(ctx context.Context, tx control.Tx) error { return tx.UpdateOwner(ctx, o) })
		m.quotas[text] = true
		h.claimQuotas("p", epoch(), quotaClaim(quotaKey(m.account, text, calendar.Day), 10, 1), quotaClaim(quotaKey(m.account, text, calendar.Day), 10, 1))
	case 2:
		p.Title, p.TimeZone, p.Limits, p.Version = text, text, p.Limits[:min(1, len(text)%2)], p.Version+1
		h.update(func(ctx context.Context, tx control.Tx) error { return tx.UpdatePlan(ctx, p) })
	case 3:
		h.update(func(ctx context.Context, tx control.Tx) error { return tx.DeleteOwner(ctx, m.account.ID, o.ID) })
		m.owners = slices.DeleteFunc(m.owners, func(one *owner.Owner) bool { return one == o })
	default:
		h.update(func(ctx context.Context, tx control.Tx) error { return tx.DeletePlan(ctx, m.account.ID, p.ID) })
		m.plans = slices.DeleteFunc(m.plans, func(one *plan.Plan) bool { return one == p })
	}
}

// settingsBytes returns the size of the settings of g as both engines store them.
func (m *countModel) settingsBytes(h *harness, g *gateway.Gateway) (n int64) {
	h.Helper()
	upstreams, err := rows.StoredUpstreams(g)
	if err != nil {
		h.Fatal(err)
	}
	n = int64(len(g.Name) + len(g.Hostname) + len(upstreams))
	for _, part := range []any{&g.Requests, g.CORS} {
		b, err := json.Marshal(part)
		if err != nil {
			h.Fatal(err)
		}
		if string(b) != "null" {
			n += int64(len(b))
		}
	}
	return n
}

// configure changes a gateway with its routes, or an endpoint.
func (m *countModel) configure(h *harness, t *rapid.T) {
	h.Helper()
	what := rapid.IntRange(0, 6).Draw(t, "what is configured")
	text := rapid.StringMatching(`[a-zé]{1,9}`).Draw(t, "text")
	if what == 0 || len(m.gateways) == 0 {
		m.gateways = append(m.gateways, h.insertGateway(m.account))
		m.webhooks = append(m.webhooks, h.insertWebhook(m.account, event.KeyCreated, event.KeyRevoked))
		return
	}
	g := m.gateways[rapid.IntRange(0, len(m.gateways)-1).Draw(t, "gateway")]
	hook := m.webhooks[rapid.IntRange(0, len(m.webhooks)-1).Draw(t, "webhook")]
	switch routes := m.routes[g.ID]; {
	case what == 1:
		g.Name, g.CORS, g.Version = text, &gateway.CORS{Origins: []string{text}}, g.Version+1
		g.Others = rapid.SliceOfN(upstreamOf(), 0, 2).Draw(t, "others")
		h.update(func(ctx context.Context, tx control.Tx) error { return tx.UpdateGateway(ctx, g) })
	case what == 2 || what == 3 || len(routes) == 0:
		r := gateway.Route{ID: id.New(id.Route), GatewayID: g.ID, Path: "/" + text, Methods: []string{"GET"}, Auth: gateway.AuthKey, Source: gateway.API, CreatedAt: epoch(), Version: 1}
		if len(text)%2 == 0 {
			r.Cost = costOf(h, fmt.Sprintf("[{meter: tokens, from: {request: %d}}]", len(text)))
			r.Handling = &gateway.Handling{Respond: &gateway.Respond{Status: 404, ContentType: "text/plain", Body: text}}
		}
		m.routes[g.ID] = append(routes, r)
		h.update(func(ctx context.Context, tx control.Tx) error { return tx.InsertRoutes(ctx, []gateway.Route{r}) })
	case what == 4:
		routes[0].Path, routes[0].Version = "/changed/"+text, routes[0].Version+1
		if routes[0].Cost = nil; len(text)%2 == 0 {
			routes[0].Cost = costOf(h, fmt.Sprintf("[{meter: %s, from: {request: 1}}]", strings.Repeat("t", len(text))))
		}
		h.update(func(ctx context.Context, tx control.Tx) error { return tx.UpdateRoutes(ctx, routes[:1]) })
	case what == 5:
		h.update(func(ctx context.Context, tx control.Tx) error {
			return tx.DeleteRoutes(ctx, g.ID, []string{routes[0].ID})
		})
		m.routes[g.ID] = routes[1:]
	default:
		hook.URL, hook.Version = "https://"+text+".example", hook.Version+1
		h.update(func(ctx context.Context, tx control.Tx) error { return tx.UpdateWebhook(ctx, hook) })
		h.update(func(ctx context.Context, tx control.Tx) error { return tx.DeleteGateway(ctx, m.account.ID, g.ID) })
		m.gateways = slices.DeleteFunc(m.gateways, func(o *gateway.Gateway) bool { return o == g })
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
