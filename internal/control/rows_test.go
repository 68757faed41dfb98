package control_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/acme"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/canary"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/event"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/issuer"
	"github.com/keygate/keygate/internal/keygatetest/postgrestest"
	"github.com/keygate/keygate/internal/owner"
	"github.com/keygate/keygate/internal/store"
	"github.com/keygate/keygate/internal/store/postgres"
	"github.com/keygate/keygate/internal/store/sqlite"
	"github.com/keygate/keygate/internal/store/sqlite/sqlitetest"
	storestate "github.com/keygate/keygate/internal/store/state"
	"github.com/keygate/keygate/internal/webhook"
	"github.com/keygate/keygate/internal/webhook/fanout"
)

// mostRows is the most rows that one transaction may write, whatever a tenant asks for.
const mostRows = 2000

// rowCounter keeps what the transactions of each operation have counted.
type rowCounter struct {
	mu  sync.Mutex
	of  string // the operation; "" counts nothing
	all map[string][]storestate.Counted
}

func (c *rowCounter) count(n storestate.Counted) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of != "" {
		c.all[c.of] = append(c.all[c.of], n)
	}
}

func (c *rowCounter) set(of string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.of = of
}

// rowHarness is a service on one engine, with an account at its bounds.
type rowHarness struct {
	*harness
	engine   store.Engine
	counter  *rowCounter
	operator *control.Actor
	caller   *control.Actor
	hooks    []string
}

// do runs an operation that is counted.
func (h *rowHarness) do(of string, f func() error) {
	h.tb.Helper()
	h.counter.set(of)
	err := f()
	h.counter.set("")
	if err != nil {
		h.tb.Fatalf("%s: %v", of, err)
	}
}

// setup stores the accounts and as many endpoints as an account may have, each subscribed to everything.
func (h *rowHarness) setup() {
	h.tb.Helper()
	_, h.operator = h.account(account.Default)
	h.caller = h.harness.caller("acme", "admin")
	for range 10 {
		h.must(h.engine.Update(ctx(), func(tx control.Tx) error {
			for range 100 {
				w := webhook.Webhook{ID: id.New(id.Webhook), AccountID: h.caller.Account.ID, URL: "https://h.example", SharesURL: true, State: webhook.Active,
					Events: webhook.EventTypes(), Secret: []byte("s"), SecretSince: h.clock.now(), CreatedAt: h.clock.now(), Version: 1}
				if err := tx.InsertWebhook(ctx(), &w); err != nil {
					return err
				}
				h.hooks = append(h.hooks, w.ID)
			}
			return nil
		}))
	}
}

// all carries out every operation.
func (h *rowHarness) all() {
	h.setup()
	h.index()
	h.keys()
	h.ownersAndPlans()
	h.claims()
	h.gateways()
	h.webhooks()
	h.single()
	h.users()
	h.fanOut(40)
	h.accounts()
}

// pushes pushes so often to a gateway that it leaves more route tables than one transaction may write rows.
func (h *rowHarness) pushes() {
	_, offline := h.account("acme")
	g := must[*gateway.Gateway](h.harness)(h.CreateGateway(ctx(), offline, newGateway("https://h"), string(spec("/a"))))
	const pushes, batch = 2100, 100 // no transaction of a tenant's holds the head for longer
	for first := 2; first < 2+pushes; first += batch {
		h.must(h.engine.Update(ctx(), func(tx control.Tx) error {
			for number := range batch {
				p, err := h.engine.Prepare(ctx(), &gateway.Revision{ID: id.New(id.Revision), GatewayID: g.ID, Number: int64(first + number),
					Source: gateway.API, Kind: gateway.SpecDocument, CreatedAt: h.clock.now(), Content: spec("/a")})
				if err := cmp.Or(err, tx.InsertPrepared(ctx(), p)); err != nil {
					return err
				}
			}
			return nil
		}))
	}
}

// index stores keys, and indexes them.
func (h *rowHarness) index() {
	for range 15 {
		h.must(h.engine.Update(ctx(), func(tx control.Tx) error {
			for range 100 {
				keyID := id.New(id.Key)
				k := apikey.Key{ID: keyID, AccountID: h.caller.Account.ID, Digest: apikey.DigestOf(keyID), Prefix: "kg_" + keyID[10:16], Name: "name of " + keyID,
					Level: apikey.GatewayLevel, Scope: apikey.Scopes{{Word: apikey.Read}}, BucketID: keyID, CreatedAt: h.clock.now(), Version: 1}
				if err := tx.InsertKey(ctx(), &k); err != nil {
					return err
				}
			}
			return nil
		}))
	}
	h.maintain("index keys", func(tx control.ReadTx) (bool, error) {
		n, err := tx.KeysToIndex(ctx(), 1)
		return n == 0, err
	})
}

