package cluster

import (
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/keygatetest/awaittest"
	"github.com/keygate/keygate/internal/keygatetest/postgrestest"
)

// cappedFleet is nodes with one route that has a daily cap, or a plan with a quota, and clients that send numbered requests
// to them.
type cappedFleet struct {
	*testing.T
	kind  limitKind
	cap   int64
	nodes []*node
	key   string
	keyID string
	api   *client.Client
	apis  []*client.Client // of each node

	numbers, arrivals atomic.Int64
	refusals          []atomic.Int64 // by node: 429s without another response in between
	stop              atomic.Bool
	restarted         sync.Mutex // held while a node is down

	mu         sync.Mutex
	arrived    map[int64]bool // numbers of requests that reached the upstream
	unanswered [][]int64      // by kill, numbers of requests that got no response
	answered   map[nodeRun]int64
	recorded   int64 // answered in runs that were killed, before records were stored
}

// nodeRun is a run of a node between two kills: the number that node.disturbed has then.
type nodeRun struct {
	node int
	run  int64
}

// limitKind is what limits the requests of a cappedFleet.
type limitKind string

const (
	ofRoute limitKind = "the daily cap of a route"
	ofPlan  limitKind = "the quota of a plan"
)

// newCappedFleet starts the nodes, each with the flags.
func newCappedFleet(t *testing.T, kind limitKind, names []string, limit int64, flags ...string) *cappedFleet {
	t.Helper()
	f := &cappedFleet{T: t, kind: kind, cap: limit, arrived: map[int64]bool{}, answered: map[nodeRun]int64{}, refusals: make([]atomic.Int64, len(names)), unanswered: [][]int64{nil}}
	operator, err := apikey.Generate(apikey.AccountLevel, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		n := newNode(t, name, operator, flags...)
		if len(names) == 1 {
			n.args = slices.DeleteFunc(n.args, func(arg string) bool { return arg == "--node-name" || arg == name })
		}
		f.nodes = append(f.nodes, n)
		n.run()
	}
	for _, n := range f.nodes {
		n.awaitReady()
	}
	upstream := httptest.NewServer(http.HandlerFunc(f.serveUpstream))
	t.Cleanup(upstream.Close)
	for _, n := range f.nodes {
		f.apis = append(f.apis, n.api(operator))
	}
	api, ctx := f.apis[0], t.Context()
	g, err := api.CreateGateway(ctx, client.CreateGatewayRequest{Name: "orders", UpstreamURL: upstream.URL})
	if err != nil {
		t.Fatal(err)
	}
	daily, route, key := fmt.Sprintf("%d/day", limit), client.CreateRouteRequest{Path: "/capped/{n}", Methods: []string{"GET"}}, client.CreateKeyRequest{Name: "client", Scope: "read"}
	if kind == ofRoute {
		route.RateLimit = &client.RateLimitInput{Daily: &daily}
	} else {
		p, err := api.CreatePlan(ctx, client.CreatePlanRequest{Name: "pro", Limits: &[]client.PlanLimitInput{{Name: "daily", Quota: &daily}, counted("bytes_out"), counted("tokens")}})
		if err != nil {
			t.Fatal(err)
		}
		key.PlanID, route.Cost = &p.PlanID, []client.Cost{{Meter: "tokens", Reserve: new(int64(2)), Max: new(int64(9)), From: client.CostFrom{JSON: map[string]float64{"tokens": 1}}}}
	}
	if _, err := api.CreateRoute(ctx, g.GatewayID, route); err != nil {
		t.Fatal(err)
	}
	k, err := api.CreateKey(ctx, key)
	if err != nil {
		t.Fatal(err)
	}
	f.key, f.keyID, f.api = k.Secret, k.KeyID, api
	return f
}

// counted returns a quota that counts a meter and refuses nothing. Nearly all units are taken beyond what nodes hold ahead.
func counted(meter string) client.PlanLimitInput {
	quota, overage := "1000/day", client.PlanLimitInputOverageAllow
	return client.PlanLimitInput{Name: strings.ReplaceAll(meter, "_", "-"), Quota: &quota, Meter: &meter, Overage: &overage}
}

func (f *cappedFleet) serveUpstream(w http.ResponseWriter, r *http.Request) {
	number, err := strconv.ParseInt(strings.TrimPrefix(r.URL.Path, "/capped/"), 10, 64)
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil || f.arrived[number] {
		f.Errorf("got the request %s again, or from somebody else", r.URL.Path)
	}
	f.arrived[number] = true
	f.arrivals.Add(1)
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(w, `{"request": %d, "tokens": %d}`, number, number%5)
}

