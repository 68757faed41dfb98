package demo

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/service"
)

// demoCalls is the mean number of calls per second of the demo's sample traffic. In the course of
// demoWave it rises and falls by half.
const (
	demoCalls = 3
	demoWave  = 5 * time.Minute
)

// demoCallTimeout bounds one call of the sample traffic.
const demoCallTimeout = 10 * time.Second

// demoCaller is a caller of the sample traffic, with a key of its own.
type demoCaller struct {
	name, owner, scope, agent string
	limit                     client.KeyRateLimit // none if it is zero
	days                      int                 // until the key expires; 0 if it does not
	secret                    string              // the key, or "" for calls without one
}

// Indexes of demoCallers.
const (
	webShop = iota
	mobileApp
	nightlyExport
	partner
	reporting
	reportingNew // replaces the key reporting
	oldScript
	nobody // sends no key
	callers
)

// demoCallers returns the callers of the sample traffic, without their keys.
func demoCallers() [callers]demoCaller {
	return [callers]demoCaller{
		webShop: {name: "web shop", owner: "acme", scope: "write", agent: "acme-shop/4.2", limit: client.KeyRateLimit{Rate: "300/min"}},
		mobileApp: {
			name: "mobile app", owner: "globex", scope: "read", agent: "GlobexMobile/2.1 (iOS 19)",
			limit: client.KeyRateLimit{Sustained: "120/min", Burst: "20/s", Daily: "100000/day"},
		},
		nightlyExport: {name: "nightly export", owner: "initech", scope: "read:invoices", agent: "python-requests/2.32", limit: client.KeyRateLimit{Rate: "10/min"}},
		partner:       {name: "partner portal", owner: "umbrella", scope: "read:orders read:customers", agent: "okhttp/5.1", days: 5},
		reporting:     {name: "reporting", owner: "acme", scope: "read", agent: "reporting/1.8"},
		reportingNew:  {owner: "acme", agent: "reporting/1.9"},
		oldScript:     {name: "old script", owner: "initech", scope: "read", agent: "curl/8.5.0"},
		nobody:        {agent: "Mozilla/5.0 (compatible; scanner)"},
	}
}

// demoCall is one kind of call of the sample traffic.
type demoCall struct {
	caller       int
	method, path string
	ids          int // a number from 1 to ids follows the path; 0 for none
	weight       int // how often it is made, relative to the others
	first        int // how often it is made at the start
}

// newDemoScript returns the calls of the sample traffic. None of them counts for the limit of GET /orders/{id},
// which the printed commands exceed.
func newDemoScript() []demoCall {
	return []demoCall{
		{caller: webShop, method: "GET", path: "/orders", weight: 200, first: 2},
		{caller: webShop, method: "POST", path: "/orders", weight: 60, first: 1}, // at times beyond the limit of the route
		{caller: webShop, method: "GET", path: "/customers/", ids: 200, weight: 150, first: 1},
		{caller: webShop, method: "GET", path: "/invoices/", ids: 12, weight: 60, first: 1},
		{caller: mobileApp, method: "GET", path: "/customers/", ids: 200, weight: 150, first: 1},
		{caller: mobileApp, method: "GET", path: "/search", weight: 100, first: 2},
		{caller: mobileApp, method: "POST", path: "/orders", weight: 8, first: 1},                             // 403: its scope is read
		{caller: nightlyExport, method: "GET", path: "/invoices/", ids: 12, weight: 90, first: 12},            // 429 at times
		{caller: webShop, method: "GET", path: fmt.Sprint("/invoices/", brokenInvoice), weight: 6, first: 1},  // 502
		{caller: webShop, method: "GET", path: fmt.Sprint("/invoices/", failingInvoice), weight: 6, first: 1}, // 500
		{caller: partner, method: "GET", path: "/orders", weight: 60, first: 1},
		{caller: partner, method: "GET", path: "/customers", weight: 30, first: 1},
		{caller: partner, method: "GET", path: "/search", weight: 5, first: 1}, // 403: not in its scopes
		{caller: reporting, method: "GET", path: "/customers", weight: 15, first: 1},
		{caller: reportingNew, method: "GET", path: "/customers", weight: 30, first: 1},
		{caller: oldScript, method: "GET", path: "/customers", weight: 10, first: 1}, // 401: revoked
		{caller: nobody, method: "GET", path: "/customers", weight: 6, first: 1},     // 401: no key
		{caller: nobody, method: "GET", path: "/health", weight: 30, first: 1},
		{caller: webShop, method: "GET", path: "/wishlist", weight: 4, first: 1}, // 404: no route
	}
}

// demoTraffic calls the demo's gateway until it is stopped, one call at a time, so that reports and
// the dashboard have something to show. It ignores the result of a call.
type demoTraffic struct {
	url       string // of the data plane
	gatewayID string
	host      string // the gateway's hostname
	script    []demoCall
	callers   [callers]demoCaller
	keyIDs    map[string]bool // the keys of callers
	client    *http.Client
	random    *rand.Rand
	group     service.Group
}

