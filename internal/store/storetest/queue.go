package storetest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/event"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/webhook"
	"github.com/keygate/keygate/internal/webhook/sender"
	"github.com/keygate/keygate/internal/webhook/sender/sendertest"
)

// claim claims deliveries, with a new token unless c has one. If c wants nothing, it claims up to
// 1,000 of every endpoint.
func (h *harness) claim(c sender.Claim) []sender.Job {
	h.Helper()
	if c.Token == "" {
		c.Token = sender.TokenOf("", id.New("token"))
	}
	claim := h.ClaimDeliveries
	if c.Wants == nil {
		claim = func(ctx context.Context, c sender.Claim) ([]sender.Job, error) {
			return sendertest.ClaimAll(ctx, h, c, 1000)
		}
	}
	jobs, err := claim(h.Context(), c)
	if err != nil {
		h.Fatalf("ClaimDeliveries: %v", err)
	}
	for i := range jobs {
		if jobs[i].Token != c.Token {
			h.Fatalf("the lease has the token %q, want %q", jobs[i].Token, c.Token)
		}
	}
	return jobs
}

// after returns a claim for everything that is due d after the epoch, for 90 seconds.
func after(d time.Duration) sender.Claim {
	now := epoch().Add(d)
	return sender.Claim{Now: now, Until: now.Add(90 * time.Second)}
}

func (h *harness) finish(late int, results ...sender.Result) {
	h.Helper()
	got, err := h.FinishDeliveries(h.Context(), results)
	if err != nil || got != late {
		h.Fatalf("FinishDeliveries returned %d late, %v; want %d", got, err, late)
	}
}

func (h *harness) release(leases ...sender.Lease) {
	h.Helper()
	if err := h.ReleaseDeliveries(h.Context(), leases); err != nil {
		h.Fatalf("ReleaseDeliveries: %v", err)
	}
}

func (h *harness) next(now time.Time) time.Time {
	h.Helper()
	at, err := h.NextDelivery(h.Context(), now)
	if err != nil {
		h.Fatalf("NextDelivery: %v", err)
	}
	return at
}

// result returns the result of a job: a response with the given status d after the epoch.
func result(j sender.Job, state webhook.DeliveryState, status int, d time.Duration) sender.Result {
	r := sender.Result{Lease: j.Lease, State: state, Attempt: webhook.Attempt{Number: j.Attempt, StartedAt: epoch().Add(d - time.Millisecond),
		Duration: time.Millisecond, Status: status, Response: []byte("ü\x00\xff")}}
	if state == webhook.RetryScheduled {
		r.NextAttemptAt = epoch().Add(d + time.Minute)
	}
	return r
}

