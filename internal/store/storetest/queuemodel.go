package storetest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/event"
	"github.com/keygate/keygate/internal/webhook"
	"github.com/keygate/keygate/internal/webhook/sender"
)

// queueModel is a simple model of a queue in maps.
type queueModel struct {
	h       *harness
	t       *rapid.T
	account *account.Account
	now     time.Time
	hooks   []*webhook.Webhook
	gone    map[string]bool // deleted endpoints
	waits   map[string]*waitingDelivery
	done    map[string]webhook.DeliveryState
	leased  []sender.Job // all jobs of all claims
	claims  int
}

type waitingDelivery struct {
	hook     string
	attempts int
	due      time.Time // or the end of the lease
	next     time.Time
	token    string
}

// Guarantee: the queue behaves like the model for any sequence of claims, results in time or late,
// releases, and changes of endpoints.
func testQueueModel(h *harness) {
	const enough = 12 // each takes about a hundred transactions
	accounts := 0
	rapid.Check(h, func(t *rapid.T) {
		if accounts++; accounts > enough {
			return
		}
		m := &queueModel{h: h, t: t, account: h.insertAccount(fmt.Sprint(accounts)), now: epoch().Add(time.Duration(accounts) * 10000 * time.Hour),
			gone: map[string]bool{}, waits: map[string]*waitingDelivery{}, done: map[string]webhook.DeliveryState{}}
		for range 3 {
			m.hooks = append(m.hooks, h.insertWebhook(m.account, event.KeyCreated))
		}
		t.Repeat(map[string]func(*rapid.T){
			"append": m.append, "claim": m.claim, "claim again": m.claim, "finish": m.finish, "release": m.release, "wait": m.wait,
			"switch": m.toggle, "delete": m.delete, "strand": m.strand, "": m.check,
		})
		m.clear()
	})
}

func (m *queueModel) active(hook string) bool {
	return slices.ContainsFunc(m.hooks, func(w *webhook.Webhook) bool { return w.ID == hook && w.State == webhook.Active && !m.gone[hook] })
}

func (m *queueModel) append(t *rapid.T) {
	e := m.h.at(m.account, event.KeyCreated, m.now.Add(-time.Duration(rapid.IntRange(0, 3).Draw(t, "age"))*time.Second))
	m.h.append(e)
	want := 0
	for _, w := range m.hooks {
		if m.active(w.ID) {
			want++
		}
	}
	for _, d := range m.h.deliveries(m.account.ID, control.DeliveryFilter{State: webhook.Pending}) {
		if d.EventID == e.ID {
			want--
			m.waits[d.ID] = &waitingDelivery{hook: d.WebhookID, due: e.CreatedAt, next: e.CreatedAt}
		}
	}
	if want != 0 {
		t.Fatalf("the event has %d deliveries too few", want)
	}
}

