package control_test

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/store/sqlite/sqlitetest"
	"github.com/keygate/keygate/internal/webhook"
)

// BenchmarkRevocationBesideCreations measures a revocation while 16 callers create keys as fast as they can, in an
// account with 1,000 webhook endpoints.
func BenchmarkRevocationBesideCreations(b *testing.B) {
	for name, open := range engines() {
		b.Run(name, func(b *testing.B) {
			h := openHarness(b, sqlitetest.Path(b))
			defer h.close()
			engine := open(b, h, nil)
			defer func() { h.must(engine.Close()) }()
			h.serve(engine)
			benchmarkRevocations(b, h)
		})
	}
}

func benchmarkRevocations(b *testing.B, h *harness) {
	b.Helper()
	c := h.caller("acme", "admin")
	for n := range 10 {
		h.must(h.store.Update(ctx(), func(tx control.Tx) error {
			for m := range 100 {
				w := webhook.Webhook{ID: id.New(id.Webhook), AccountID: c.Account.ID, URL: fmt.Sprintf("https://h.example/%d/%d", n, m), State: webhook.Active,
					Events: webhook.EventTypes(), Secret: []byte("s"), SecretSince: h.clock.now(), CreatedAt: h.clock.now(), Version: 1}
				if err := tx.InsertWebhook(ctx(), &w); err != nil {
					return err
				}
			}
			return nil
		}))
	}
	create := func() *control.NewKey {
		return must[*control.NewKey](h)(h.CreateKey(ctx(), c, control.KeyInput{Name: "k", Scope: "read"}))
	}
	var over atomic.Bool
	var creating sync.WaitGroup
	for range 16 {
		creating.Go(func() {
			for !over.Load() {
				create()
			}
		})
	}
	took := timeRevocations(b, h, c, create)
	over.Store(true)
	creating.Wait()
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
}

// timeRevocations returns how long each revocation of a new key took, the shortest first.
func timeRevocations(b *testing.B, h *harness, c *control.Actor, create func() *control.NewKey) (took []time.Duration) {
	b.Helper()
	for b.Loop() {
		b.StopTimer()
		k := create()
		b.StartTimer()
		begun := time.Now()
		must[*apikey.Key](h)(h.RevokeKey(ctx(), c, k.ID, nil))
		took = append(took, time.Since(begun))
	}
	slices.Sort(took)
	return took
}