// Guarantee: a claim returns everything that sending needs, and no other claim gets the delivery
// until the lease ends. A result changes nothing once another claim has the delivery.
func testQueueLease(h *harness) {
	a := h.insertAccount("a")
	w := newWebhook(a, event.KeyCreated)
	w.OldSecret, w.OldUntil = []byte("old"), epoch().Add(time.Hour)
	h.update(func(ctx context.Context, tx control.Tx) error { return tx.InsertWebhook(ctx, w) })
	e := h.at(a, event.KeyCreated, epoch())
	h.append(e)
	same(h, "before it is due", h.next(epoch().Add(-time.Second)), epoch())
	same(h, "too early", len(h.claim(after(-time.Microsecond))), 0)
	same(h, "what is due does not count", h.next(epoch()), time.Time{})
	jobs := h.claim(after(0))
	if len(jobs) != 1 {
		h.Fatalf("got %d jobs, want 1", len(jobs))
	}
	first := jobs[0]
	same(h, "job", first, sender.Job{Lease: first.Lease, EventID: e.ID, EventType: e.Type, Trigger: webhook.ByEvent, Attempt: 1, DueAt: epoch(), Payload: e.Payload,
		Endpoint: sender.Endpoint{WebhookID: w.ID, URL: w.URL, Secret: w.Secret, OldSecret: w.OldSecret, OldUntil: w.OldUntil}})
	same(h, "state", h.delivery(a.ID, first.DeliveryID).State, webhook.Pending)
	same(h, "leased", len(h.claim(after(90*time.Second-time.Microsecond))), 0)
	same(h, "the lease's end", h.next(epoch()), epoch().Add(90*time.Second))
	second := h.claim(after(90 * time.Second))[0]
	h.finish(1, result(first, webhook.Delivered, 200, 91*time.Second))
	h.release(first.Lease)
	same(h, "late", h.delivery(a.ID, first.DeliveryID).Attempts, []webhook.Attempt(nil))
	h.release(second.Lease)
	third := h.claim(after(91 * time.Second))[0]
	retry := result(third, webhook.RetryScheduled, 500, 92*time.Second)
	h.finish(0, retry)
	h.finish(1, retry)
	d := h.delivery(a.ID, first.DeliveryID)
	same(h, "retried", []any{d.State, d.NextAttemptAt, d.Attempts}, []any{webhook.RetryScheduled, retry.NextAttemptAt, []webhook.Attempt{retry.Attempt}})
	same(h, "next", h.next(epoch().Add(92*time.Second)), retry.NextAttemptAt)
	same(h, "not yet due", len(h.claim(after(152*time.Second-time.Microsecond))), 0)
	fourth := h.claim(after(152 * time.Second))[0]
	same(h, "attempt", []any{fourth.Attempt, fourth.DueAt}, []any{2, retry.NextAttemptAt})
	// A lease that ended without another claim is still valid.
	done := result(fourth, webhook.Delivered, 204, time.Hour)
	h.finish(0, done)
	d = h.delivery(a.ID, first.DeliveryID)
	same(h, "delivered", []any{d.State, d.NextAttemptAt, d.Attempts}, []any{webhook.Delivered, time.Time{}, []webhook.Attempt{retry.Attempt, done.Attempt}})
	same(h, "nothing", []any{len(h.claim(after(1000 * time.Hour))), h.next(epoch())}, []any{0, time.Time{}})
}

// Guarantee: a retry that is brought forward is due at once, and found by the next look and claim. A
// delivery that is due, leased, pending or done stays as it is.
func testBringForward(h *harness) {
	a := h.insertAccount("a")
	h.insertWebhook(a, event.KeyCreated)
	h.append(h.at(a, event.KeyCreated, epoch()))
	first := h.claim(after(0))[0]
	forward := func(d time.Duration) *webhook.Delivery {
		h.Helper()
		h.update(func(ctx context.Context, tx control.Tx) error {
			return tx.BringForward(ctx, first.DeliveryID, epoch().Add(d))
		})
		return h.delivery(a.ID, first.DeliveryID)
	}
	h.release(first.Lease)
	same(h, "pending", forward(-time.Second).NextAttemptAt, epoch())
	h.finish(0, result(h.claim(after(0))[0], webhook.RetryScheduled, 500, time.Second))
	_, mark, _, err := h.NewlyDue(h.Context(), sender.Mark{}, epoch().Add(2*time.Second))
	if err != nil {
		h.Fatal(err)
	}
	d := forward(3 * time.Second)
	same(h, "brought forward", []any{d.State, d.NextAttemptAt, len(d.Attempts)}, []any{webhook.RetryScheduled, epoch().Add(3 * time.Second), 1})
	found, _, _, err := h.NewlyDue(h.Context(), mark, epoch().Add(3*time.Second))
	if err != nil || len(found) != 1 || !found[0].Begun {
		h.Errorf("got %+v, %v from a look; want the endpoint", found, err)
	}
	same(h, "due already", forward(4*time.Second).NextAttemptAt, epoch().Add(3*time.Second))
	second := h.claim(after(5 * time.Second))[0]
	same(h, "leased", []any{second.Attempt, second.DueAt, forward(6 * time.Second).NextAttemptAt}, []any{2, epoch().Add(3 * time.Second), epoch().Add(3 * time.Second)})
	same(h, "the lease stays", len(h.claim(after(7*time.Second))), 0)
	h.finish(0, result(second, webhook.Delivered, 200, 8*time.Second))
	same(h, "delivered", forward(9*time.Second).NextAttemptAt, time.Time{})
}