func (m *queueModel) claim(t *rapid.T) {
	m.checkDue(t)
	m.claims++
	c := sender.Claim{Now: m.now, Token: fmt.Sprintf("%s/%d", m.account.ID, m.claims), Until: m.now.Add(90 * time.Second), Wants: []sender.Want{}}
	wants := map[string]sender.Want{}
	for i, w := range m.hooks {
		if rapid.IntRange(0, 3).Draw(t, "wanted") > 0 {
			want := sender.Want{WebhookID: w.ID, Limit: rapid.IntRange(1, 5).Draw(t, fmt.Sprint("limit", i)), SkipNew: rapid.IntRange(0, 3).Draw(t, "skip new") == 0}
			c.Wants, wants[w.ID] = append(c.Wants, want), want
		}
	}
	may := map[string][]string{} // by endpoint
	for name, d := range m.waits {
		if m.active(d.hook) && !d.due.After(m.now) && (!wants[d.hook].SkipNew || d.attempts > 0) {
			may[d.hook] = append(may[d.hook], name)
		}
	}
	most := func(hook string) int { return min(wants[hook].Limit, len(may[hook])) }
	jobs := m.h.claim(c)
	taken := map[string][]string{}
	for _, j := range jobs {
		d := m.waits[j.DeliveryID]
		if d == nil || !slices.Contains(may[d.hook], j.DeliveryID) || j.Endpoint.WebhookID != d.hook || j.Attempt != d.attempts+1 || !j.DueAt.Equal(d.next) {
			t.Fatalf("claimed the job %+v for the delivery %+v", j, d)
		}
		taken[d.hook] = append(taken[d.hook], j.DeliveryID)
	}
	want := 0
	for hook := range may {
		want += most(hook)
		if len(taken[hook]) > most(hook) {
			t.Fatalf("claimed %d deliveries of an endpoint, want at most %d", len(taken[hook]), most(hook))
		}
		for _, name := range taken[hook] {
			for _, left := range may[hook] {
				if !slices.Contains(taken[hook], left) && m.waits[left].due.Before(m.waits[name].due) {
					t.Fatalf("claimed a delivery due at %v, but not one due at %v", m.waits[name].due, m.waits[left].due)
				}
			}
		}
	}
	if len(jobs) != want {
		t.Fatalf("claimed %d deliveries, want %d", len(jobs), want)
	}
	for _, j := range jobs {
		d := m.waits[j.DeliveryID]
		d.token, d.due = j.Token, c.Until
	}
	m.leased = append(m.leased, jobs...)
}

// holds reports whether j still has the lease of its delivery.
func (m *queueModel) holds(j sender.Job) bool {
	d := m.waits[j.DeliveryID]
	return d != nil && d.token == j.Token
}

func (m *queueModel) finish(t *rapid.T) {
	if len(m.leased) == 0 {
		t.Skip("no lease")
	}
	late := 0
	var results []sender.Result
	for _, j := range rapid.SliceOfNDistinct(rapid.SampledFrom(m.leased), 1, 4, func(j sender.Job) string { return j.DeliveryID }).Draw(t, "jobs") {
		state := rapid.SampledFrom([]webhook.DeliveryState{webhook.Delivered, webhook.Failed, webhook.RetryScheduled}).Draw(t, "state")
		r := sender.Result{Lease: j.Lease, State: state, Attempt: webhook.Attempt{Number: j.Attempt, StartedAt: m.now, Status: 200}}
		if state == webhook.RetryScheduled {
			r.NextAttemptAt = m.now.Add(time.Duration(rapid.IntRange(0, 100).Draw(t, "next")) * time.Second)
			r.Attempt.Status = 500
		}
		if j.Attempt >= webhook.MaxAttempts && state == webhook.RetryScheduled {
			continue
		}
		results = append(results, r)
		d := m.waits[j.DeliveryID]
		switch {
		case !m.holds(j):
			late++
		case state == webhook.RetryScheduled:
			*d = waitingDelivery{hook: d.hook, attempts: j.Attempt, due: r.NextAttemptAt, next: r.NextAttemptAt}
		default:
			delete(m.waits, j.DeliveryID)
			m.done[j.DeliveryID] = state
		}
	}
	m.h.finish(late, results...)
	for _, w := range m.hooks { // adopt their health, which the model leaves out
		if !m.gone[w.ID] {
			*w = *m.h.webhook(m.account.ID, w.ID)
		}
	}
}

func (m *queueModel) release(t *rapid.T) {
	if len(m.leased) == 0 {
		t.Skip("no lease")
	}
	j := rapid.SampledFrom(m.leased).Draw(t, "job")
	if m.holds(j) {
		d := m.waits[j.DeliveryID]
		d.token, d.due = "", d.next
	}
	m.h.release(j.Lease)
}

func (m *queueModel) wait(t *rapid.T) {
	m.now = m.now.Add(time.Duration(rapid.IntRange(1, 100).Draw(t, "seconds")) * time.Second)
}

