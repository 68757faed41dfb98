//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/keygate/keygate/bench/keygate"
	"github.com/keygate/keygate/bench/stats"
	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/event"
	"github.com/keygate/keygate/internal/store/sqlite"
)

// deliveryTimeout bounds the time for all deliveries of a run.
const deliveryTimeout = 2 * time.Minute

// creators is the number of account-level keys that create keys, since each may make
// 100 calls a second.
const creators = 8

// measure starts a server, measures its deliveries and stops it.
func measure(ctx context.Context, o options, hanging bool) (f figures, err error) {
	dir, err := os.MkdirTemp("", "keygate-bench-hooks-")
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	r, err := newReceiver()
	if err != nil {
		return f, err
	}
	defer r.close()
	urls := []string{r.url}
	if hanging {
		url, stop, err := hang()
		if err != nil {
			return f, err
		}
		defer stop()
		urls = append(urls, url)
	}
	cfg := keygate.Config{Binary: o.binary, Dir: dir, Args: []string{"--webhook-allow-network", "127.0.0.0/8"}}
	if err := prepare(ctx, cfg, urls, o.events); err != nil {
		return f, err
	}
	s, err := keygate.Start(ctx, cfg)
	if err != nil {
		return f, err
	}
	defer s.Stop()
	waiting, cancel := context.WithTimeout(ctx, deliveryTimeout)
	defer cancel()
	f.waited(r.await(waiting, o.events), o.events)
	admins, err := admins(ctx, s)
	if err != nil {
		return f, err
	}
	r.await(waiting, len(admins)) // the events of these keys
	created, err := createKeys(ctx, admins, o.live, o.pace)
	if err != nil {
		return f, err
	}
	f.lived(r.await(waiting, created), created)
	return f, nil
}

// waited evaluates the events that were pending when the server started.
func (f *figures) waited(arrivals map[string]arrival, want int) {
	var times []time.Time
	for _, a := range arrivals {
		times = append(times, a.at)
	}
	f.missing += want - len(times)
	if len(times) < 2 {
		return
	}
	slices.SortFunc(times, time.Time.Compare)
	first := times[0]
	var after []time.Duration
	for _, at := range times {
		after = append(after, at.Sub(first))
	}
	f.rate = float64(len(times)-1) / after[len(after)-1].Seconds()
	f.backlog = stats.Quantile(0.99, after...)
}

// lived evaluates the events that were raised while the server ran.
func (f *figures) lived(arrivals map[string]arrival, want int) {
	var delays []time.Duration
	for _, a := range arrivals {
		delays = append(delays, a.delay)
	}
	f.missing += want - len(delays)
	f.p50, f.p99 = stats.Quantile(0.5, delays...), stats.Quantile(0.99, delays...)
}

// prepare creates a store with endpoints at urls and pending events for them.
func prepare(ctx context.Context, cfg keygate.Config, urls []string, events int) (err error) {
	s, err := keygate.Start(ctx, cfg)
	if err != nil {
		return err
	}
	for _, url := range urls {
		if _, err := s.Admin.CreateWebhook(ctx, client.CreateWebhookRequest{URL: url, Events: []string{string(event.KeyCreated)}, AllowDuplicate: true}); err != nil {
			s.Stop()
			return err
		}
	}
	s.Stop()
	db, err := sqlite.Open(ctx, sqlite.Config{Path: keygate.Database(cfg.Dir)})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return db.Update(ctx, func(tx control.Tx) error {
		a, err := tx.AccountByName(ctx, account.Default)
		if err != nil {
			return err
		}
		for i := range events {
			e, err := event.New(a.ID, event.KeyCreated, time.Now(), event.Key{
				KeyID: fmt.Sprintf("key_%026d", i), KeyPrefix: "kg_123456", Name: fmt.Sprintf("partner number %d", i), Scope: "read", Level: "gateway",
			})
			if err != nil {
				return err
			}
			if err := tx.AppendEvent(ctx, &e); err != nil {
				return err
			}
		}
		return nil
	})
}

// admins returns clients, each with its own account-level key.
func admins(ctx context.Context, s *keygate.Server) ([]*client.Client, error) {
	var all []*client.Client
	level := client.CreateKeyRequestLevelAccount
	for range creators {
		k, err := s.Admin.CreateKey(ctx, client.CreateKeyRequest{Name: "creator", Scope: "admin", Level: &level})
		if err != nil {
			return nil, err
		}
		c, err := s.As(k.Secret)
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	return all, nil
}

// createKeys creates keys at the given pace and returns their number.
func createKeys(ctx context.Context, admins []*client.Client, during time.Duration, pace int) (created int, err error) {
	var (
		group  sync.WaitGroup
		mu     sync.Mutex
		errs   []error
		tokens = make(chan struct{}, pace)
	)
	for _, c := range admins {
		group.Go(func() {
			for range tokens {
				_, err := c.CreateKey(ctx, client.CreateKeyRequest{Name: "k", Scope: "read"})
				mu.Lock()
				if err == nil {
					created++
				}
				errs = append(errs, err)
				mu.Unlock()
			}
		})
	}
	tick := time.NewTicker(time.Second / time.Duration(pace))
	defer tick.Stop()
	for range int(during.Seconds() * float64(pace)) {
		<-tick.C
		tokens <- struct{}{}
	}
	close(tokens)
	group.Wait()
	return created, errors.Join(errs...)
}