// fairness is a queue with different numbers of due deliveries for the endpoints large, small, none
// and off; off is disabled.
type fairness struct {
	*harness
	hooks map[string]*webhook.Webhook
	made  map[string][]string // deliveries by endpoint, beginning with the longest due
}

func newFairness(h *harness) *fairness {
	a := h.insertAccount("a")
	f := &fairness{harness: h, hooks: map[string]*webhook.Webhook{}, made: map[string][]string{}}
	for _, endpoint := range []struct {
		name  string
		n     int
		later time.Duration // later than the others, so that no two are due at the same time
	}{{"small", 3, 500 * time.Microsecond}, {"large", 300, 0}, {"none", 0, 0}, {"off", 5, 250 * time.Microsecond}} {
		name := endpoint.name
		w := h.insertWebhook(a)
		f.hooks[name] = w
		add := func(ctx context.Context, tx control.Tx, from, to int) error {
			for i := from; i < to; i++ {
				e := h.at(a, event.KeyCreated, epoch().Add(endpoint.later+time.Duration(i)*time.Millisecond))
				if err := tx.AppendEvent(ctx, e); err != nil {
					return err
				}
				d := &webhook.Delivery{ID: id.NewAt(id.Delivery, e.CreatedAt), AccountID: a.ID, WebhookID: w.ID, EventID: e.ID, EventType: e.Type,
					State: webhook.Pending, Trigger: webhook.ByEvent, NextAttemptAt: e.CreatedAt, CreatedAt: e.CreatedAt}
				f.made[name] = append(f.made[name], d.ID)
				if err := tx.InsertDelivery(ctx, d); err != nil {
					return err
				}
			}
			return nil
		}
		const some = 50 // in one transaction
		for from := 0; from < endpoint.n; from += some {
			h.update(func(ctx context.Context, tx control.Tx) error { return add(ctx, tx, from, min(from+some, endpoint.n)) })
		}
	}
	f.hooks["off"].State = webhook.Disabled
	h.updateWebhook(f.hooks["off"])
	return f
}

// claims checks how many deliveries of large, small, none and off the claim c returns, and that
// they have been due longest.
func (f *fairness) claims(c sender.Claim, want string) []sender.Job {
	f.Helper()
	jobs := f.claim(c)
	of := map[string][]string{}
	for _, j := range jobs {
		of[j.Endpoint.WebhookID] = append(of[j.Endpoint.WebhookID], j.DeliveryID)
	}
	var got []string
	for _, name := range []string{"large", "small", "none", "off"} {
		list := of[f.hooks[name].ID]
		slices.Sort(list)
		got = append(got, fmt.Sprint(len(list)))
		if !slices.Equal(list, f.made[name][:len(list)]) {
			f.Errorf("the deliveries of %s that have been due longest were not taken", name)
		}
	}
	if strings.Join(got, " ") != want {
		f.Errorf("took %v deliveries of large, small, none and off; want %s", got, want)
	}
	return jobs
}

