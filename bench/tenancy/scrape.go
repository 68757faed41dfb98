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
	"strings"
	"sync"
	"time"

	"github.com/keygate/keygate/bench/keygate"
	"github.com/keygate/keygate/bench/stats"
	"github.com/keygate/keygate/client"
)

const (
	scrapedAccounts = 5
	scrapedRoutes   = 20_000 // of each account
	scrapes         = 20
	sameTimeScrapes = 10
	scrapeCallers   = 16
)

// scrapeRoutes measures /metrics before any route is in use, and when 100,000 routes of five
// accounts have had requests, with two statuses each.
func scrapeRoutes(ctx context.Context, o options, dir string, w io.Writer) (string, error) {
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.RawQuery != "" {
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	defer service.Close()
	s, err := keygate.Start(ctx, keygate.Config{Binary: o.binary, Dir: dir, Args: []string{"--upstream-allow-network", "127.0.0.0/8"}})
	if err != nil {
		return "", err
	}
	defer s.Stop()
	var tenants [scrapedAccounts]caller
	for i := range tenants {
		if tenants[i], err = newCaller(ctx, s, i, service.URL); err != nil {
			return "", err
		}
	}
	idle, err := scrapeFor(ctx, s)
	if err != nil {
		return "", err
	}
	before, err := s.Memory()
	if err != nil {
		return "", err
	}
	if err := callAll(ctx, s, tenants[:]); err != nil {
		return "", err
	}
	fmt.Fprintf(w, "scrape: %d routes in use\n", scrapedAccounts*scrapedRoutes)
	used, err := s.Memory()
	if err != nil {
		return "", err
	}
	inUse, err := scrapeFor(ctx, s)
	if err != nil {
		return "", err
	}
	atOnce, err := scrapeAtOnce(ctx, s)
	if err != nil {
		return "", err
	}
	after, err := s.PeakMemory()
	if err != nil {
		return "", err
	}
	t := stats.Table{Columns: []string{"/metrics", "No route in use", fmt.Sprintf("%d in use", scrapedAccounts*scrapedRoutes), "Target"}}
	t.Add("lines", fmt.Sprint(idle.lines), fmt.Sprint(inUse.lines), "≤ 20000")
	t.Add("size, MB", fmt.Sprintf("%.2f", float64(idle.size)/1e6), fmt.Sprintf("%.2f", float64(inUse.size)/1e6), "≤ 32")
	t.Add("CPU of a scrape, ms", milliseconds(idle.cpu), milliseconds(inUse.cpu), "≤ 1000")
	t.Add("time of a scrape, p50, ms", milliseconds(stats.Median(idle.taken...)), milliseconds(stats.Median(inUse.taken...)), "")
	t.Add(fmt.Sprintf("time until the last of %d at the same time, ms", sameTimeScrapes), "", milliseconds(atOnce), "")
	t.Add("resident memory before the scrapes, MB", fmt.Sprint(before/1e6), fmt.Sprint(used/1e6), "")
	t.Add("peak resident memory, MB", "", fmt.Sprint(after/1e6), "≤ 32 more")
	if inUse.lines > 20_000 {
		return "", fmt.Errorf("a scrape has %d lines", inUse.lines)
	}
	return t.String(), nil
}

// caller is an account with many routes.
type caller struct{ host, key string }

func newCaller(ctx context.Context, s *keygate.Server, number int, upstream string) (c caller, err error) {
	a, err := s.Admin.CreateAccount(ctx, client.CreateAccountRequest{Name: fmt.Sprintf("tenant-%d", number), Plan: client.CreateAccountRequestPlanScale})
	if err != nil {
		return c, err
	}
	own, err := s.As(a.Secret)
	if err != nil {
		return c, err
	}
	g, err := own.CreateGateway(ctx, client.CreateGatewayRequest{Name: "many", UpstreamURL: upstream})
	if err != nil {
		return c, err
	}
	var b bytes.Buffer
	b.WriteString(`{"openapi":"3.1.0","info":{"title":"many","version":"1"},"paths":{`)
	for i := range scrapedRoutes {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `"%s":{"get":{}}`, manyPath(i))
	}
	b.WriteString(`}}`)
	if _, err := own.PushSpec(ctx, g.GatewayID, b.Bytes(), false); err != nil {
		return c, err
	}
	k, err := own.CreateKey(ctx, client.CreateKeyRequest{Name: "bench", Scope: "read"})
	if err != nil {
		return c, err
	}
	return caller{g.Hostname, k.Secret}, nil
}

func manyPath(i int) string { return fmt.Sprintf("/area%d/things%d", i/100, i) }

// callAll calls each route of the accounts twice: one response is 200, one 404.
func callAll(ctx context.Context, s *keygate.Server, accounts []caller) error {
	hc := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: scrapeCallers}}
	defer hc.CloseIdleConnections()
	var running sync.WaitGroup
	errs := make([]error, scrapeCallers)
	for n := range scrapeCallers {
		running.Go(func() {
			for i := n; i < len(accounts)*scrapedRoutes && errs[n] == nil; i += scrapeCallers {
				c := accounts[i%len(accounts)]
				path := manyPath(i / len(accounts))
				errs[n] = errors.Join(c.call(ctx, hc, s.Gateway, path, http.StatusOK), c.call(ctx, hc, s.Gateway, path+"?missing", http.StatusNotFound))
			}
		})
	}
	running.Wait()
	return errors.Join(errs...)
}

func (c caller) call(ctx context.Context, hc *http.Client, address, path string, status int) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, http.NoBody)
	if err != nil {
		return err
	}
	req.Host = c.host
	req.Header.Set("Authorization", "Bearer "+c.key)
	res, err := hc.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		return err
	}
	if res.StatusCode != status {
		return fmt.Errorf("%s: got status %d, want %d", path, res.StatusCode, status)
	}
	return nil
}

// scraped is what several scrapes in a row took. lines and size describe the last scrape.
type scraped struct {
	lines, size int
	cpu         time.Duration // of one
	taken       []time.Duration
}

func scrapeFor(ctx context.Context, s *keygate.Server) (r scraped, err error) {
	before, err := s.CPU()
	if err != nil {
		return r, err
	}
	for range scrapes {
		start := time.Now()
		text, err := s.Metrics(ctx)
		if err != nil {
			return r, err
		}
		r.taken = append(r.taken, time.Since(start))
		r.lines, r.size = strings.Count(string(text), "\n"), len(text)
	}
	after, err := s.CPU()
	r.cpu = (after - before) / scrapes
	return r, err
}

// scrapeAtOnce returns how long several scrapes at the same time took together.
func scrapeAtOnce(ctx context.Context, s *keygate.Server) (time.Duration, error) {
	start := time.Now()
	var running sync.WaitGroup
	errs := make([]error, sameTimeScrapes)
	for i := range errs {
		running.Go(func() { _, errs[i] = s.Metrics(ctx) })
	}
	running.Wait()
	return time.Since(start), errors.Join(errs...)
}