// fanOut writes up to n pieces of the deliveries that wait.
func (h *rowHarness) fanOut(n int) {
	h.do("fan out", func() error {
		for range n {
			if accountID, _, err := h.engine.FanOut(ctx(), "", h.clock.now(), fanout.Batch); err != nil || accountID == "" {
				return err
			}
		}
		return nil
	})
}

// keys carries out the operations on keys.
func (h *rowHarness) keys() {
	var k *control.NewKey
	create := func(in control.KeyInput) func() error {
		return func() (err error) {
			k, err = h.CreateKey(ctx(), h.caller, in)
			return err
		}
	}
	h.do("create key", create(control.KeyInput{Name: "k", Scope: "read", RateLimit: control.KeyLimitInput{Rate: "10/s"}}))
	for range 63 {
		h.do("rotate key", func() (err error) {
			k, err = h.RotateKey(ctx(), h.caller, k.ID, 30, "", nil)
			return err
		})
	}
	_, err := h.RotateKey(ctx(), h.caller, k.ID, 30, "", nil)
	h.wantCode(err, fault.Conflict, "")
	many := make([]control.ImportInput, control.MaxImport)
	for i := range many {
		many[i] = foreign(func(in *control.ImportInput) {
			in.Secret, in.Owner = fmt.Sprint(foreignKey, "-", i), fmt.Sprint("customer-", i)
		})
	}
	h.do("import keys", func() error { return second(h.ImportKeys(ctx(), h.caller, many)) })
	for i := range many {
		many[i].Secret, many[i].Owner = fmt.Sprint(foreignKey, "-other-", i), fmt.Sprint("other-customer-", i)
	}
	h.do("import as many keys as one transaction does", func() error { return second(h.ImportKeys(ctx(), h.caller, many[:100])) })
	h.do("give an import up", func() error {
		failing := &failingImport{Store: h.store, after: 10} // its beginning and all of its pieces
		h.serve(failing)
		defer h.serve(failing.Store)
		_, err := h.ImportKeys(ctx(), h.caller, many[100:])
		if !errors.Is(err, errCrashed) {
			return fmt.Errorf("got %w; want the error of the store", err)
		}
		return nil
	})
	h.do("change the rate of a chain of rotations", func() error {
		return second(h.UpdateKey(ctx(), h.caller, k.ID, control.KeyPatch{RateLimit: value(control.KeyLimitInput{Rate: "20/s"})}, nil))
	})
	h.do("change the rate of a chain of rotations", func() error {
		return second(h.UpdateKey(ctx(), h.caller, k.ID, control.KeyPatch{RateLimit: value(control.KeyLimitInput{Object: &control.KeyLimitObject{Daily: "5/day"}})}, nil))
	})
	h.do("revoke key", func() error { return second(h.RevokeKey(ctx(), h.caller, k.ID, nil)) })
	of := &holders{harness: h.harness, operator: h.caller}
	of.gateway()
	first := of.key(control.KeyInput{})
	last := first
	for range 130 { // more than are revoked at once, and many more than are active
		h.clock.advance(24 * time.Hour)
		h.do("rotate key by its holder", func() (err error) {
			last, err = of.rotate(&last.Key, 30)
			return err
		})
	}
	h.do("revoke key with what self-service has made", func() error { return second(h.RevokeKey(ctx(), h.caller, first.ID, nil)) })
	if got := of.state(&last.Key); got != apikey.Revoked {
		h.tb.Errorf("the newest key is %s; want revoked", got)
	}
	expires := h.clock.now().Add(time.Hour).Format(time.RFC3339Nano)
	for range 130 {
		h.do("create key", create(control.KeyInput{Name: "k", Scope: "read", ExpiresAt: expires}))
	}
	h.clock.advance(2 * time.Hour)
	h.do("expire keys", func() error { return second(h.NotifyExpired(ctx())) })
}