// send sends requests to a node until the clients stop.
func (f *cappedFleet) send(i int) {
	c := &conn{node: f.nodes[i]}
	defer c.close()
	for !f.stop.Load() {
		run := nodeRun{i, f.nodes[i].disturbed.Load()}
		if run.run%2 == 1 { // it is down
			f.restarted.Lock()
			f.restarted.Unlock() //nolint:staticcheck,gocritic // it is held until the node is ready
			continue
		}
		number := f.numbers.Add(1)
		status, err := c.get(fmt.Sprint("/capped/", number), f.key)
		switch {
		case status == http.StatusTooManyRequests:
			f.refusals[i].Add(1)
		case err == nil && status != http.StatusOK && status != http.StatusServiceUnavailable:
			f.Errorf("got status %d, want 200, 429 or 503", status)
		case err != nil && !errors.Is(err, errExcused):
			f.Error(err)
			return
		default:
			f.refusals[i].Store(0)
			f.mu.Lock()
			if err != nil {
				f.unanswered[len(f.unanswered)-1] = append(f.unanswered[len(f.unanswered)-1], number)
			} else if status == http.StatusOK {
				f.answered[run]++
			}
			f.mu.Unlock()
		}
	}
}

// crash kills a node under load when a number of further requests have arrived, and starts it again.
func (f *cappedFleet) crash(n *node, after int64) {
	f.Helper()
	f.storeRecords(n)
	from := f.arrivals.Load()
	if !awaittest.Holds(func() bool { return f.arrivals.Load() >= from+after }) {
		f.Fatalf("%d more requests arrived, want %d of the %d", f.arrivals.Load()-from, after, f.cap)
	}
	f.restarted.Lock()
	defer f.restarted.Unlock()
	n.disturbed.Add(1)
	n.end(syscall.SIGKILL)
	f.mu.Lock()
	f.unanswered = append(f.unanswered, nil)
	f.mu.Unlock()
	n.run()
	n.awaitReady()
	n.disturbed.Add(1)
}

// storeRecords has a node store the usage records of the requests that were answered in its present run, by listing them. A kill
// cannot lose these.
func (f *cappedFleet) storeRecords(n *node) {
	f.Helper()
	if f.kind != ofPlan {
		return
	}
	i := slices.Index(f.nodes, n)
	f.mu.Lock()
	f.recorded += f.answered[nodeRun{i, n.disturbed.Load()}]
	f.mu.Unlock()
	for _, err := range f.apis[i].UsageRecords(f.Context(), client.UsageFilter{KeyID: f.keyID, State: "open", ListOptions: client.ListOptions{PageSize: 1}}) {
		if err != nil {
			f.Fatal(err)
		}
		break
	}
}

// run lets clients send while nodes crash at moments that follow from the seed, and then uses the cap up. It checks
// that the cap was not exceeded, and that all crashes together have lost at most 1 % of the cap, or one request. Requests
// in flight at a crash, which were stored and not yet forwarded, are counted and no loss: for a cap at most one for each
// crash, for a quota all that got no response (plans.md, section 4), since a claim serves all that wait.
func (f *cappedFleet) run(seed uint64, crashes int) {
	f.Helper()
	f.Logf("the seed is %d", seed)
	awaittest.Left(24*time.Hour, time.Minute)
	day := time.Now().UTC().YearDay()
	random := mathrand.New(mathrand.NewPCG(seed, 1))
	var clients sync.WaitGroup
	for i := range f.nodes {
		for range 4 {
			clients.Go(func() { f.send(i) })
		}
	}
	defer func() { f.stop.Store(true); clients.Wait() }()
	for range crashes {
		most := max(1, (f.cap-f.arrivals.Load())/int64(crashes)/2)
		f.crash(f.nodes[random.IntN(len(f.nodes))], random.Int64N(most))
	}
	usedUp := awaittest.Holds(func() bool {
		for i := range f.refusals {
			if f.refusals[i].Load() < 200 {
				return false
			}
		}
		return f.arrivals.Load() >= f.least()
	})
	f.stop.Store(true)
	clients.Wait()
	arrived, least := f.arrivals.Load(), f.least()
	if time.Now().UTC().YearDay() != day {
		awaittest.Late(f, "a new UTC day began, and the counts prove nothing")
		return
	}
	f.Logf("%d requests of a cap of %d passed, at least %d had to", arrived, f.cap, least)
	if arrived > f.cap || arrived < least || !usedUp {
		f.Errorf("%d requests passed, want %d to %d; all nodes refuse more: %v", arrived, least, f.cap, usedUp)
		for _, n := range f.nodes {
			f.Logf("%s:\n%s", n.name, &n.output)
		}
	}
	if f.kind == ofPlan {
		f.checkUsage()
	}
}

