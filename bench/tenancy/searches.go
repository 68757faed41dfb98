//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"time"

	"github.com/keygate/keygate/bench/keygate"
	"github.com/keygate/keygate/bench/manykeys"
	"github.com/keygate/keygate/bench/stats"
	"github.com/keygate/keygate/client"
)

const (
	searchedKeys  = 1_000_000
	searchClients = 4
	listEvery     = 20 * time.Millisecond
	callEvery     = 5 * time.Millisecond
)

// searches measures a plain list of keys and calls through a gateway, alone and beside four clients that
// search a million keys: for one key, for all of them, and for none.
func searches(ctx context.Context, o options, dir string, w io.Writer) (string, error) {
	service := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer service.Close()
	start := func() (*keygate.Server, error) { return keygate.Start(ctx, keygate.Config{Binary: o.binary, Dir: dir}) }
	s, err := start()
	if err != nil {
		return "", err
	}
	target, searchers, err := prepareSearches(ctx, s, service.URL)
	s.Stop()
	if err != nil {
		return "", err
	}
	if err := errors.Join(manykeys.Fill(ctx, keygate.Database(dir), searchedKeys), manykeys.Index(ctx, keygate.Database(dir))); err != nil {
		return "", fmt.Errorf("fill the store: %w", err)
	}
	fmt.Fprintf(w, "searches: %d keys are stored\n", searchedKeys)
	if s, err = start(); err != nil {
		return "", err
	}
	defer s.Stop()
	alone, err := listAndCall(ctx, s, target, o.duration)
	if err != nil {
		return "", err
	}
	searching, cancel := context.WithCancel(ctx)
	defer cancel()
	var running sync.WaitGroup
	counts, errs := make([]int, searchClients), make([]error, searchClients)
	for i := range searchClients {
		running.Go(func() { counts[i], errs[i] = search(searching, s, searchers[i]) })
	}
	beside, err := listAndCall(ctx, s, target, o.duration)
	cancel()
	running.Wait()
	if err := errors.Join(append(errs, err)...); err != nil {
		return "", err
	}
	done := 0
	for _, n := range counts {
		done += n
	}
	t := stats.Table{Columns: []string{fmt.Sprintf("With %d keys", searchedKeys), "Alone", fmt.Sprintf("Beside %d clients that search", searchClients)}}
	for _, row := range []struct {
		name string
		q    float64
	}{{"p50", 0.5}, {"p99", 0.99}} {
		t.Add("plain list of keys, "+row.name+", ms", milliseconds(stats.Quantile(row.q, alone.lists...)), milliseconds(stats.Quantile(row.q, beside.lists...)))
	}
	for _, row := range []struct {
		name string
		q    float64
	}{{"p50", 0.5}, {"p99", 0.99}} {
		t.Add("call through a gateway, "+row.name+", ms", milliseconds(stats.Quantile(row.q, alone.calls...)), milliseconds(stats.Quantile(row.q, beside.calls...)))
	}
	t.Add("rounds of three searches meanwhile", "", fmt.Sprint(done))
	return t.String(), nil
}

// prepareSearches creates a gateway to call and the keys of the clients that search.
func prepareSearches(ctx context.Context, s *keygate.Server, upstream string) (target caller, searchers []string, err error) {
	g, err := s.Admin.CreateGateway(ctx, client.CreateGatewayRequest{Name: "called", UpstreamURL: upstream})
	if err != nil {
		return target, nil, err
	}
	if _, err := s.Admin.CreateRoute(ctx, g.GatewayID, client.CreateRouteRequest{Path: "/*", Methods: []string{http.MethodGet}}); err != nil {
		return target, nil, err
	}
	k, err := s.Admin.CreateKey(ctx, client.CreateKeyRequest{Name: "caller", Scope: "read"})
	if err != nil {
		return target, nil, err
	}
	level := client.CreateKeyRequestLevelAccount
	for range searchClients {
		k, err := s.Admin.CreateKey(ctx, client.CreateKeyRequest{Name: "searcher", Scope: "read", Level: &level})
		if err != nil {
			return target, nil, err
		}
		searchers = append(searchers, k.Secret)
	}
	return caller{g.Hostname, k.Secret}, searchers, nil
}

// search searches without pause until ctx ends, and returns how many rounds of three searches it made.
func search(ctx context.Context, s *keygate.Server, key string) (n int, err error) {
	c, err := s.As(key)
	if err != nil {
		return 0, err
	}
	for ; ; n++ {
		for _, q := range []string{fmt.Sprintf("number %d", 500_000+n), "ner numb", "nowhere"} {
			if _, err := c.Do(ctx, &client.Request{Method: http.MethodGet, Path: "/v1/keys?q=" + url.QueryEscape(q)}); err != nil {
				if ctx.Err() != nil {
					return n, nil
				}
				var refused *client.Error
				if errors.As(err, &refused) && refused.Status == http.StatusTooManyRequests {
					continue
				}
				return n, err
			}
		}
	}
}

// listedAndCalled is how long lists and calls took.
type listedAndCalled struct{ lists, calls []time.Duration }

// listAndCall lists keys and calls the gateway at steady paces.
func listAndCall(ctx context.Context, s *keygate.Server, target caller, d time.Duration) (r listedAndCalled, err error) {
	hc := &http.Client{}
	defer hc.CloseIdleConnections()
	var running sync.WaitGroup
	var listing, calling error
	running.Go(func() {
		r.lists, listing = paced(ctx, d, listEvery, func() error {
			_, err := s.Admin.Do(ctx, &client.Request{Method: http.MethodGet, Path: "/v1/keys"})
			return err
		})
	})
	running.Go(func() {
		r.calls, calling = paced(ctx, d, callEvery, func() error { return target.call(ctx, hc, s.Gateway, "/", http.StatusOK) })
	})
	running.Wait()
	return r, errors.Join(listing, calling)
}

// paced calls f at a pace for a time, and returns how long each call took from when it was due.
func paced(ctx context.Context, d, every time.Duration, f func() error) (taken []time.Duration, err error) {
	start := time.Now()
	for due := time.Duration(0); due < d; due += every {
		if wait := due - time.Since(start); wait > 0 {
			select {
			case <-time.After(wait):
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		if err := f(); err != nil {
			return nil, err
		}
		taken = append(taken, time.Since(start)-due)
	}
	return taken, nil
}
