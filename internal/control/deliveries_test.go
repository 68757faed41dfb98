package control_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/event"
	"github.com/keygate/keygate/internal/store/sqlite/sqlitetest"
	"github.com/keygate/keygate/internal/webhook"
)

// Guarantee: whatever waits for an endpoint that has ended fails within two
// seconds, and the log keeps what was delivered for 3 days, what failed for 7.
func TestMaintenanceOfDeliveries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := openHarness(t, sqlitetest.Path(t))
		defer h.close()
		c := h.caller("acme", "admin")
		gone, kept := h.endpoint(c, "key.revoked"), h.endpoint(c, "key.created")
		raise := func(of event.Type, n int) {
			h.must(h.store.Update(ctx(), func(tx control.Tx) error {
				for range n {
					e := must[event.Event](h)(event.New(c.Account.ID, of, h.clock.now(), struct{}{}))
					if err := tx.AppendEvent(ctx(), &e); err != nil {
						return err
					}
				}
				return nil
			}))
		}
		count := func(w *control.NewWebhook, s webhook.DeliveryState) int {
			return len(must[[]webhook.Delivery](h)(h.Deliveries(ctx(), c, control.DeliveryFilter{WebhookID: w.ID, State: s}, control.Page{Limit: 1000})))
		}
		raise(event.KeyCreated, 60)
		h.deliver(200)
		const waiting = 250
		raise(event.KeyRevoked, waiting)
		must[*webhook.Webhook](h)(h.DeleteWebhook(ctx(), c, gone.ID, nil))
		if failed := count(gone, webhook.Failed); failed == 0 || failed == waiting {
			t.Errorf("%d of %d failed in the transaction that deleted the endpoint", failed, waiting)
		}
		u, err := control.NewMaintenance(control.MaintenanceConfig{Service: h.Service, Store: h.db, Now: h.clock.now})
		h.must(err)
		h.must(u.Start(ctx()))
		later := func(d time.Duration) {
			t.Helper()
			h.clock.advance(d)
			<-time.After(control.DefaultTrimPeriod) // on the bubble's clock
			synctest.Wait()
		}
		<-time.After(2 * time.Second) // on the bubble's clock
		synctest.Wait()
		if failed := count(gone, webhook.Failed); failed != waiting {
			t.Errorf("%d of %d failed", failed, waiting)
		}
		later(3*24*time.Hour - time.Second)
		if n := count(kept, webhook.Delivered); n != 60 {
			t.Errorf("%d of 60 delivered ones are left before 3 days", n)
		}
		later(2 * time.Second)
		if n, failed := count(kept, webhook.Delivered), count(gone, webhook.Failed); n != 0 || failed != waiting {
			t.Errorf("after 3 days %d delivered and %d failed ones are left", n, failed)
		}
		later(4*24*time.Hour - 10*time.Second)
		if failed := count(gone, webhook.Failed); failed != waiting {
			t.Errorf("%d failed ones are left before 7 days", failed)
		}
		later(time.Minute)
		if failed, events := count(gone, webhook.Failed), len(h.logs(c.Account.ID).events); failed != 0 || events != 0 {
			t.Errorf("after 7 days %d failed deliveries and %d events are left", failed, events)
		}
		h.must(u.Stop(ctx()))
	})
}