// Guarantee: a claim takes from each endpoint the deliveries that have been due longest, and no more
// than it wants of that endpoint. It takes none of other endpoints, or of a disabled one.
func testQueueWants(h *harness) {
	f := newFairness(h)
	want := func(name string, limit int, skipNew bool) sender.Want {
		return sender.Want{WebhookID: f.hooks[name].ID, Limit: limit, SkipNew: skipNew}
	}
	claim := func(wants ...sender.Want) sender.Claim {
		c := after(time.Hour)
		c.Wants = wants
		return c
	}
	check := func(what string, c sender.Claim, want string) {
		h.run(what, func(h *harness) {
			f := &fairness{h, f.hooks, f.made}
			for _, j := range f.claims(c, want) {
				h.release(j.Lease)
			}
		})
	}
	check("one endpoint", claim(want("large", 7, false)), "7 0 0 0")
	check("all endpoints", claim(want("large", 250, false), want("small", 9, false), want("none", 9, false), want("off", 9, false)), "250 3 0 0")
	check("new deliveries are skipped", claim(want("large", 5, true), want("small", 2, false)), "0 2 0 0")

	started := f.claims(claim(want("large", 1, false)), "1 0 0 0")[0]
	h.finish(0, result(started, webhook.RetryScheduled, 500, 0))
	check("deliveries with an attempt are not skipped", claim(want("large", 5, true)), "1 0 0 0")
	early := claim(want("large", 1000, false), want("small", 1000, false))
	early.Now = epoch().Add(4 * time.Millisecond)
	f.made["large"] = f.made["large"][1:] // the one with an attempt is not due yet
	check("only what is due", early, "4 3 0 0")
}

// Guarantee: NewlyDue finds the endpoints of all deliveries that were created or became due since
// the mark, in bounded parts, with the kinds of their deliveries; a further call finds none of them
// again. Disabled endpoints are left out.
func testQueueNewlyDue(h *harness) {
	a := h.insertAccount("a")
	first, failing, off := h.insertWebhook(a, event.KeyCreated), h.insertWebhook(a, event.KeyRevoked), h.insertWebhook(a, event.KeyCreated)
	off.State = webhook.Disabled
	h.updateWebhook(off)
	look := func(mark sender.Mark, at time.Duration) (found map[string]sender.Due, next sender.Mark) {
		found = map[string]sender.Due{}
		for more := true; more; {
			list, to, again, err := h.NewlyDue(h.Context(), mark, epoch().Add(at))
			if err != nil || again && to == mark {
				h.Fatalf("NewlyDue returned the marks %v and %v, %v", mark, to, err)
			}
			for _, d := range list {
				known := found[d.WebhookID]
				d.New, d.Begun = d.New || known.New, d.Begun || known.Begun
				found[d.WebhookID] = d
			}
			mark, more = to, again
		}
		return found, mark
	}
	_, mark := look(sender.Mark{}, 0)
	h.append(h.at(a, event.KeyCreated, epoch())) // before the mark, by its time
	found, mark := look(mark, time.Second)
	same(h, "created", found, map[string]sender.Due{first.ID: {WebhookID: first.ID, AccountID: a.ID, New: true}})
	found, mark = look(mark, time.Second)
	same(h, "nothing since", len(found), 0)

	jobs := h.claim(after(time.Second))
	h.finish(0, result(jobs[0], webhook.RetryScheduled, 500, 2*time.Second))
	found, mark = look(mark, 61*time.Second)
	same(h, "not due yet", len(found), 0)
	found, mark = look(mark, 62*time.Second)
	same(h, "retry", found, map[string]sender.Due{first.ID: {WebhookID: first.ID, AccountID: a.ID, Failing: true, Begun: true}})

	h.claim(after(62 * time.Second))
	found, mark = look(mark, 100*time.Second)
	same(h, "leased", len(found), 0)
	found, mark = look(mark, 200*time.Second)
	same(h, "after the lease", found[first.ID].Begun, true)

	var many []*event.Event // more than one part, all due at the same time
	for range 2500 {
		many = append(many, h.at(a, event.KeyRevoked, epoch().Add(300*time.Second)))
	}
	h.append(many...)
	d := webhook.Delivery{ID: id.New(id.Delivery), AccountID: a.ID, WebhookID: first.ID, EventID: many[0].ID, EventType: many[0].Type, State: webhook.Pending,
		Trigger: webhook.ByHand, NextAttemptAt: epoch().Add(300 * time.Second), CreatedAt: epoch()}
	h.update(func(ctx context.Context, tx control.Tx) error { return tx.InsertDelivery(ctx, &d) })
	_, early := look(mark, 250*time.Second) // they are created, but not due
	for name, from := range map[string]sender.Mark{"created": mark, "became due": early} {
		found, _ = look(from, 300*time.Second)
		same(h, name, []bool{found[failing.ID].New, found[failing.ID].Begun, found[first.ID].New, found[first.ID].Begun}, []bool{true, false, false, true})
	}
}