func (m *queueModel) toggle(t *rapid.T) {
	w := rapid.SampledFrom(m.hooks).Draw(t, "endpoint")
	if m.gone[w.ID] {
		t.Skip("gone")
	}
	if w.State == webhook.Active {
		w.State = webhook.Disabled
	} else {
		w.Enable()
	}
	m.h.updateWebhook(w)
}

func (m *queueModel) delete(t *rapid.T) {
	w := rapid.SampledFrom(m.hooks).Draw(t, "endpoint")
	if m.gone[w.ID] || rapid.IntRange(0, 5).Draw(t, "seldom") != 0 {
		t.Skip("kept")
	}
	m.gone[w.ID] = true
	m.h.update(func(ctx context.Context, tx control.Tx) error { return tx.DeleteWebhook(ctx, m.account.ID, w.ID) })
}

func (m *queueModel) strand(*rapid.T) {
	for _, w := range m.hooks {
		for more := true; more; {
			m.h.update(func(ctx context.Context, tx control.Tx) (err error) {
				more, err = tx.FailStranded(ctx, w.ID, m.now, 3)
				return err
			})
		}
		for name, d := range m.waits {
			if d.hook == w.ID && !m.active(w.ID) && (d.token == "" || !d.due.After(m.now)) {
				delete(m.waits, name)
				m.done[name] = webhook.Failed
			}
		}
	}
}

// checkDue checks that the endpoints with due deliveries are found.
func (m *queueModel) checkDue(t *rapid.T) {
	want := map[string]sender.Due{}
	for _, d := range m.waits {
		if m.active(d.hook) && !d.due.After(m.now) {
			due := want[d.hook]
			due.New, due.Begun = due.New || d.attempts == 0, due.Begun || d.attempts > 0
			want[d.hook] = due
		}
	}
	own := func(found []sender.Due) map[string]sender.Due {
		due := map[string]sender.Due{}
		for _, d := range found {
			if d.AccountID == m.account.ID {
				due[d.WebhookID] = sender.Due{New: d.New, Begun: d.Begun}
			}
		}
		return due
	}
	all := map[string]sender.Due{}
	for after := ""; ; {
		found, last, err := m.h.AllDue(m.h.Context(), after, 2, m.now)
		if err != nil {
			t.Fatal(err)
		}
		maps.Copy(all, own(found))
		if after = last; after == "" {
			break
		}
	}
	same(t, "due", all, want)
}

// check compares the states of all deliveries and the time of the next.
func (m *queueModel) check(t *rapid.T) {
	var next time.Time
	for _, d := range m.waits {
		if m.active(d.hook) && d.due.After(m.now) && (next.IsZero() || d.due.Before(next)) {
			next = d.due
		}
	}
	if got := m.h.next(m.now); !got.Equal(next) {
		t.Fatalf("the next delivery is due at %v, want %v", got, next)
	}
	want := maps.Clone(m.done)
	for name, d := range m.waits {
		want[name] = webhook.Pending
		if d.attempts > 0 {
			want[name] = webhook.RetryScheduled
		}
	}
	got := map[string]webhook.DeliveryState{}
	for _, d := range m.h.deliveries(m.account.ID, control.DeliveryFilter{}) {
		got[d.ID] = d.State
	}
	same(t, "states", got, want)
}

// clear ends all waiting deliveries before the run with the next account.
func (m *queueModel) clear() {
	for i, w := range m.hooks {
		if !m.gone[w.ID] {
			m.gone[w.ID] = true
			m.h.update(func(ctx context.Context, tx control.Tx) error {
				return tx.DeleteWebhook(ctx, m.account.ID, m.hooks[i].ID)
			})
		}
	}
	m.now = m.now.Add(time.Hour)
	m.strand(m.t)
	if len(m.waits) != 0 {
		m.t.Fatalf("%d deliveries are still waiting", len(m.waits))
	}
	m.check(m.t)
}