// ownersAndPlans carries out the operations on owners and plans, of which many keys and owners make use.
func (h *rowHarness) ownersAndPlans() {
	var p *control.ChangedPlan
	h.do("create plan", func() (err error) {
		p, err = h.CreatePlan(ctx(), h.caller, planOf("many", "10/s"))
		return err
	})
	h.do("change the account's default plan", func() error {
		return second(h.UpdateOwnAccount(ctx(), h.caller, control.OwnAccountPatch{DefaultPlan: control.ChoosePlan(p.ID, "")}, nil))
	})
	var k *control.NewKey
	for i := range 130 {
		h.do("create key with its owner", func() (err error) {
			k, err = h.CreateKey(ctx(), h.caller, control.KeyInput{Name: "k", Scope: "read", Owner: "many", Plan: control.ChoosePlan("", "many")})
			return err
		})
		h.do("create owner", func() error {
			return second(h.CreateOwner(ctx(), h.caller, control.OwnerInput{ExternalID: fmt.Sprint("o", i), Plan: control.ChoosePlan(p.ID, "")}))
		})
	}
	h.do("move key to a new owner", func() error {
		return second(h.UpdateKey(ctx(), h.caller, k.ID, control.KeyPatch{Owner: value("another")}, nil))
	})
	h.do("change plan", func() error {
		return second(h.UpdatePlan(ctx(), h.caller, p.ID, control.PlanPatch{Limits: value(planOf("", "20/s").Limits)}, nil))
	})
	for _, state := range []string{"suspended", "active"} {
		h.do("suspend owner", func() error {
			return second(h.UpdateOwner(ctx(), h.caller, k.OwnerID, control.OwnerPatch{State: value(state)}, nil))
		})
	}
	free := must[*owner.Owner](h.harness)(h.CreateOwner(ctx(), h.caller, control.OwnerInput{ExternalID: "free"}))
	h.do("delete owner", func() error { return second(h.DeleteOwner(ctx(), h.caller, free.ID, nil)) })
	unused := must[*control.ChangedPlan](h.harness)(h.CreatePlan(ctx(), h.caller, planOf("unused", "1/s")))
	h.do("delete plan", func() error { return second(h.DeletePlan(ctx(), h.caller, unused.ID, nil)) })
	h.issuers()
	h.certificates()
}

// certificates carries out the operations on certificates by ACME.
func (h *rowHarness) certificates() {
	var lead canary.Lead // nobody has taken it
	c := h.tenant("named", "*.named.test")
	var g *gateway.Gateway
	h.do("create gateway with a certificate", func() (err error) {
		g, err = h.certified(c, "a.named.test")
		return err
	})
	h.do("change the hostname of a certificate", func() error {
		return second(h.UpdateGateway(ctx(), c, g.ID, gateway.Patch{Hostname: value("b.named.test")}, nil))
	})
	of := h.harness.certificates(c)[0].ID
	h.do("begin order", func() error { return h.BeginOrder(ctx(), lead, of, acme.Challenge{Token: "t", KeyAuthorization: "k"}) })
	h.do("put challenge", func() error {
		return h.PutChallenge(ctx(), lead, of, acme.Challenge{Token: "u", KeyAuthorization: "v"})
	})
	h.do("fail order", func() error { return h.FailOrder(ctx(), lead, of, "no") })
	h.do("renew certificate", func() error { return second(h.RenewCertificate(ctx(), c, of)) })
	h.do("finish order", func() error {
		now := h.clock.now()
		return h.FinishOrder(ctx(), lead, of, &acme.Issued{Chain: "x", Key: []byte("k"), NotBefore: now, NotAfter: now.Add(time.Hour), RenewAt: now.Add(time.Hour)})
	})
	h.do("note renewal", func() error { return h.NoteRenewal(ctx(), lead, of, h.clock.now(), h.clock.now()) })
	h.do("note expiring", func() error { return h.NoteExpiring(ctx(), lead, of) })
	h.do("store account with the authority", func() error {
		return h.PutCertificateAccount(ctx(), lead, &acme.Account{Directory: "d", Key: []byte("k")})
	})
	h.do("delete gateway with a certificate", func() error { return second(h.DeleteGateway(ctx(), c, g.ID, nil)) })
}

// issuers carries out the operations on issuers.
func (h *rowHarness) issuers() {
	var i *issuer.Issuer
	h.do("create issuer", func() (err error) {
		i, err = h.CreateIssuer(ctx(), h.caller, "login", login("a"))
		return err
	})
	h.do("change issuer", func() error {
		return second(h.UpdateIssuer(ctx(), h.caller, i.ID, func(i *issuer.Issuer) { i.JWKS = jwksOf("b", "c") }, nil))
	})
	var d *issuer.Denial
	h.do("create denial", func() (err error) {
		d, err = h.CreateDenial(ctx(), h.caller, i.ID, &issuer.Denial{Subject: "u"})
		return err
	})
	h.do("delete denial", func() error { return second(h.DeleteDenial(ctx(), h.caller, i.ID, d.ID)) })
	h.do("delete issuer", func() error { return second(h.DeleteIssuer(ctx(), h.caller, i.ID, nil)) })
}