// newDemoTraffic issues the keys of the callers on the gateway g, whose data plane is at url.
func newDemoTraffic(ctx context.Context, api *client.Client, g *client.Gateway, url string) (*demoTraffic, error) {
	t := &demoTraffic{
		url: url, gatewayID: g.GatewayID, host: g.Hostname, script: newDemoScript(), callers: demoCallers(), keyIDs: map[string]bool{},
		client: &http.Client{
			Timeout: demoCallTimeout,
			Transport: &http.Transport{
				MaxIdleConns: 1, DisableCompression: true,
				TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // the listener is this process's own
			},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		random: rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())),
	}
	for i := range t.callers {
		if err := t.issue(ctx, api, g.GatewayID, i); err != nil {
			return nil, fmt.Errorf("create a key for the sample traffic: %w", err)
		}
	}
	return t, nil
}

// issue gives a key to the caller with the index i.
func (t *demoTraffic) issue(ctx context.Context, api *client.Client, gatewayID string, i int) error {
	c := &t.callers[i]
	if c.scope == "" { // it has no key, or gets the key of a rotation
		return nil
	}
	in := client.CreateKeyRequest{Name: c.name, Owner: &c.owner, Scope: c.scope, GatewayID: &gatewayID}
	if c.limit != (client.KeyRateLimit{}) {
		in.RateLimit = &c.limit
	}
	if c.days != 0 {
		day := time.Now().UTC().AddDate(0, 0, c.days).Format(time.DateOnly)
		in.ExpiresAt = &day
	}
	key, err := api.CreateKey(ctx, in)
	if err != nil {
		return err
	}
	c.secret = key.Secret
	t.keyIDs[key.KeyID] = true
	switch i {
	case reporting:
		next, err := api.RotateKey(ctx, key.KeyID, client.RotateKeyRequest{OverlapDays: 7})
		if err != nil {
			return err
		}
		t.callers[reportingNew].secret = next.Secret
		t.keyIDs[next.KeyID] = true
	case oldScript:
		if _, err := api.RevokeKey(ctx, key.KeyID); err != nil {
			return err
		}
	}
	return nil
}

// Start starts the traffic: first each call as often as the script says, so that there is something
// of each kind at once, and then calls at random.
func (t *demoTraffic) Start() error { return t.group.Start(t.run) }

// Stop ends the traffic. It breaks off the call in progress, and waits for its end.
func (t *demoTraffic) Stop(ctx context.Context) error {
	defer t.client.CloseIdleConnections()
	return t.group.Stop(ctx)
}

func (t *demoTraffic) run(ctx context.Context) {
	for _, c := range t.opening() {
		t.call(ctx, c)
	}
	began := time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		t.call(ctx, t.choose())
		timer.Reset(t.wait(time.Since(began)))
	}
}

// opening returns the calls of the start, in random order.
func (t *demoTraffic) opening() (calls []*demoCall) {
	for i := range t.script {
		for range t.script[i].first {
			calls = append(calls, &t.script[i])
		}
	}
	t.random.Shuffle(len(calls), func(i, j int) { calls[i], calls[j] = calls[j], calls[i] })
	return calls
}

// choose returns a random call of the script.
func (t *demoTraffic) choose() *demoCall {
	total := 0
	for i := range t.script {
		total += t.script[i].weight
	}
	n := t.random.IntN(total)
	for i := range t.script {
		if n -= t.script[i].weight; n < 0 {
			return &t.script[i]
		}
	}
	panic("demo: the weights of the sample traffic do not add up")
}

// wait returns how long to wait for the next call, so that calls come as if from independent
// callers (a Poisson process), but at most 2 s apart.
func (t *demoTraffic) wait(since time.Duration) time.Duration {
	rate := demoCalls * (1 + math.Sin(2*math.Pi*since.Seconds()/demoWave.Seconds())/2)
	return min(time.Duration(t.random.ExpFloat64()/rate*float64(time.Second)), 2*time.Second)
}

// call makes one call. It ignores errors, such as a server that stops.
func (t *demoTraffic) call(ctx context.Context, c *demoCall) {
	path := c.path
	if c.ids != 0 {
		path += fmt.Sprint(1 + t.random.IntN(c.ids))
	}
	r, err := http.NewRequestWithContext(ctx, c.method, t.url+path, http.NoBody)
	if err != nil {
		return
	}
	caller := &t.callers[c.caller]
	r.Host = t.host
	r.Header.Set("User-Agent", caller.agent)
	if caller.secret != "" {
		r.Header.Set("Authorization", "Bearer "+caller.secret)
	}
	response, err := t.client.Do(r)
	if err != nil {
		return
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, 1<<20)) // so that the connection is used again
	_ = response.Body.Close()
}

// background reports whether an event comes from the sample traffic or from its preparation rather
// than from what the user does.
func (t *demoTraffic) background(d *demoEventData) bool {
	return t.keyIDs[d.KeyID] || d.GatewayID == t.gatewayID && (d.Path == demoInvoicePath || d.Revision == 1)
}
