package postgres

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/cluster/lease"
	"github.com/keygate/keygate/internal/event"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/store/rows"
	"github.com/keygate/keygate/internal/webhook"
	"github.com/keygate/keygate/internal/webhook/sender"
	"github.com/keygate/keygate/internal/webhook/sender/sendertest"
)

// nodes is a database of its own that several stores have open, with an endpoint. Its queue goes by
// the server's clock.
type nodes struct {
	testing.TB
	url     string
	stores  []*DB
	account string
	hook    webhook.Webhook
}

func newNodes(t testing.TB, n int) *nodes {
	t.Helper()
	c := &nodes{TB: t, url: migrated(t), account: id.New(id.Account)}
	for range n {
		c.stores = append(c.stores, openWith(t, Config{URL: c.url}))
	}
	now := time.Now().Truncate(time.Microsecond)
	c.hook = webhook.Webhook{ID: id.New(id.Webhook), AccountID: c.account, URL: "https://receiver.example/", Events: []event.Type{event.KeyCreated},
		State: webhook.Active, Secret: []byte("sealed"), SecretSince: now, CreatedAt: now, Version: 1}
	c.must(c.stores[0].mutate(t.Context(), func(tx *tx) error {
		err := tx.InsertAccount(t.Context(), &account.Account{ID: c.account, Name: "a", Tier: account.Scale, CreatedAt: now})
		if err != nil {
			return err
		}
		return tx.InsertWebhook(t.Context(), &c.hook)
	}))
	return c
}

func (c *nodes) must(err error) {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
}

// newEvents returns events for the endpoint.
func (c *nodes) newEvents(n int) (events []event.Event) {
	c.Helper()
	for range n {
		e, err := event.New(c.account, event.KeyCreated, time.Now(), event.Key{KeyID: id.New(id.Key)})
		c.must(err)
		events = append(events, e)
	}
	return events
}

// fanOut writes the deliveries of all events.
func (c *nodes) fanOut() {
	c.Helper()
	for {
		accountID, _, err := c.stores[0].FanOut(c.Context(), "", time.Now(), 500)
		c.must(err)
		if accountID == "" {
			return
		}
	}
}

// numbers returns the numbers of all deliveries, ascending.
func (c *nodes) numbers() (list []int64) {
	c.Helper()
	c.must(c.stores[0].view(c.Context(), c.stores[0].readers, func(t *readTx) error {
		return t.Query(c.Context(), "read", `SELECT n FROM deliveries ORDER BY n`, nil, func(r *rows.Row) error {
			var n int64
			err := r.Scan(&n)
			list = append(list, n)
			return err
		})
	}))
	return list
}

// Guarantee: a sender that reads what is newer than its mark misses no delivery, although
// transactions of several nodes add deliveries at the same time and a transaction that began first
// may commit last: the second transaction gets its numbers only when the first has ended. The
// numbers are dense.
func TestNumbersOfDeliveriesFollowCommits(t *testing.T) {
	c := newNodes(t, 2)
	first, second := c.stores[0], c.stores[1]
	_, mark, _, err := first.NewlyDue(t.Context(), sender.Mark{}, time.Now())
	c.must(err)
	look := func() (found int) {
		list, next, _, err := second.NewlyDue(t.Context(), mark, time.Now())
		c.must(err)
		mark = next
		return len(list)
	}
	c.must(first.write(t.Context(), func(one *tx) error {
		c.must(one.AppendEvent(t.Context(), &c.newEvents(1)[0]))
		done := make(chan error, 1)
		go func() { done <- second.AppendEvents(t.Context(), c.newEvents(1)) }()
		waitForLock(t, one)
		if found := look(); found != 0 {
			t.Errorf("a look found %d endpoints before a commit, want 0", found)
		}
		select {
		case err := <-done:
			t.Errorf("the second transaction ended before the first, with %v", err)
		default:
		}
		t.Cleanup(func() { c.must(<-done) })
		return nil
	}))
	seen := 0
	for seen == 0 || len(c.numbers()) < 2 {
		seen += look()
	}
	look()
	if mark.Created != 2 || !slices.Equal(c.numbers(), []int64{1, 2}) {
		t.Errorf("the mark is %d, and the numbers are %d; want 2, and 1 and 2", mark.Created, c.numbers())
	}
	// A transaction that is rolled back leaves no gap.
	err = first.write(t.Context(), func(one *tx) error {
		c.must(one.AppendEvent(t.Context(), &c.newEvents(1)[0]))
		return context.Canceled
	})
	if err == nil {
		t.Error("the transaction was committed")
	}
	c.must(second.AppendEvents(t.Context(), c.newEvents(1)))
	if got := c.numbers(); !slices.Equal(got, []int64{1, 2, 3}) {
		t.Errorf("the numbers are %d, want 1 to 3", got)
	}
}