// gateways carries out the operations on gateways.
func (h *rowHarness) gateways() {
	const keys, routes = 130, 3000
	var g *gateway.Gateway
	h.do("create gateway", func() (err error) {
		g, err = h.CreateGateway(ctx(), h.caller, newGateway("https://h"), string(spec("/a")))
		return err
	})
	push := func(paths ...string) error {
		return second(h.PushSpec(ctx(), h.caller, g.ID, spec(paths...), false, nil))
	}
	h.do("push", func() error { return push(manyPaths(routes)...) })
	h.do("push", func() error { return push("/b") })
	h.do("roll back", func() error { return second(h.Rollback(ctx(), h.caller, g.ID, 2, false, nil)) })
	h.keysOf(h.caller, g.ID, keys)
	h.do("delete gateway", func() error { return second(h.DeleteGateway(ctx(), h.caller, g.ID, nil)) })
	h.do("finish the deletion of gateways", func() error { return h.FinishDeletions(ctx()) })
}

// webhooks carries out the operations on endpoints that have deliveries.
func (h *rowHarness) webhooks() {
	for range 4 {
		h.do("append events", func() error {
			var events []event.Event
			for range 100 {
				events = append(events, must[event.Event](h.harness)(event.New(h.caller.Account.ID, event.GatewayUpstreamError, h.clock.now(), struct{}{})))
			}
			return h.engine.AppendEvents(ctx(), events)
		})
	}
	h.must(h.engine.Update(ctx(), func(tx control.Tx) error { // many deliveries of one endpoint
		events, err := tx.Events(ctx(), h.caller.Account.ID, control.EventFilter{}, control.Page{Limit: 450})
		for i := range events {
			err = cmp.Or(err, tx.InsertDelivery(ctx(), &webhook.Delivery{ID: id.New(id.Delivery), AccountID: h.caller.Account.ID, WebhookID: h.hooks[0], EventID: events[i].ID,
				EventType: events[i].Type, State: webhook.Pending, Trigger: webhook.ByEvent, NextAttemptAt: h.clock.now(), CreatedAt: h.clock.now()}))
		}
		return err
	}))
	patch := func(state webhook.State) func() error {
		return func() error {
			return second(h.UpdateWebhook(ctx(), h.caller, h.hooks[0], control.WebhookPatch{State: value(string(state))}, nil))
		}
	}
	h.do("disable webhook", patch(webhook.Disabled))
	h.maintain("fail deliveries", func(tx control.ReadTx) (bool, error) {
		ids, err := tx.StrandingWebhooks(ctx())
		return len(ids) == 0, err
	})
	h.do("enable webhook", patch(webhook.Active))
	h.redeliver()
	h.do("recover", func() error { return second(h.RecoverWebhook(ctx(), h.caller, h.hooks[0], time.Time{})) })
	h.do("delete webhook", func() error { return second(h.DeleteWebhook(ctx(), h.caller, h.hooks[0], nil)) })
}

// redeliver delivers an event of an endpoint again of which very many deliveries have failed, since each call may make
// another one before the first has ended.
func (h *rowHarness) redeliver() {
	var last webhook.Delivery
	for range 3 {
		h.must(h.engine.Update(ctx(), func(tx control.Tx) error {
			events, err := tx.Events(ctx(), h.caller.Account.ID, control.EventFilter{}, control.Page{Limit: 1})
			for range 1000 {
				last = webhook.Delivery{ID: id.New(id.Delivery), AccountID: h.caller.Account.ID, WebhookID: h.hooks[1], EventID: events[0].ID,
					EventType: events[0].Type, State: webhook.Pending, Trigger: webhook.ByHand, NextAttemptAt: h.clock.now(), CreatedAt: h.clock.now()}
				err = cmp.Or(err, tx.InsertDelivery(ctx(), &last))
			}
			return err
		}))
	}
	state := func(s webhook.State) func() error {
		return func() error {
			return second(h.UpdateWebhook(ctx(), h.caller, h.hooks[1], control.WebhookPatch{State: value(string(s))}, nil))
		}
	}
	h.do("disable webhook", state(webhook.Disabled))
	h.maintain("fail deliveries", func(tx control.ReadTx) (bool, error) {
		ids, err := tx.StrandingWebhooks(ctx())
		return len(ids) == 0, err
	})
	h.do("enable webhook", state(webhook.Active))
	h.do("redeliver", func() error { return second(h.Redeliver(ctx(), h.caller, last.ID)) })
	h.do("recover", func() error { return second(h.RecoverWebhook(ctx(), h.caller, h.hooks[1], time.Time{})) })
}

