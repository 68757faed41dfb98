//go:build linux

package main

import (
	"bytes"
	"context"
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
	pushers       = 3      // accounts that push
	operations    = 99_000 // of each document
	revokesPerSec = 10
)

// pushes measures DELETE /v1/keys/{id} of the operator, first alone and then while other accounts
// push. Each key must be accepted before the call, and refused once the call has returned.
func pushes(ctx context.Context, o options, dir string, w io.Writer) (string, error) {
	service := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer service.Close()
	s, err := keygate.Start(ctx, keygate.Config{Binary: o.binary, Dir: dir})
	if err != nil {
		return "", err
	}
	defer s.Stop()
	g, err := s.Admin.CreateGateway(ctx, client.CreateGatewayRequest{Name: "operator", UpstreamURL: service.URL})
	if err != nil {
		return "", err
	}
	if _, err := s.Admin.CreateRoute(ctx, g.GatewayID, client.CreateRouteRequest{Path: "/*", Methods: []string{"GET"}}); err != nil {
		return "", err
	}
	alone, err := revokeFor(ctx, s, o.duration)
	if err != nil {
		return "", err
	}
	fmt.Fprintf(w, "pushes: %d revocations alone\n", len(alone))

	done, stop := context.WithCancel(ctx)
	p := pushers
	results := make([]pusher, p)
	var running sync.WaitGroup
	for i := range results {
		if results[i], err = newPusher(ctx, s, i, service.URL); err != nil {
			stop()
			return "", err
		}
	}
	for i := range results {
		running.Go(func() { results[i].run(done) })
	}
	beside, err := revokeFor(ctx, s, o.duration)
	stop()
	running.Wait()
	if err != nil {
		return "", err
	}
	var all []time.Duration
	for i := range results {
		err = errors.Join(err, results[i].err)
		all = append(all, results[i].taken...)
	}
	if err != nil {
		return "", err
	}
	peak, err := s.PeakMemory()
	if err != nil {
		return "", err
	}
	t := stats.Table{Columns: []string{"DELETE /v1/keys/{id} of the operator", "Alone", fmt.Sprintf("Beside %d accounts that push", p), "Target"}}
	t.Add("revocations, each refused when the call returned", fmt.Sprint(len(alone)), fmt.Sprint(len(beside)))
	for _, q := range []struct {
		name, target string
		q            float64
	}{{"p50, ms", "", 0.5}, {"p99, ms", "≤ 50 more than alone", 0.99}, {"maximum, ms", "", 1}} {
		t.Add(q.name, milliseconds(stats.Quantile(q.q, alone...)), milliseconds(stats.Quantile(q.q, beside...)), q.target)
	}
	t.Add(fmt.Sprintf("pushes of %d operations, all different, meanwhile", operations), "", fmt.Sprint(len(all)))
	t.Add("median time of a push, s", "", fmt.Sprintf("%.1f", stats.Median(all...).Seconds()))
	t.Add("peak resident memory, MB", "", fmt.Sprint(peak/1e6))
	return t.String(), nil
}

// revokeFor creates and revokes keys for a while and returns how long each revocation took.
func revokeFor(ctx context.Context, s *keygate.Server, duration time.Duration) ([]time.Duration, error) {
	var taken []time.Duration
	tick := time.NewTicker(time.Second / revokesPerSec)
	defer tick.Stop()
	for end := time.Now().Add(duration); time.Now().Before(end); {
		k, err := s.Admin.CreateKey(ctx, client.CreateKeyRequest{Name: "bench", Scope: "read"})
		if err != nil {
			return nil, err
		}
		if err := expect(ctx, s, k.Secret, http.StatusOK); err != nil {
			return nil, fmt.Errorf("call with a new key: %w", err)
		}
		start := time.Now()
		if _, err := s.Admin.RevokeKey(ctx, k.KeyID); err != nil {
			return nil, fmt.Errorf("revoke a key: %w", err)
		}
		taken = append(taken, time.Since(start))
		if err := expect(ctx, s, k.Secret, http.StatusUnauthorized); err != nil {
			return nil, fmt.Errorf("call with a key that was revoked: %w", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return taken, nil
}

// expect makes a call through the default gateway. A response with another status is an error.
func expect(ctx context.Context, s *keygate.Server, key string, status int) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.Gateway+"/", http.NoBody)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+key)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		return err
	}
	if res.StatusCode != status {
		return fmt.Errorf("got status %d, want %d", res.StatusCode, status)
	}
	return nil
}

// pusher is an account that pushes two documents, which have no route in common, in turn.
type pusher struct {
	client    *client.Client
	gatewayID string
	documents [2][]byte
	taken     []time.Duration
	err       error
}

func newPusher(ctx context.Context, s *keygate.Server, number int, upstream string) (p pusher, err error) {
	a, err := s.Admin.CreateAccount(ctx, client.CreateAccountRequest{Name: fmt.Sprintf("tenant-%d", number), Plan: client.CreateAccountRequestPlanScale})
	if err != nil {
		return p, err
	}
	if p.client, err = s.As(a.Secret); err != nil {
		return p, err
	}
	g, err := p.client.CreateGateway(ctx, client.CreateGatewayRequest{Name: "big", UpstreamURL: upstream})
	if err != nil {
		return p, err
	}
	p.gatewayID = g.GatewayID
	for i := range p.documents {
		p.documents[i] = bigDocument(fmt.Sprintf("v%d", i))
	}
	return p, nil
}

// run pushes until ctx ends. The push that is in progress then does not count.
func (p *pusher) run(ctx context.Context) {
	for i := 0; ; i++ {
		start := time.Now()
		_, err := p.client.PushSpec(ctx, p.gatewayID, p.documents[i%2], false)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			p.err = fmt.Errorf("push: %w", err)
			return
		}
		p.taken = append(p.taken, time.Since(start))
	}
}

// bigDocument returns an OpenAPI document with paths below the given segment.
func bigDocument(below string) []byte {
	var b bytes.Buffer
	b.WriteString(`{"openapi":"3.1.0","info":{"title":"big","version":"1"},"paths":{`)
	for i := range operations / 3 {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `"/%s/area%d/things%d/{id}":{"get":{},"put":{},"delete":{}}`, below, i/100, i)
	}
	b.WriteString(`}}`)
	return b.Bytes()
}