// Guarantee: no two senders get the same delivery.
func testQueueRace(h *harness) {
	a := h.insertAccount("a")
	h.insertWebhook(a, event.KeyCreated)
	h.insertWebhook(a, event.KeyCreated)
	const events = 60
	for range events {
		h.append(h.at(a, event.KeyCreated, epoch()))
	}
	var (
		mu       sync.Mutex
		finished = map[string]int{}
		all      sync.WaitGroup
	)
	for n := range 4 {
		all.Go(func() {
			for round := 0; ; round++ {
				c := after(0)
				c.Token = fmt.Sprintf("%d/%d", n, round)
				jobs, err := sendertest.ClaimAll(h.Context(), h, c, 5)
				if err != nil {
					h.Error(err)
				}
				if len(jobs) == 0 {
					return
				}
				var results []sender.Result
				for _, j := range jobs {
					results = append(results, result(j, webhook.Delivered, 200, 0))
				}
				if late, err := h.FinishDeliveries(h.Context(), results); err != nil || late != 0 {
					h.Errorf("FinishDeliveries returned %d late, %v; want 0", late, err)
				}
				mu.Lock()
				for _, j := range jobs {
					finished[j.DeliveryID]++
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	same(h, "deliveries", len(finished), 2*events)
	for name, n := range finished {
		if n != 1 {
			h.Errorf("%s was leased %d times, want once", name, n)
		}
	}
	same(h, "delivered", len(h.deliveries(a.ID, control.DeliveryFilter{State: webhook.Delivered})), 2*events)
}

// Guarantee: results update the endpoint's health. A 410 disables the endpoint, with an audit
// record without an actor, and its waiting deliveries fail with a reason.
func testQueueHealth(h *harness) {
	a := h.insertAccount("a")
	w, other := h.insertWebhook(a, event.KeyCreated), h.insertWebhook(a, event.KeyCreated)
	for range 3 {
		h.append(h.at(a, event.KeyCreated, epoch()))
	}
	jobs := slices.DeleteFunc(h.claim(after(0)), func(j sender.Job) bool { return j.Endpoint.WebhookID == other.ID })
	h.finish(0, result(jobs[0], webhook.RetryScheduled, 500, time.Second), result(jobs[1], webhook.RetryScheduled, 500, 2*time.Second))
	failing := *w
	failing.FailingSince = epoch().Add(time.Second - time.Millisecond)
	same(h, "failing", h.webhook(a.ID, w.ID), &failing)
	h.finish(0, result(jobs[2], webhook.Delivered, 200, 3*time.Second))
	same(h, "healthy", h.webhook(a.ID, w.ID), w)
	same(h, "another's log", len(h.auditLog(a.ID)), 0)

	h.append(h.at(a, event.KeyCreated, epoch()))
	jobs = slices.DeleteFunc(h.claim(after(time.Hour)), func(j sender.Job) bool { return j.Endpoint.WebhookID == other.ID })
	h.append(h.at(a, event.KeyCreated, epoch()))
	gone := result(jobs[0], webhook.RetryScheduled, 410, time.Hour)
	h.finish(0, gone)
	got := h.webhook(a.ID, w.ID)
	if got.State != webhook.Disabled || got.DisabledReason == "" || got.Version != 2 {
		h.Fatalf("after 410 the endpoint is %+v, want it disabled with a reason and version 2", got)
	}
	log := h.auditLog(a.ID)
	if len(log) != 1 || log[0].Action != audit.WebhookDisable || log[0].Target != w.ID || log[0].ActorKeyID != "" || log[0].Kind != audit.Management {
		h.Fatalf("got the audit log %+v, want one record of the disabled endpoint", log)
	}
	same(h, "diff", log[0].Diff, audit.Diff{"state": {"active", "disabled"}, "disabled_reason": {nil, got.DisabledReason}})
	reason := "not sent: the endpoint is disabled: " + got.DisabledReason
	d := h.delivery(a.ID, gone.DeliveryID)
	same(h, "stranded", []any{d.State, d.NextAttemptAt, len(d.Attempts)}, []any{webhook.Failed, time.Time{}, len(d.Attempts)})
	same(h, "its last attempt", d.Attempts[len(d.Attempts)-1], webhook.Attempt{Number: gone.Attempt.Number + 1, StartedAt: epoch().Add(time.Hour), Error: reason})
	waiting := h.deliveries(a.ID, control.DeliveryFilter{WebhookID: w.ID, State: webhook.Pending})
	retried := h.deliveries(a.ID, control.DeliveryFilter{WebhookID: w.ID, State: webhook.RetryScheduled})
	same(h, "those in flight stay", len(waiting)+len(retried), len(jobs)-1)
	same(h, "the other endpoint's", len(h.deliveries(a.ID, control.DeliveryFilter{WebhookID: other.ID, State: webhook.Pending})), 5)
	// A delivery in flight may still succeed.
	h.finish(0, result(jobs[1], webhook.Delivered, 200, time.Hour))
	same(h, "still disabled", h.webhook(a.ID, w.ID).State, webhook.Disabled)
	same(h, "it has stranded deliveries", h.stranding(), []string{w.ID})
	h.update(func(ctx context.Context, tx control.Tx) error {
		_, err := tx.FailStranded(ctx, w.ID, epoch().Add(2*time.Hour), 100)
		return err
	})
	same(h, "none waits", len(h.deliveries(a.ID, control.DeliveryFilter{WebhookID: w.ID, State: webhook.Pending}))+
		len(h.deliveries(a.ID, control.DeliveryFilter{WebhookID: w.ID, State: webhook.RetryScheduled})), 0)
	same(h, "no claim", len(slices.DeleteFunc(h.claim(after(3*time.Hour)), func(j sender.Job) bool { return j.Endpoint.WebhookID != w.ID })), 0)
}

func (h *harness) stranding() []string {
	h.Helper()
	list := get(h, func(ctx context.Context, tx control.ReadTx) ([]string, error) { return tx.StrandingWebhooks(ctx) })
	slices.Sort(list)
	return list
}

// Guarantee: waiting deliveries of a disabled or deleted endpoint fail, a limited number in each
// call. Leased deliveries are kept until their leases end.
func testStranded(h *harness) {
	a := h.insertAccount("a")
	gone, off, on := h.insertWebhook(a, event.KeyCreated), h.insertWebhook(a, event.KeyCreated), h.insertWebhook(a, event.KeyCreated)
	h.append(h.at(a, event.KeyCreated, epoch()))
	h.claim(after(0))
	for range 3 {
		h.append(h.at(a, event.KeyCreated, epoch()))
	}
	off.State = webhook.Disabled
	h.updateWebhook(off)
	h.update(func(ctx context.Context, tx control.Tx) error { return tx.DeleteWebhook(ctx, a.ID, gone.ID) })
	count := func(w *webhook.Webhook, s webhook.DeliveryState) int {
		h.Helper()
		return len(h.deliveries(a.ID, control.DeliveryFilter{WebhookID: w.ID, State: s}))
	}
	fail := func(w *webhook.Webhook, d time.Duration, limit int) (more bool) {
		h.update(func(ctx context.Context, tx control.Tx) (err error) {
			more, err = tx.FailStranded(ctx, w.ID, epoch().Add(d), limit)
			return err
		})
		return more
	}
	want := []string{gone.ID, off.ID}
	slices.Sort(want)
	same(h, "with stranded deliveries", h.stranding(), want)
	same(h, "more", fail(gone, time.Second, 2), true)
	same(h, "two", []int{count(gone, webhook.Failed), count(off, webhook.Failed)}, []int{2, 0})
	for _, w := range []*webhook.Webhook{gone, off, on} {
		for fail(w, time.Second, 2) {
			continue
		}
	}
	same(h, "but the leased", []int{count(gone, webhook.Failed), count(off, webhook.Failed), count(gone, webhook.Pending), count(off, webhook.Pending)}, []int{3, 3, 1, 1})
	for _, w := range []*webhook.Webhook{gone, off, on} {
		fail(w, 90*time.Second, 10)
	}
	same(h, "none with stranded deliveries", len(h.stranding()), 0)
	same(h, "all", []int{count(gone, webhook.Failed), count(off, webhook.Failed), count(on, webhook.Failed), count(on, webhook.Pending)}, []int{4, 4, 0, 4})
	for w, reason := range map[*webhook.Webhook]string{gone: "not sent: the endpoint was deleted", off: "not sent: the endpoint is disabled"} {
		d := h.deliveries(a.ID, control.DeliveryFilter{WebhookID: w.ID})[0]
		same(h, "attempt", d.Attempts, []webhook.Attempt{{Number: 1, StartedAt: d.Attempts[0].StartedAt, Error: reason}})
	}
	same(h, "more of nothing", fail(gone, time.Hour, 10), false)
}

// Guarantee: ReleaseAllDeliveries ends all leases of the sender with the given name, and none of
// another sender whose name begins in the same way.
func testReleaseAll(h *harness) {
	a := h.insertAccount("a")
	w := h.insertWebhook(a, event.KeyCreated)
	for range 5 {
		h.append(h.at(a, event.KeyCreated, epoch()))
	}
	c := after(0)
	c.Wants, c.Token = []sender.Want{{WebhookID: w.ID, Limit: 3}}, sender.TokenOf("node", "1")
	first := h.claim(c)
	c.Wants[0].Limit, c.Token = 1, sender.TokenOf("node-2", "1")
	other := h.claim(c)
	for name, want := range map[string]int{"node-3": 0, "nod": 0, "no_e": 0, "": 0} {
		if released, err := h.ReleaseAllDeliveries(h.Context(), name); err != nil || released != want {
			h.Fatalf("ReleaseAllDeliveries of %q returned %d, %v; want %d", name, released, err, want)
		}
	}
	released, err := h.ReleaseAllDeliveries(h.Context(), "node")
	if err != nil || released != 3 {
		h.Fatalf("ReleaseAllDeliveries returned %d, %v; want 3", released, err)
	}
	again := h.claim(after(time.Second))
	same(h, "all but the other's", len(again), 4)
	h.finish(0, result(other[0], webhook.Delivered, 200, 0))
	h.finish(1, result(first[0], webhook.Delivered, 200, 0))
}

// Guarantee: the first 8 KiB of a response body are stored byte for byte.
func testAttemptResponse(h *harness) {
	a := h.insertAccount("a")
	h.insertWebhook(a, event.KeyCreated)
	h.append(h.at(a, event.KeyCreated, epoch()))
	r := result(h.claim(after(0))[0], webhook.Failed, 500, 0)
	r.Attempt.Response = slices.Repeat([]byte{0, 0xff, 'a', '\n'}, webhook.KeptResponse/2)
	h.finish(0, r)
	same(h, "response", h.delivery(a.ID, r.DeliveryID).Attempts[0].Response, r.Attempt.Response[:webhook.KeptResponse])
}
