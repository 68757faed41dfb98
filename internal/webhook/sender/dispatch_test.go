package sender

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/webhook"
)

// dispatch is a dispatcher over a queue of numbers, whose attempts end when the test says so.
type dispatch struct {
	*dispatcher
	waiting map[string]int // by endpoint
	started []*task        // in flight, the oldest first
	claims  int
}

func newDispatch() *dispatch { return newDispatchOf(maxInFlight) }

// newDispatchOf returns a dispatcher with the given number of slots.
func newDispatchOf(slots int) *dispatch {
	const wait = time.Minute
	cfg := &Config{Now: func() time.Time { return time.Unix(1767225600, 0) }, Backoff: [4]time.Duration{wait, wait, wait, wait}, MaxInFlight: slots}
	d := &dispatch{dispatcher: newDispatcher(cfg, &claimant{}, newResults(), &counters{}), waiting: map[string]int{}}
	d.start = func(t *task) { d.started = append(d.started, t) }
	return d
}

// bring adds n due deliveries to an endpoint of the account and makes the claims that the dispatcher wants.
func (d *dispatch) bring(accountID, webhookID string, n int) {
	d.waiting[webhookID] += n
	d.found([]Due{{WebhookID: webhookID, AccountID: accountID, New: true}})
	d.claimAll()
}

// claimAll makes claims until the dispatcher wants no more.
func (d *dispatch) claimAll() {
	for again := true; again; {
		w := d.claim()
		var jobs []Job
		for _, want := range w.Wants {
			for range min(want.Limit, d.waiting[want.WebhookID]) {
				d.waiting[want.WebhookID]--
				d.claims++
				jobs = append(jobs, Job{Lease: Lease{DeliveryID: fmt.Sprint(d.claims), Token: w.Token}, Attempt: 1, Endpoint: Endpoint{WebhookID: want.WebhookID}})
			}
		}
		again = d.claimed(w, jobs, nil)
	}
}

// end ends the oldest attempt with the given status after d.
func (d *dispatch) end(status int, took time.Duration) {
	t := d.started[0]
	d.started = d.started[1:]
	r := Result{Lease: t.Lease, State: webhook.RetryScheduled, Attempt: attempted(status, took)}
	if status == 200 {
		r.State = webhook.Delivered
	}
	d.ended(finished{t, r})
}

// write writes the results, and claims what the dispatcher wants then.
func (d *dispatch) write() {
	done, released := d.results.take(maxHeld)
	tasks := make([]*task, len(done))
	for i := range done {
		tasks[i] = done[i].task
	}
	for _, t := range released {
		d.waiting[t.endpoint.webhookID]++
	}
	d.unhold(tasks, false)
	d.unhold(released, true)
	d.claimAll()
}

func attempted(status int, took time.Duration) webhook.Attempt {
	return webhook.Attempt{Number: 1, Status: status, Duration: took}
}

// Guarantee: an endpoint has at most a window of deliveries in flight, which grows with successes;
// an attempt that ends starts the next delivery.
func TestWindowLimitsDeliveriesInFlight(t *testing.T) {
	d := newDispatch()
	d.bring("acct_1", "wh_1", 5*maxWindow)
	if got := len(d.started); got != minWindow {
		t.Fatalf("got %d in flight at first, want %d", got, minWindow)
	}
	for range maxWindow - minWindow + 5 {
		d.end(200, time.Millisecond)
		d.write()
	}
	if got := len(d.started); got != maxWindow {
		t.Errorf("got %d in flight after successes, want %d", got, maxWindow)
	}
}

// Guarantee: deliveries that are queued are handed back when their endpoint is recalled, responds
// with 410, opens its breaker or becomes slow, and when the dispatcher stops. Deliveries in flight
// are not.
func TestQueuedDeliveriesAreHandedBack(t *testing.T) {
	for name, handBack := range map[string]func(d *dispatch){
		"recall": func(d *dispatch) { d.recall("wh_1") },
		"410":    func(d *dispatch) { d.end(410, time.Millisecond) },
		"open breaker": func(d *dispatch) {
			for range breakAfter {
				d.end(500, time.Millisecond)
			}
		},
		"slow": func(d *dispatch) { d.end(200, quickTime+1) },
		"stop": func(d *dispatch) { d.stop() },
	} {
		t.Run(name, func(t *testing.T) {
			d := newDispatch()
			d.bring("acct_1", "wh_1", 10*maxWindow)
			for range 3 * maxWindow { // it becomes quick, and gets a queue
				d.end(200, time.Millisecond)
				d.write()
			}
			e := d.endpoints["wh_1"]
			queued, inFlight := len(e.queue), len(d.started)
			if queued == 0 {
				t.Fatal("nothing is queued")
			}
			handBack(d)
			ended, released := d.results.take(1000)
			if got, want := len(released), queued-(len(d.started)-inFlight)-len(ended); got != want {
				t.Errorf("got %d handed back of %d with %d in flight and %d ended, want %d", got, queued, len(d.started), len(ended), want)
			}
			if len(e.queue) != 0 {
				t.Errorf("got %d still queued, want none", len(e.queue))
			}
		})
	}
}

// Guarantee: after stop, an attempt that ends starts no other delivery.
func TestNothingStartsAfterStop(t *testing.T) {
	d := newDispatch()
	d.bring("acct_1", "wh_1", 100)
	d.stop()
	before := len(d.started)
	d.end(200, time.Millisecond)
	d.write()
	if got := len(d.started); got != before-1 {
		t.Errorf("got %d in flight, want %d", got, before-1)
	}
}