// waitForLock waits until a transaction of the database waits for a lock.
func waitForLock(t testing.TB, tx *tx) {
	t.Helper()
	for waiting := 0; waiting == 0; {
		// Otherwise a transaction sees the activity of its first look.
		if _, err := tx.Exec(t.Context(), "look anew", `SELECT pg_stat_clear_snapshot()`); err != nil {
			t.Fatal(err)
		}
		err := tx.QueryRow(t.Context(), "locks", `SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE NOT l.granted AND a.datname = current_database()`,
			nil, func(r *rows.Row) error { return r.Scan(&waiting) })
		if err != nil {
			t.Fatal(err)
		}
	}
}

// waitForEnd waits until a process of the server has ended, and has released its locks.
func waitForEnd(t testing.TB, db *DB, process uint32) {
	t.Helper()
	for running := true; running; {
		err := db.search(t.Context(), func(r *readTx) error {
			return r.QueryRow(t.Context(), "processes", `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1::bigint)`, []any{int64(process)},
				func(row *rows.Row) error { return row.Scan(&running) })
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// ledger notes who holds which delivery.
type ledger struct {
	mu       sync.Mutex
	holder   map[string]string // of each delivery that is leased
	dead     map[string]bool   // the holders that do not live any more
	finished map[string]int
	died     chan struct{} // closed when one has died
	all      int
	over     chan struct{} // closed when all deliveries are finished
	fell     int           // deliveries that the dead holder had
	moved    int           // deliveries that passed from it to another
	problems []string
}

func (l *ledger) lease(jobs []sender.Job) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.note(jobs)
}

func (l *ledger) note(jobs []sender.Job) {
	for _, j := range jobs {
		name, _, _ := strings.Cut(j.Token, "/")
		switch before := l.holder[j.DeliveryID]; {
		case before == "":
		case l.dead[before]:
			l.moved++
		default:
			l.problems = append(l.problems, fmt.Sprintf("%s leased a delivery that %s holds", name, before))
		}
		l.holder[j.DeliveryID] = name
	}
}

func (l *ledger) end(jobs []sender.Job) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, j := range jobs {
		delete(l.holder, j.DeliveryID)
		l.finished[j.DeliveryID]++
	}
	if len(jobs) > 0 && len(l.finished) == l.all {
		close(l.over)
	}
}

func (l *ledger) done() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.finished)
}

// claimer is one node that claims and finishes deliveries until all are done.
type claimer struct {
	*nodes
	*ledger
	name string
	db   *DB
}

// claim makes a claim by the node's clock. No two nodes agree about the time.
func (c *claimer) claim(round int, lease time.Duration) (jobs []sender.Job, now time.Time, err error) {
	now = time.Now().Add(time.Duration(len(c.name)) * time.Hour)
	claim := sender.Claim{Now: now, Token: sender.TokenOf(c.name, fmt.Sprint(round)), Until: now.Add(lease)}
	jobs, err = sendertest.ClaimAll(c.Context(), c.db, claim, 7)
	return jobs, now, err
}

// die makes a claim with a short lease, and nothing after it.
func (c *claimer) die(round int) {
	c.mu.Lock() // what follows is noted after it
	defer c.mu.Unlock()
	jobs, _, err := c.claim(round, time.Second)
	if err != nil {
		c.Error(err)
	}
	c.note(jobs)
	c.dead[c.name] = true
	c.fell = len(jobs)
	close(c.died)
}

// run claims until all deliveries are done, or dies after some rounds.
func (c *claimer) run(dies bool) {
	for round := 0; c.done() < c.all; round++ {
		if dies && round == 2 {
			c.die(round)
			return
		}
		if !dies && round == 2 {
			<-c.died // not before the others are done
		}
		jobs, now, err := c.claim(round, time.Minute)
		if err != nil {
			c.Error(err)
			return
		}
		c.lease(jobs)
		if len(jobs) == 0 { // wait for the end of a lease
			next, err := c.db.NextDelivery(c.Context(), now)
			if err != nil {
				c.Error(err)
				return
			}
			if !next.IsZero() {
				select {
				case <-time.After(next.Sub(now)):
				case <-c.over:
				}
			}
			continue
		}
		results := make([]sender.Result, len(jobs))
		for i, j := range jobs {
			results[i] = sender.Result{Lease: j.Lease, State: webhook.Delivered, Attempt: webhook.Attempt{Number: j.Attempt, StartedAt: now, Status: 200}}
		}
		c.end(jobs)
		if late, err := c.db.FinishDeliveries(c.Context(), results); err != nil || late != 0 {
			c.Errorf("%s: %d results were late, %v", c.name, late, err)
		}
	}
}