// checkUsage checks that usage records have no unit that the quota has not counted, each record once, and every request that was
// answered before a node had last stored its records. A crash loses the records of a moment (plans.md, section 8), and a share
// whose process was killed has used units among its reserved ones.
func (f *cappedFleet) checkUsage() {
	f.Helper()
	usages, err := f.api.KeyUsage(f.Context(), f.keyID)
	if err != nil || len(usages) != 3 {
		f.Fatalf("got %d quotas and the error %v, want three", len(usages), err)
	}
	for _, n := range f.nodes {
		f.storeRecords(n) // of the runs that nothing has killed
	}
	for i := range usages {
		f.checkRecords(&usages[i])
	}
}

// checkRecords checks the usage records of the meter of a quota.
func (f *cappedFleet) checkRecords(u *client.QuotaUsage) {
	f.Helper()
	var units int64
	ids := map[string]bool{}
	for _, state := range []string{"final", "open"} {
		for r, err := range f.api.UsageRecords(f.Context(), client.UsageFilter{KeyID: f.keyID, Meter: u.Meter, State: state}) {
			if err != nil {
				f.Fatal(err)
			}
			if ids[r.UsageID] {
				f.Errorf("the usage record %s is there twice", r.UsageID)
			}
			ids[r.UsageID] = true
			units += r.Units
		}
	}
	counted := u.Used + u.Reserved
	f.Logf("%d %s are in usage records, and %d in the quota; %d requests have arrived", units, u.Meter, counted, f.arrivals.Load())
	least := int64(1)
	if u.Meter == "requests" {
		least = f.recorded
	}
	if units > counted || units < least {
		f.Errorf("usage records have %d %s, want at least %d, which no crash can have lost, and at most the %d of the quota", units, u.Meter, least, counted)
	}
}

// least returns how many requests must pass, given the crashes so far.
func (f *cappedFleet) least() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	least := f.cap - max(1, f.cap/100)
	for _, numbers := range f.unanswered {
		for _, number := range numbers {
			if !f.arrived[number] {
				least--
				if f.kind == ofRoute {
					break
				}
			}
		}
	}
	return least
}

// Guarantee: however often one node is killed within a day, under load and at any moment, a daily cap is never
// exceeded, and all crashes together lose 1 % of it, or one request. The same holds for a quota.
func TestDailyCapInCrashesOfOneNode(t *testing.T) {
	for _, limit := range []int64{20, 2000} {
		f := newCappedFleet(t, ofRoute, []string{fmt.Sprint("node-", limit)}, limit)
		f.run(uint64(limit), 6)
	}
}

func TestQuotaInCrashesOfOneNode(t *testing.T) {
	newCappedFleet(t, ofPlan, []string{"node-0"}, 6000).run(1, 30)
}

// Guarantee: the same holds for several nodes that count in PostgreSQL.
func TestDailyCapInCrashesOfSeveralNodes(t *testing.T) {
	newCappedCluster(t, ofRoute, 2000).run(7, 4)
}

func TestQuotaInCrashesOfSeveralNodes(t *testing.T) {
	newCappedCluster(t, ofPlan, 6000).run(2, 30)
}

// newCappedCluster starts three nodes that share a database.
func newCappedCluster(t *testing.T, kind limitKind, limit int64) *cappedFleet {
	t.Helper()
	postgres := postgrestest.Start(t, postgrestest.Config{})
	secret := filepath.Join(t.TempDir(), "secret.key")
	text := make([]byte, 32)
	_, _ = rand.Read(text)
	if err := os.WriteFile(secret, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return newCappedFleet(t, kind, []string{"node-0", "node-1", "node-2"}, limit,
		"--database-url", postgres.Database(t, ""), "--secret-key-file", secret, "--lease-ttl", leaseTTL.String())
}
