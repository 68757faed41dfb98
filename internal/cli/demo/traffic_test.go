package demo

import (
	"context"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/cli/receiver"
)

// newTestTraffic returns sample traffic to url, whose choices are the same in every run.
func newTestTraffic(url string) *demoTraffic {
	return &demoTraffic{url: url, script: newDemoScript(), callers: demoCallers(), client: http.DefaultClient, random: rand.New(rand.NewPCG(1, 2))}
}

// Guarantee: the sample traffic uses up nothing of the limit that the printed commands exceed, and
// calls no route of the printed commands with the user's key.
func TestTrafficLeavesTheToursLimitAlone(t *testing.T) {
	for _, c := range newDemoScript() {
		if strings.HasPrefix(c.path, "/orders/") || c.path == "/orders" && c.ids != 0 {
			t.Errorf("the sample traffic calls %s %s", c.method, c.path)
		}
	}
}

// Guarantee: each kind of call is made at the start, and again and again.
func TestTrafficMakesEveryKindOfCall(t *testing.T) {
	traffic, first, later := newTestTraffic(""), map[*demoCall]int{}, map[*demoCall]int{}
	for _, c := range traffic.opening() {
		first[c]++
	}
	for range 20_000 {
		later[traffic.choose()]++
	}
	for i := range traffic.script {
		if c := &traffic.script[i]; first[c] != c.first || first[c] == 0 || later[c] == 0 {
			t.Errorf("%s %s: made %d times at the start, want %d and not 0; %d times later", c.method, c.path, first[c], c.first, later[c])
		}
	}
}

// Guarantee: the sample traffic makes a few calls a second, in waves, with never more than 2 s between two.
func TestTrafficIsPaced(t *testing.T) {
	traffic := newTestTraffic("")
	mean := func(at time.Duration) float64 {
		const n = 10_000
		sum := time.Duration(0)
		for range n {
			wait := traffic.wait(at)
			if wait < 0 || wait > 2*time.Second {
				t.Fatalf("got a wait of %v", wait)
			}
			sum += wait
		}
		return sum.Seconds() / n
	}
	busy, quiet := mean(demoWave/4), mean(3*demoWave/4)
	if busy < 0.15 || quiet > 1 || quiet < 2*busy {
		t.Errorf("a call every %.2f s at the top of the wave and every %.2f s at its bottom", busy, quiet)
	}
}

// Guarantee: one call of the sample traffic is made at a time, and Stop breaks it off and ends the traffic.
func TestTrafficEndsWhenItIsStopped(t *testing.T) {
	called, calls, under, most := make(chan struct{}), atomic.Int32{}, atomic.Int32{}, atomic.Int32{}
	upstream := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		most.Store(max(most.Load(), under.Add(1)))
		defer under.Add(-1)
		if calls.Add(1) == 3 {
			close(called)
			<-r.Context().Done() // until the caller hangs up
		}
	}))
	defer upstream.Close() // waits for the handlers
	traffic := newTestTraffic(upstream.URL)
	if err := traffic.Start(); err != nil {
		t.Fatal(err)
	}
	<-called
	if err := traffic.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := calls.Load(); n != 3 || most.Load() != 1 {
		t.Errorf("got %d calls, at most %d at once; want 3, one at a time", n, most.Load())
	}
}

// Guarantee: the second receiver fails for an event of an upstream until every attempt has failed,
// and takes it when it is sent again later.
func TestBillingReceiverRecovers(t *testing.T) {
	for _, c := range []struct {
		event string
		age   time.Duration
		want  int
	}{
		{"key.created", 0, http.StatusNoContent},
		{"gateway.upstream_error", 0, http.StatusInternalServerError},
		{"gateway.upstream_error", time.Hour, http.StatusNoContent},
		{"rate_limit.exceeded", time.Hour, http.StatusNoContent},
	} {
		d := &receiver.Delivery{Event: client.Event{Type: c.event, CreatedAt: time.Now().Add(-c.age)}}
		if got, _ := handleBilling(context.Background(), d); got != c.want {
			t.Errorf("%s after %v: got %d, want %d", c.event, c.age, got, c.want)
		}
	}
	waits := time.Duration(0)
	for _, wait := range strings.Split(demoBackoff, ",") {
		d, err := time.ParseDuration(wait)
		if err != nil {
			t.Fatal(err)
		}
		waits += d
	}
	if waits+waits/5 >= billingRecovers { // waits are lengthened by up to a fifth
		t.Errorf("the attempts take %v, so that the last one may succeed after %v", waits, billingRecovers)
	}
}