// maintain runs the maintenance until a condition holds.
func (h *rowHarness) maintain(of string, done func(control.ReadTx) (bool, error)) {
	h.tb.Helper()
	h.do(of, func() error {
		m := must[*control.Maintenance](h.harness)(control.NewMaintenance(control.MaintenanceConfig{
			Service: h.Service, Store: h.engine, Now: h.clock.now, ExpiryPeriod: 10 * time.Millisecond}))
		h.must(m.Start(ctx()))
		bounded, cancel := context.WithTimeout(ctx(), 2*time.Minute) // only a failing test reaches it
		defer cancel()
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for over := false; !over; {
			h.must(h.engine.View(bounded, func(tx control.ReadTx) (err error) {
				over, err = done(tx)
				return err
			}))
			<-tick.C
		}
		return m.Stop(bounded)
	})
}

// accounts suspends and deletes the account, and removes what is old.
func (h *rowHarness) accounts() {
	state := func(s account.State) func() error {
		return func() error {
			return second(h.UpdateAccount(ctx(), h.operator, h.caller.Account.ID, control.AccountPatch{State: value(string(s))}, nil))
		}
	}
	h.do("suspend account", state(account.Suspended))
	h.clock.advance(8 * 24 * time.Hour)
	h.maintain("remove old records", func(tx control.ReadTx) (bool, error) {
		list, err := tx.Events(ctx(), h.caller.Account.ID, control.EventFilter{}, control.Page{Limit: 1})
		return len(list) == 0, err
	})
	h.pushes()
	h.do("delete account", func() error { return second(h.DeleteAccount(ctx(), h.operator, h.caller.Account.ID, nil)) })
	h.maintain("remove account", func(tx control.ReadTx) (bool, error) {
		ids, err := tx.DeletedAccounts(ctx())
		return len(ids) == 0, err
	})
}

// engines are functions that open a store of each engine, which goes by the harness's clock.
func engines() map[string]func(tb testing.TB, h *harness, counted func(storestate.Counted)) store.Engine {
	return map[string]func(testing.TB, *harness, func(storestate.Counted)) store.Engine{
		"sqlite": func(tb testing.TB, h *harness, counted func(storestate.Counted)) store.Engine {
			return must[*sqlite.DB](h)(sqlite.Open(tb.Context(), sqlite.Config{Path: sqlitetest.Path(tb), Now: h.clock.now, Counted: counted}))
		},
		"postgres": func(tb testing.TB, h *harness, counted func(storestate.Counted)) store.Engine {
			return must[*postgres.DB](h)(postgres.Open(tb.Context(), postgres.Config{
				URL: postgrestest.Empty(tb) + "&keygate.callers_time=on", Now: h.clock.now, Counted: counted, LeaseTTL: time.Minute}))
		},
	}
}

// removing are the operations that hold the head of the change log while they delete what they have found, or write too much for
// one round trip.
var removing = []string{"fail deliveries", "remove old records", "delete account", "remove account"}

// Guarantee: no transaction writes more than 2,000 rows, whatever its operation is and however much an account has. In
// PostgreSQL, a transaction holds the head of the change log for the round trip
// of its COMMIT alone, unless its operation is one of removing.
func TestRowsOfEveryTransaction(t *testing.T) {
	for name, open := range engines() {
		t.Run(name, func(t *testing.T) {
			c := &rowCounter{all: map[string][]storestate.Counted{}}
			h := newHarness(t)
			engine := open(t, h, c.count)
			t.Cleanup(func() { h.must(engine.Close()) })
			h.serve(engine)
			(&rowHarness{harness: h, engine: engine, counter: c}).all()
			for of, list := range c.all {
				var most storestate.Counted
				for _, n := range list {
					most.Rows, most.HeadTrips = max(most.Rows, n.Rows), max(most.HeadTrips, n.HeadTrips)
				}
				t.Logf("%-42s %4d transactions, %4d rows at most, %3d round trips with the head", of, len(list), most.Rows, most.HeadTrips)
				if most.Rows > mostRows || most.Rows == 0 {
					t.Errorf("%s writes %d rows in a transaction; want at most %d, and some", of, most.Rows, mostRows)
				}
				if most.HeadTrips > 1 && !slices.Contains(removing, of) {
					t.Errorf("%s holds the head of the change log for %d round trips; want the last one alone", of, most.HeadTrips)
				}
			}
			if len(c.all) < 60 {
				t.Errorf("only %d operations were counted", len(c.all))
			}
		})
	}
}
