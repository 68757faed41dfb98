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

// Guarantee: the pending deliveries of a deleted endpoint fail within two seconds. The log
// keeps successful deliveries for 3 days and failed ones for 7.
func TestMaintenanceOfDeliveries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := openHarness(t, sqlitetest.Path(t))
		defer h.close()
		c := h.caller("acme", "admin")
		deleted, kept := h.endpoint(c, "key.revoked"), h.endpoint(c, "key.created")
		emit := func(of event.Type, n int) {
			h.must(h.store.Update(ctx(), func(tx control.Tx) error {
				for range n {
					e := must[event.Event](h)(event.New(c.Account.ID, of, h.clock.now(), struct{}{}))
					if err := tx.AppendEvent(ctx(), &e); err != nil {
						return err
					}
				}
				return nil
			}))
			h.fanOut()
		}
		count := func(w *control.NewWebhook, s webhook.DeliveryState) int {
			return len(must[[]webhook.Delivery](h)(h.Deliveries(ctx(), c, control.DeliveryFilter{WebhookID: w.ID, State: s}, control.Page{Limit: 1000})))
		}
		emit(event.KeyCreated, 60)
		h.deliver(200)
		const waiting = 250
		emit(event.KeyRevoked, waiting)
		must[*webhook.Webhook](h)(h.DeleteWebhook(ctx(), c, deleted.ID, nil))
		if failed := count(deleted, webhook.Failed); failed == 0 || failed == waiting {
			t.Errorf("got %d of %d failed in the transaction that deleted the endpoint; want some, not all", failed, waiting)
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
		if failed := count(deleted, webhook.Failed); failed != waiting {
			t.Errorf("got %d failed after two seconds; want %d", failed, waiting)
		}
		later(3*24*time.Hour - time.Second)
		if n := count(kept, webhook.Delivered); n != 60 {
			t.Errorf("got %d successful deliveries before 3 days; want 60", n)
		}
		later(2 * time.Second)
		if n, failed := count(kept, webhook.Delivered), count(deleted, webhook.Failed); n != 0 || failed != waiting {
			t.Errorf("got %d successful and %d failed deliveries after 3 days; want 0 and %d", n, failed, waiting)
		}
		later(4*24*time.Hour - 10*time.Second)
		if failed := count(deleted, webhook.Failed); failed != waiting {
			t.Errorf("got %d failed deliveries before 7 days; want %d", failed, waiting)
		}
		later(time.Minute)
		if failed, events := count(deleted, webhook.Failed), len(h.logs(c.Account.ID).events); failed != 0 || events != 0 {
			t.Errorf("got %d failed deliveries and %d events after 7 days; want none", failed, events)
		}
		h.must(u.Stop(ctx()))
	})
}
