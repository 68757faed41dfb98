package sender

import (
	"fmt"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/webhook"
)

// dispatch is a dispatcher whose attempts end when the test says so.
type dispatch struct {
	*dispatcher
	started []*task // in flight, the oldest first
}

func newDispatch() *dispatch {
	const wait = time.Minute
	cfg := &Config{Now: func() time.Time { return time.Unix(1767225600, 0) }, Backoff: [4]time.Duration{wait, wait, wait, wait}}
	d := &dispatch{dispatcher: newDispatcher(cfg, newResults(), &counters{})}
	d.start = func(t *task) { d.started = append(d.started, t) }
	return d
}

// bring makes a claim that returns n deliveries to an endpoint.
func (d *dispatch) bring(webhookID string, n int) {
	c := d.claim()
	var jobs []Job
	for i := range n {
		jobs = append(jobs, Job{Lease: Lease{DeliveryID: fmt.Sprint(webhookID, i), Token: c.Token}, Attempt: 1, Endpoint: Endpoint{WebhookID: webhookID}})
	}
	d.claimed(c, jobs)
}

// end ends the oldest attempt with the given status.
func (d *dispatch) end(status int) {
	t := d.started[0]
	d.started = d.started[1:]
	r := Result{Lease: t.Lease, State: webhook.RetryScheduled, Attempt: webhook.Attempt{Number: 1, Status: status}}
	if status == 200 {
		r.State = webhook.Delivered
	}
	d.ended(finished{t, r})
}

// Guarantee: an endpoint has at most a window of deliveries in flight, which grows with successes;
// an attempt that ends starts the next delivery.
func TestWindowLimitsDeliveriesInFlight(t *testing.T) {
	d := newDispatch()
	d.bring("wh_1", 3*maxWindow)
	if got := len(d.started); got != minWindow {
		t.Fatalf("got %d in flight at first, want %d", got, minWindow)
	}
	for range maxWindow - minWindow + 5 {
		d.end(200)
	}
	if got := len(d.started); got != maxWindow {
		t.Errorf("got %d in flight after successes, want %d", got, maxWindow)
	}
}

// Guarantee: deliveries that are queued are handed back when their endpoint is recalled, responds
// with 410 or opens its breaker, and when the dispatcher stops. Those in flight are not.
func TestQueuedDeliveriesAreHandedBack(t *testing.T) {
	for name, handBack := range map[string]func(d *dispatch){
		"recall": func(d *dispatch) { d.recall("wh_1") },
		"410":    func(d *dispatch) { d.end(410) },
		"open breaker": func(d *dispatch) {
			for range breakAfter {
				d.end(500)
			}
		},
		"stop": func(d *dispatch) { d.stop() },
	} {
		t.Run(name, func(t *testing.T) {
			d := newDispatch()
			const all = 100
			d.bring("wh_1", all)
			handBack(d)
			ended, released := d.results.take(all)
			if got, want := len(released), all-len(d.started)-len(ended); got != want {
				t.Errorf("got %d handed back with %d in flight and %d ended, want %d", got, len(d.started), len(ended), want)
			}
			if e := d.endpoints["wh_1"]; len(e.queue) != 0 {
				t.Errorf("got %d still queued, want none", len(e.queue))
			}
		})
	}
}

// Guarantee: after stop, an attempt that ends starts no other delivery.
func TestNothingStartsAfterStop(t *testing.T) {
	d := newDispatch()
	d.bring("wh_1", 100)
	d.stop()
	before := len(d.started)
	d.end(200)
	if got := len(d.started); got != before-1 {
		t.Errorf("got %d in flight, want %d", got, before-1)
	}
}
