package sender_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/event"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/netguard"
	"github.com/keygate/keygate/internal/secret"
	"github.com/keygate/keygate/internal/store/sqlite"
	"github.com/keygate/keygate/internal/store/sqlite/sqlitetest"
	"github.com/keygate/keygate/internal/webhook"
	"github.com/keygate/keygate/internal/webhook/sender"
)

const testSecret = "a secret of a test"

// Waits between attempts: the defaults, and waits for a test in which no attempt is repeated
// however long it takes.
var (
	usualBackoff = [webhook.MaxAttempts - 1]time.Duration{10 * time.Second, time.Minute, 6 * time.Minute, 36 * time.Minute}
	noRetry      = [webhook.MaxAttempts - 1]time.Duration{24 * time.Hour, 24 * time.Hour, 24 * time.Hour, 24 * time.Hour}
)

// harness is a store with one account, and what the senders of a test need.
type harness struct {
	t     *testing.T
	dir   string
	db    *sqlite.DB
	box   *secret.Box
	owner string

	// backoff is the backoff of the senders that config configures.
	backoff [webhook.MaxAttempts - 1]time.Duration

	// timeout bounds a wait for a condition; only a failing test reaches it. tick is the
	// minimum time between two checks.
	timeout, tick time.Duration
}

// openStore opens the store in dir, which other processes may use. Writes wait for them as
// long as it takes.
func openStore(ctx context.Context, dir string) (*sqlite.DB, error) {
	return sqlite.Open(ctx, sqlite.Config{Path: filepath.Join(dir, "keygate.db"), BusyTimeout: 3 * time.Minute})
}

func newHarness(t *testing.T) *harness {
	t.Helper()
	dir := filepath.Dir(sqlitetest.Path(t))
	db, err := openStore(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	box, err := secret.New(bytes.Repeat([]byte{1}, secret.KeySize))
	if err != nil {
		t.Fatal(err)
	}
	h := &harness{t: t, dir: dir, db: db, box: box, owner: id.New(id.Account), backoff: noRetry, timeout: 3 * time.Minute, tick: 20 * time.Millisecond}
	h.update(func(tx control.Tx) error {
		return tx.InsertAccount(t.Context(), &account.Account{ID: h.owner, Name: "one", Tier: account.Platform, CreatedAt: time.Now()})
	})
	return h
}

func (h *harness) update(f func(tx control.Tx) error) {
	h.t.Helper()
	if err := h.db.Update(context.Background(), f); err != nil {
		h.t.Fatal(err)
	}
}

// endpoint registers an endpoint for key.created.
func (h *harness) endpoint(url string) (webhookID string) {
	h.t.Helper()
	return h.endpoints(url)[url]
}

// endpoints registers an endpoint for each URL and returns their identifiers by URL.
func (h *harness) endpoints(urls ...string) (webhookIDs map[string]string) {
	h.t.Helper()
	sealed, err := h.box.Seal([]byte(testSecret))
	if err != nil {
		h.t.Fatal(err)
	}
	h.update(func(tx control.Tx) error {
		webhookIDs = map[string]string{}
		for _, url := range urls {
			w := &webhook.Webhook{
				ID: id.New(id.Webhook), AccountID: h.owner, URL: url, Events: []event.Type{event.KeyCreated},
				State: webhook.Active, Secret: sealed, CreatedAt: time.Now(),
			}
			webhookIDs[url] = w.ID
			if err := tx.InsertWebhook(h.t.Context(), w); err != nil {
				return err
			}
		}
		return nil
	})
	return webhookIDs
}

// raise creates n events of key.created and their deliveries.
func (h *harness) raise(n int) (events []event.Event) {
	h.t.Helper()
	h.update(func(tx control.Tx) error {
		events = nil
		for i := range n {
			e, err := event.New(h.owner, event.KeyCreated, time.Now(), event.Key{Name: fmt.Sprint("key ", i)})
			if err != nil {
				return err
			}
			if err := tx.AppendEvent(h.t.Context(), &e); err != nil {
				return err
			}
			events = append(events, e)
		}
		return nil
	})
	for {
		accountID, _, err := h.db.FanOut(h.t.Context(), "", time.Now(), 500)
		if err != nil {
			h.t.Fatal(err)
		}
		if accountID == "" {
			return events
		}
	}
}

// config returns the configuration of a sender that may connect to the loopback.
func (h *harness) config() sender.Config {
	return sender.Config{
		Queue: h.db, Sealer: h.box, Guard: netguard.New(),
		Allow:   []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
		Backoff: h.backoff,
		Log:     slog.New(slog.DiscardHandler),
	}
}

// start starts a sender and stops it when the test ends.
func (h *harness) start(cfg sender.Config, change ...func(*sender.Sender)) *sender.Sender {
	h.t.Helper()
	s, err := sender.New(cfg)
	if err != nil {
		h.t.Fatal(err)
	}
	for _, f := range change {
		f(s)
	}
	if err := s.Start(h.t.Context()); err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() {
		if err := s.Stop(context.Background()); err != nil {
			h.t.Error(err)
		}
	})
	return s
}

// deliveries returns all deliveries to an endpoint, the oldest first.
func (h *harness) deliveries(webhookID string) []webhook.Delivery {
	h.t.Helper()
	var all []webhook.Delivery
	err := h.db.View(context.Background(), func(tx control.ReadTx) error {
		for page := (control.Page{Limit: 100}); ; {
			list, err := tx.Deliveries(context.Background(), h.owner, control.DeliveryFilter{WebhookID: webhookID}, page)
			all = append(all, list...)
			if err != nil || len(list) < page.Limit {
				return err
			}
			page.After = list[len(list)-1].ID
		}
	})
	if err != nil {
		h.t.Fatal(err)
	}
	for i, j := 0, len(all)-1; i < j; i, j = i+1, j-1 {
		all[i], all[j] = all[j], all[i]
	}
	return all
}

// await waits until ok reports true for the deliveries to an endpoint, and returns them.
func (h *harness) await(webhookID, what string, ok func([]webhook.Delivery) bool) []webhook.Delivery {
	h.t.Helper()
	var last []webhook.Delivery
	h.until(what, func() bool {
		last = h.deliveries(webhookID)
		return ok(last)
	}, func() any { return last })
	return last
}

// until waits until ok reports true. If that takes too long, it fails the test with what
// show returns.
func (h *harness) until(what string, ok func() bool, show func() any) {
	h.t.Helper()
	deadline := time.After(h.timeout)
	for {
		began := time.Now()
		if ok() {
			return
		}
		// The awaited work needs the processor more than these checks.
		select {
		case <-time.After(max(h.tick, 3*time.Since(began))):
		case <-deadline:
			h.t.Fatalf("%s: not within %v: %+v", what, h.timeout, show())
		}
	}
}

// in returns a condition for await: there are n deliveries, all in the given state.
func in(n int, state webhook.DeliveryState) func([]webhook.Delivery) bool {
	return func(list []webhook.Delivery) bool {
		for i := range list {
			if list[i].State != state {
				return false
			}
		}
		return len(list) == n
	}
}

// received is a request that a receiver got.
type received struct {
	Header http.Header
	Body   string
	Host   string
	Path   string
}

func read(r *http.Request) received {
	body, _ := io.ReadAll(r.Body)
	return received{r.Header.Clone(), string(body), r.Host, r.URL.RequestURI()}
}
