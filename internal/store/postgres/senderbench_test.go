package postgres

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/cluster/lease"
	"github.com/keygate/keygate/internal/event"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/netguard"
	"github.com/keygate/keygate/internal/secret"
	"github.com/keygate/keygate/internal/webhook"
	"github.com/keygate/keygate/internal/webhook/sender"
)

// held is a node's lease that never ends.
type held string

// Claimant implements sender.NodeLease.
func (h held) Claimant() string { return string(h) }

// joined stores the lease of a node, and returns it.
func (c *nodes) joined(i int) held {
	c.Helper()
	row := lease.Row{Boot: lease.Boot{byte(i + 1)}, Epoch: 1}
	c.must(c.stores[0].write(c.Context(), func(t *tx) error {
		_, err := t.Exec(c.Context(), "join", `INSERT INTO nodes (id, name, boot, epoch, granted, ttl, number, mark, state, role, version, limits, started_at, renewed)
			VALUES ($1, $1, $2, $3, 1, 1, 0, '\x0000000000000000', 'live', 'all', '', '', 0, now())`, fmt.Sprint("node_", i), row.Boot[:], row.Epoch)
		return err
	}))
	return held(row.Claimant())
}

// register adds an endpoint for key.rotated.
func (c *nodes) register(box *secret.Box, url string) {
	c.Helper()
	sealed, err := box.Seal([]byte("a secret of a benchmark"))
	c.must(err)
	w := c.hook
	w.ID, w.URL, w.Events, w.Secret = id.New(id.Webhook), url, []event.Type{event.KeyRotated}, sealed
	c.must(c.stores[0].mutate(c.Context(), func(t *tx) error { return t.InsertWebhook(c.Context(), &w) }))
}

// backlog adds n events, each with a delivery to every endpoint.
func (c *nodes) backlog(n int) {
	c.Helper()
	for n > 0 {
		batch := make([]event.Event, min(n, 500))
		for i := range batch {
			e, err := event.New(c.account, event.KeyRotated, time.Now(), event.Rotation{KeyID: id.New(id.Key), NewKeyID: id.New(id.Key)})
			c.must(err)
			batch[i] = e
		}
		c.must(c.stores[0].AppendEvents(c.Context(), batch))
		n -= len(batch)
	}
	c.fanOut()
}

// BenchmarkSenders measures three senders on one database, each with connections and a lease of its own, that
// deliver a backlog to an endpoint that responds at once, while another endpoint with as many deliveries
// never responds. Deliveries to the first are counted; the bar is 1,500 a second.
//
//	go test ./internal/store/postgres -run '^$' -bench Senders -benchtime 20000x
func BenchmarkSenders(b *testing.B) {
	box, err := secret.New(bytes.Repeat([]byte{1}, secret.KeySize))
	if err != nil {
		b.Fatal(err)
	}
	c := newNodes(b, 3)
	var got atomic.Int64
	over := make(chan struct{})
	quick := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if w.WriteHeader(http.StatusNoContent); got.Add(1) == int64(b.N) {
			close(over)
		}
	}))
	hanging := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-over:
		}
	}))
	b.Cleanup(func() { hanging.Close(); quick.Close() })
	c.register(box, quick.URL)
	c.register(box, hanging.URL)
	c.backlog(b.N)
	senders := make([]*sender.Sender, len(c.stores))
	for i, db := range c.stores {
		senders[i], err = sender.New(sender.Config{
			Queue: db, Peers: db, Node: c.joined(i), Poll: sender.SharedPoll, Sealer: box, Guard: netguard.New(),
			Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, Log: slog.New(slog.DiscardHandler),
			Backoff: [webhook.MaxAttempts - 1]time.Duration{time.Hour, time.Hour, time.Hour, time.Hour},
		})
		c.must(err)
	}
	b.ResetTimer()
	for _, s := range senders {
		c.must(s.Start(b.Context()))
	}
	<-over
	b.StopTimer()
	for i, s := range senders {
		b.ReportMetric(float64(s.Stats().Delivered), fmt.Sprintf("by-node-%d", i+1))
		c.must(s.Stop(context.Background()))
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "deliveries/s")
}
