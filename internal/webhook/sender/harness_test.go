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

// Waits between attempts: the product's own, and those of a test in which none is
// repeated, however long it takes.
var (
	usualBackoff = [webhook.MaxAttempts - 1]time.Duration{10 * time.Second, time.Minute, 6 * time.Minute, 36 * time.Minute}
	noRetry      = [webhook.MaxAttempts - 1]time.Duration{24 * time.Hour, 24 * time.Hour, 24 * time.Hour, 24 * time.Hour}
)

// bed is a store with one account, and what senders of a test need.
type bed struct {
	t     *testing.T
	dir   string
	db    *sqlite.DB
	box   *secret.Box
	owner string

	// backoff is of the senders that config makes.
	backoff [webhook.MaxAttempts - 1]time.Duration

	// patience bounds a wait for what must come about, which only a broken test
	// feels; tick is how long to wait between two looks at the least.
	patience, tick time.Duration
}

// openStore opens the store in dir, which others may be using; writing waits for
// them as long as it takes.
func openStore(ctx context.Context, dir string) (*sqlite.DB, error) {
	return sqlite.Open(ctx, sqlite.Config{Path: filepath.Join(dir, "keygate.db"), BusyTimeout: 3 * time.Minute})
}

func newBed(t *testing.T) *bed {
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
	b := &bed{t: t, dir: dir, db: db, box: box, owner: id.New(id.Account), backoff: noRetry, patience: 3 * time.Minute, tick: 20 * time.Millisecond}
	b.update(func(tx control.Tx) error {
		return tx.InsertAccount(t.Context(), &account.Account{ID: b.owner, Name: "one", Plan: account.Platform, CreatedAt: time.Now()})
	})
	return b
}

func (b *bed) update(f func(tx control.Tx) error) {
	b.t.Helper()
	if err := b.db.Update(context.Background(), f); err != nil {
		b.t.Fatal(err)
	}
}

// endpoint registers an endpoint for key.created.
func (b *bed) endpoint(url string) (webhookID string) {
	b.t.Helper()
	return b.endpoints(url)[url]
}

// endpoints registers one for each URL and returns their identifiers.
func (b *bed) endpoints(urls ...string) (webhookIDs map[string]string) {
	b.t.Helper()
	sealed, err := b.box.Seal([]byte(testSecret))
	if err != nil {
		b.t.Fatal(err)
	}
	b.update(func(tx control.Tx) error {
		webhookIDs = map[string]string{}
		for _, url := range urls {
			w := &webhook.Webhook{
				ID: id.New(id.Webhook), AccountID: b.owner, URL: url, Events: []event.Type{event.KeyCreated},
				State: webhook.Active, Secret: sealed, CreatedAt: time.Now(),
			}
			webhookIDs[url] = w.ID
			if err := tx.InsertWebhook(b.t.Context(), w); err != nil {
				return err
			}
		}
		return nil
	})
	return webhookIDs
}

// raise makes n events of key.created, with their deliveries.
func (b *bed) raise(n int) (events []event.Event) {
	b.t.Helper()
	b.update(func(tx control.Tx) error {
		events = nil
		for i := range n {
			e, err := event.New(b.owner, event.KeyCreated, time.Now(), event.Key{Name: fmt.Sprint("key ", i)})
			if err != nil {
				return err
			}
			if err := tx.AppendEvent(b.t.Context(), &e); err != nil {
				return err
			}
			events = append(events, e)
		}
		return nil
	})
	return events
}

// config is of a sender that may reach the loopback.
func (b *bed) config() sender.Config {
	return sender.Config{
		Queue: b.db, Sealer: b.box, Guard: netguard.New(),
		Allow:   []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
		Backoff: b.backoff,
		Log:     slog.New(slog.DiscardHandler),
	}
}

// start starts a sender that the test's end stops.
func (b *bed) start(cfg sender.Config, change ...func(*sender.Sender)) *sender.Sender {
	b.t.Helper()
	s, err := sender.New(cfg)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, f := range change {
		f(s)
	}
	if err := s.Start(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() {
		if err := s.Stop(context.Background()); err != nil {
			b.t.Error(err)
		}
	})
	return s
}

// deliveries returns all deliveries to an endpoint, the first made first.
func (b *bed) deliveries(webhookID string) []webhook.Delivery {
	b.t.Helper()
	var all []webhook.Delivery
	err := b.db.View(context.Background(), func(tx control.ReadTx) error {
		for page := (control.Page{Limit: 100}); ; {
			list, err := tx.Deliveries(context.Background(), b.owner, control.DeliveryFilter{WebhookID: webhookID}, page)
			all = append(all, list...)
			if err != nil || len(list) < page.Limit {
				return err
			}
			page.After = list[len(list)-1].ID
		}
	})
	if err != nil {
		b.t.Fatal(err)
	}
	for i, j := 0, len(all)-1; i < j; i, j = i+1, j-1 {
		all[i], all[j] = all[j], all[i]
	}
	return all
}

// await waits until the deliveries to an endpoint are as ok wants them.
func (b *bed) await(webhookID, what string, ok func([]webhook.Delivery) bool) []webhook.Delivery {
	b.t.Helper()
	var last []webhook.Delivery
	b.until(what, func() bool {
		last = b.deliveries(webhookID)
		return ok(last)
	}, func() any { return last })
	return last
}

func (b *bed) until(what string, ok func() bool, show func() any) {
	b.t.Helper()
	deadline := time.After(b.patience)
	for {
		began := time.Now()
		if ok() {
			return
		}
		// What is waited for needs the processor more than the looking does.
		select {
		case <-time.After(max(b.tick, 3*time.Since(began))):
		case <-deadline:
			b.t.Fatalf("not within %v: %s: %+v", b.patience, what, show())
		}
	}
}

// in returns a condition: n deliveries, all in the given state.
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

// received is a request as a receiver got it.
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