// Guarantee: of three nodes whose clocks are hours apart, no two lease a delivery at the same time,
// and when one dies, the others send the deliveries that it held as soon as its leases end. Nothing
// is lost, and nothing is delivered twice.
func TestThreeClaimersAndAKill(t *testing.T) {
	const all = 400
	c := newNodes(t, 3)
	c.must(c.stores[0].AppendEvents(t.Context(), c.newEvents(all)))
	c.fanOut()
	l := &ledger{holder: map[string]string{}, dead: map[string]bool{}, finished: map[string]int{}, died: make(chan struct{}), all: all, over: make(chan struct{})}
	var running sync.WaitGroup
	for i, name := range []string{"a", "second", "the third"} {
		one := &claimer{nodes: c, ledger: l, name: name, db: c.stores[i]}
		running.Go(func() { one.run(name == "second") })
	}
	running.Wait()
	for _, p := range l.problems {
		t.Error(p)
	}
	if len(l.finished) != all || l.fell == 0 || l.moved != l.fell {
		t.Errorf("%d deliveries are done, and %d of the %d that the dead node held went on elsewhere; want %d and all",
			len(l.finished), l.moved, l.fell, all)
	}
	for delivery, n := range l.finished {
		if n != 1 {
			t.Errorf("%s was delivered %d times", delivery, n)
		}
	}
	b, err := c.stores[2].DeliveryBacklog(t.Context(), time.Now())
	c.must(err)
	if b.Waiting != 0 {
		t.Errorf("%d deliveries are waiting, want 0", b.Waiting)
	}
}

// Guarantee: a claim does not wait for another claim that is under way, and gets none of its
// deliveries. If the node of the other claim dies before the commit, these are due as soon as the
// server has noticed.
func TestClaimBesideAnUnfinishedOne(t *testing.T) {
	c := newNodes(t, 2)
	c.must(c.stores[0].AppendEvents(t.Context(), c.newEvents(5)))
	take := func(limit int) int {
		now := time.Now()
		jobs, err := c.stores[1].ClaimDeliveries(t.Context(), sender.Claim{Now: now, Until: now.Add(time.Minute), Token: id.New("t/"),
			Wants: []sender.Want{{WebhookID: c.hook.ID, Limit: limit}}})
		c.must(err)
		return len(jobs)
	}
	var process uint32
	died := c.stores[0].write(t.Context(), func(one *tx) error {
		process = one.c.Conn.Conn().PgConn().PID()
		now := time.Now()
		jobs, err := one.Claim(t.Context(), &sender.Claim{Now: now, Until: now.Add(time.Minute), Token: "t", Wants: []sender.Want{{WebhookID: c.hook.ID, Limit: 3}}})
		c.must(err)
		if len(jobs) != 3 {
			t.Errorf("the first claim got %d deliveries, want 3", len(jobs))
		}
		if got := take(10); got != 2 {
			t.Errorf("the second claim got %d deliveries, want the 2 that the first has not", got)
		}
		_, err = one.Exec(t.Context(), "die", `SELECT pg_terminate_backend(pg_backend_pid())`)
		return err
	})
	if died == nil {
		t.Error("the first claim was committed")
	}
	waitForEnd(t, c.stores[1], process)
	if got := take(10); got != 3 {
		t.Errorf("after the end of the first node, a claim got %d deliveries, want 3", got)
	}
}

// Guarantee: the deliveries that a node held under a lease are released, once, when the lease has ended, and
// not while it runs. Deliveries of earlier versions and of other leases stay.
func TestReleaseOfEndedLeases(t *testing.T) {
	c := newNodes(t, 2)
	c.must(c.stores[0].AppendEvents(t.Context(), c.newEvents(6)))
	row := lease.Row{Boot: lease.Boot{1, 2, 3}, Epoch: 7}
	c.must(c.stores[0].write(t.Context(), func(one *tx) error {
		_, err := one.Exec(t.Context(), "join", `INSERT INTO nodes (id, name, boot, epoch, granted, ttl, number, mark, state, role, version, limits, started_at, renewed)
			VALUES ('node_1', 'a', $1, $2, 1, 1, 0, '\x0000000000000000', 'live', 'all', '', '', 0, now())`, row.Boot[:], row.Epoch)
		return err
	}))
	ended := row
	ended.Epoch = 6
	held := map[string][]sender.Job{}
	for _, name := range []string{row.Claimant(), ended.Claimant(), ""} {
		now := time.Now()
		jobs, err := c.stores[0].ClaimDeliveries(t.Context(), sender.Claim{Now: now, Until: now.Add(time.Minute), Token: sender.TokenOf(name, "1"),
			Wants: []sender.Want{{WebhookID: c.hook.ID, Limit: 2}}})
		c.must(err)
		held[name] = jobs
	}
	for _, want := range []int{2, 0} {
		if n, err := c.stores[1].ReleaseEnded(t.Context(), 100); n != want || err != nil {
			t.Errorf("released %d, %v; want %d", n, err, want)
		}
	}
	c.must(c.stores[0].write(t.Context(), func(one *tx) error {
		_, err := one.Exec(t.Context(), "end", `UPDATE nodes SET epoch = epoch + 1, state = 'expired'`)
		return err
	}))
	for _, want := range []int{1, 1, 0} {
		if n, err := c.stores[1].ReleaseEnded(t.Context(), 1); n != want || err != nil {
			t.Errorf("at most one at a time: released %d, %v; want %d", n, err, want)
		}
	}
	late := []sender.Result{{Lease: held[row.Claimant()][0].Lease, State: webhook.Delivered, Attempt: webhook.Attempt{Number: 1, StartedAt: time.Now(), Status: 200}}}
	if n, err := c.stores[0].FinishDeliveries(t.Context(), late); n != 1 || err != nil {
		t.Errorf("%d results of an ended lease were late, %v; want 1", n, err)
	}
}