// Guarantee: 3 timeouts without a success between them open the breaker; from then on the endpoint
// has one delivery in flight at a time.
func TestTimeoutsOpenTheBreaker(t *testing.T) {
	d := newDispatch()
	d.bring("acct_1", "wh_1", 100)
	for range 2 {
		d.end(0, Timeout)
	}
	if e := d.endpoints["wh_1"]; !e.resumeAt.IsZero() {
		t.Error("two timeouts opened the breaker")
	}
	d.end(0, Timeout)
	d.write()
	if e := d.endpoints["wh_1"]; !e.paused(d.now()) || e.window != 1 || len(d.started) > minWindow-3 {
		t.Errorf("after three timeouts: paused %v, window %d, %d in flight; want true, 1 and %d", e.paused(d.now()), e.window, len(d.started), minWindow-3)
	}
}

// Guarantee: the failure that opens the breaker has the end of the pause in its result, and no other has one. A sender
// that finds the endpoint while the stored pause lasts postpones new deliveries as well, for at most maxPause.
func TestPauseIsStoredAndTakenOver(t *testing.T) {
	d := newDispatch()
	d.bring("acct_1", "wh_1", 100)
	for range 3 {
		d.end(0, Timeout)
	}
	ended, _ := d.results.take(3)
	until := d.endpoints["wh_1"].resumeAt
	if got := ended[2].result.PausedUntil; !ended[0].result.PausedUntil.IsZero() || !ended[1].result.PausedUntil.IsZero() || !got.Equal(until) || !got.After(d.now()) {
		t.Errorf("got pauses until %v, %v and %v; want one, until %v", ended[0].result.PausedUntil, ended[1].result.PausedUntil, got, until)
	}
	for _, tc := range []struct {
		stored, want time.Duration
	}{{time.Minute, time.Minute}, {time.Hour, maxPause}, {-time.Minute, 0}} {
		other := newDispatch()
		now := other.now()
		other.waiting["wh_1"] = 1
		other.found([]Due{{WebhookID: "wh_1", AccountID: "acct_1", New: true, Failing: true, PausedUntil: now.Add(tc.stored)}})
		other.claimAll()
		if got := other.endpoints["wh_1"].resumeAt; tc.want > 0 && !got.Equal(now.Add(tc.want)) || len(other.started) > 0 != (tc.want == 0) {
			t.Errorf("a stored pause for %v: got one until %v with %d in flight, want one for %v", tc.stored, got, len(other.started), tc.want)
		}
		other.dispatcher.now = func() time.Time { return now.Add(maxPause) }
		other.claimAll()
		if len(other.started) != 1 {
			t.Errorf("a stored pause for %v: got %d in flight after it, want 1", tc.stored, len(other.started))
		}
	}
}

// isStarted reports whether an attempt for the endpoint is in flight.
func (d *dispatch) isStarted(webhookID string) bool {
	return slices.ContainsFunc(d.started, func(t *task) bool { return t.endpoint.webhookID == webhookID })
}

// Guarantee: however many endpoints of an account hang, the first attempt of a new one starts at
// once, and so do attempts of another account; then the new endpoint is served like any that works.
func TestFirstAttemptDoesNotWaitForHangingEndpoints(t *testing.T) {
	for _, tc := range []struct{ slots, hanging int }{{64, 12}, {1250, 12}, {1250, 600}, {2048, 600}, {2048, 900}} {
		t.Run(fmt.Sprintf("%d of %d places", tc.hanging, tc.slots), func(t *testing.T) {
			d := newDispatchOf(tc.slots)
			for i := range tc.hanging {
				d.bring("acct_1", fmt.Sprint("wh_", i), 100)
			}
			for _, hook := range []string{"wh_new", "wh_other"} {
				account := map[string]string{"wh_new": "acct_1", "wh_other": "acct_2"}[hook]
				d.bring(account, hook, 5)
				if !d.isStarted(hook) {
					t.Fatalf("the first attempt of %s waits for hanging ones: %d in flight", hook, len(d.started))
				}
			}
			for left := 5; left > 0; left-- {
				i := slices.IndexFunc(d.started, func(t *task) bool { return t.endpoint.webhookID == "wh_new" })
				if i < 0 {
					t.Fatalf("%d deliveries of the new endpoint wait although it works", left)
				}
				d.started[0], d.started[i] = d.started[i], d.started[0]
				d.end(200, time.Millisecond)
				d.write()
			}
		})
	}
}

// Guarantee: of an account's endpoints that hang, the endpoint whose oldest delivery has waited
// longest gets the next slot.
func TestHangingEndpointsAreServedByAge(t *testing.T) {
	d := newDispatchOf(64)
	now := d.now()
	d.dispatcher.now = func() time.Time { return now }
	for i := range 12 {
		d.bring("acct_1", fmt.Sprint("wh_", i), 100)
		now = now.Add(time.Second)
	}
	for range len(d.started) {
		d.end(0, Timeout)
	}
	d.write()
	waiting := d.tenants["acct_1"].waiting[hanging]
	if len(waiting) == 0 {
		t.Fatal("no endpoint that hangs waits for a place")
	}
	if !slices.IsSortedFunc(waiting, func(a, b *endpoint) int { return a.due.since.Compare(b.due.since) }) {
		t.Error("those that have waited longest are not first")
	}
}
