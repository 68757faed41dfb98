//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"

	"github.com/keygate/keygate/bench/keygate"
	"github.com/keygate/keygate/bench/stats"
	"github.com/keygate/keygate/client"
)

const (
	hangers      = 10   // accounts whose endpoints hang
	hangersEach  = 1000 // endpoints of each
	eventsEach   = 3    // events of each account, each for all of its endpoints
	eventsPerSec = 20   // of the account whose endpoint works
)

// hooks measures the delay of events to an endpoint that works, first alone and then while the
// endpoints of other accounts hang on every delivery.
func hooks(ctx context.Context, o options, dir string, w io.Writer) (string, error) {
	hanging := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	}))
	defer hanging.Close()
	r := &arrivals{delays: make(chan time.Duration, 1<<16)}
	healthy := httptest.NewServer(r)
	defer healthy.Close()
	s, err := keygate.Start(ctx, keygate.Config{Binary: o.binary, Dir: dir, Args: []string{"--webhook-allow-network", "127.0.0.0/8"}})
	if err != nil {
		return "", err
	}
	defer s.Stop()
	if _, err := s.Admin.CreateWebhook(ctx, client.CreateWebhookRequest{URL: healthy.URL, Events: []string{"key.created"}}); err != nil {
		return "", err
	}
	alone, err := r.measure(ctx, s, o.duration)
	if err != nil {
		return "", err
	}
	fmt.Fprintf(w, "hooks: %d events alone\n", len(alone))
	if err := raiseHanging(ctx, s, hanging.URL); err != nil {
		return "", err
	}
	fmt.Fprintf(w, "hooks: %d deliveries hang or wait\n", hangers*hangersEach*eventsEach)
	beside, err := r.measure(ctx, s, o.duration)
	if err != nil {
		return "", err
	}
	peak, err := s.PeakMemory()
	if err != nil {
		return "", err
	}
	t := stats.Table{Columns: []string{"Event of one account, to its arrival", "Alone", fmt.Sprintf("Beside %d endpoints that hang", hangers*hangersEach), "Target"}}
	t.Add("events, all delivered", fmt.Sprint(len(alone)), fmt.Sprint(len(beside)))
	for _, q := range []struct {
		name, target string
		q            float64
	}{{"p50, ms", "", 0.5}, {"p99, ms", "≤ 2 × alone", 0.99}, {"maximum, ms", "", 1}} {
		t.Add(q.name, milliseconds(stats.Quantile(q.q, alone...)), milliseconds(stats.Quantile(q.q, beside...)), q.target)
	}
	t.Add("peak resident memory, MB", "", fmt.Sprint(peak/1e6))
	return t.String(), nil
}

// raiseHanging creates accounts whose endpoints are at url, and raises events for them.
func raiseHanging(ctx context.Context, s *keygate.Server, url string) error {
	var (
		creating sync.WaitGroup
		errs     [hangers]error
	)
	for i := range hangers {
		creating.Go(func() {
			errs[i] = func() error {
				a, err := s.Admin.CreateAccount(ctx, client.CreateAccountRequest{Name: fmt.Sprintf("hanging-%d", i), Plan: client.CreateAccountRequestPlanScale})
				if err != nil {
					return err
				}
				c, err := s.As(a.Secret)
				if err != nil {
					return err
				}
				for range hangersEach {
					if _, err := c.CreateWebhook(ctx, client.CreateWebhookRequest{URL: url, Events: []string{"key.created"}, AllowDuplicate: true}); err != nil {
						return err
					}
				}
				for range eventsEach {
					if _, err := c.CreateKey(ctx, client.CreateKeyRequest{Name: "bench", Scope: "read"}); err != nil {
						return err
					}
				}
				return nil
			}()
		})
	}
	creating.Wait()
	return errors.Join(errs[:]...)
}

// arrivals is a receiver that works.
type arrivals struct{ delays chan time.Duration }

// ServeHTTP implements http.Handler.
func (a *arrivals) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	var e struct {
		CreatedAt time.Time `json:"created_at"`
	}
	if json.NewDecoder(r.Body).Decode(&e) == nil {
		a.delays <- time.Since(e.CreatedAt)
	}
}

// measure raises events for a while, and returns how long each took to arrive.
func (a *arrivals) measure(ctx context.Context, s *keygate.Server, duration time.Duration) (delays []time.Duration, err error) {
	tick := time.NewTicker(time.Second / eventsPerSec)
	defer tick.Stop()
	raised := 0
	for end := time.Now().Add(duration); time.Now().Before(end); raised++ {
		if _, err := s.Admin.CreateKey(ctx, client.CreateKeyRequest{Name: "bench", Scope: "read"}); err != nil {
			return nil, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	late := time.After(time.Minute)
	for len(delays) < raised {
		select {
		case d := <-a.delays:
			delays = append(delays, d)
		case <-late:
			return nil, fmt.Errorf("%d of %d events did not arrive", raised-len(delays), raised)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return delays, nil
}
