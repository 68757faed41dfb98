package sender_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/webhook"
	"github.com/keygate/keygate/internal/webhook/sender"
	"github.com/keygate/keygate/internal/webhook/sender/sendertest"
)

// pipes is a listener with connections in memory, so that they follow the virtual time of a
// test.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
}

func newPipes() *pipes {
	return &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { close(p.closed); return nil }
func (p *pipes) Addr() net.Addr { return &net.IPAddr{} }

func (p *pipes) dial(ctx context.Context) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case p.conns <- theirs:
		return ours, nil
	case <-p.closed:
		return nil, errors.New("the listener is closed")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// virtual runs f in virtual time (testing/synctest). Every host is a receiver in memory.
func virtual(t *testing.T, handler http.HandlerFunc, f func(t *testing.T, h *harness, connect func(*sender.Sender))) {
	synctest.Test(t, func(t *testing.T) {
		h, l := newHarness(t), newPipes()
		h.backoff, h.timeout, h.tick = usualBackoff, time.Hour, time.Second
		server := &http.Server{Handler: handler}
		go func() { _ = server.Serve(l) }()
		t.Cleanup(func() { _ = server.Close() })
		f(t, h, func(s *sender.Sender) {
			s.DialWith(func(ctx context.Context, _, _ string) (net.Conn, error) { return l.dial(ctx) })
		})
	})
}

// Guarantee: an attempt is at once, then after the waits of the schedule ±20 %,
// counted from the failed attempt's end; the fifth failure is the last
// (contract, 6).
func TestScheduleOfAttempts(t *testing.T) {
	for _, backoff := range [][4]time.Duration{
		usualBackoff,
		{time.Second, time.Second, 3 * time.Second, time.Second},
	} {
		t.Run(backoff[0].String(), func(t *testing.T) { scheduleOfAttempts(t, backoff) })
	}
}

func scheduleOfAttempts(t *testing.T, backoff [4]time.Duration) {
	const takes, tolerance = 2 * time.Second, 100 * time.Millisecond
	handler := func(w http.ResponseWriter, _ *http.Request) {
		<-time.After(takes)
		w.WriteHeader(http.StatusInternalServerError)
	}
	virtual(t, handler, func(t *testing.T, h *harness, connect func(*sender.Sender)) {
		hook, cfg := h.endpoint("http://receiver.test/"), h.config()
		cfg.Backoff = backoff
		s := h.start(cfg, connect)
		<-time.After(time.Minute) // the sender is idle
		made := time.Now()
		h.raise(1)
		s.Wake()
		<-time.After(2 * time.Hour)
		list := h.deliveries(hook)
		if !in(1, webhook.Failed)(list) || len(list[0].Attempts) != 5 || !list[0].NextAttemptAt.IsZero() {
			t.Fatalf("got %+v, want one failed delivery with 5 attempts", list)
		}
		previous, waits := made, append([]time.Duration{0}, backoff[:]...)
		for i, a := range list[0].Attempts {
			waited := a.StartedAt.Sub(previous)
			if waited < waits[i]*8/10-time.Millisecond || waited > waits[i]*12/10+tolerance {
				t.Errorf("attempt %d started after %v, want %v ±20 %%", a.Number, waited, waits[i])
			}
			if a.Number != i+1 || a.Status != 500 || a.Error != "" || a.Duration < takes || a.Duration > takes+tolerance {
				t.Errorf("got the attempt %+v, want number %d with status 500 after %v", a, i+1, takes)
			}
			previous = a.StartedAt.Add(a.Duration)
		}
	})
}

// Guarantee: the whole response must arrive within 30 s. After that the attempt of a receiver
// that sends nothing, or one byte at a time, fails and its connection is closed.
func TestSlowResponseTimesOut(t *testing.T) {
	for name, handler := range map[string]http.HandlerFunc{
		"hanging": func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // otherwise the server does not notice the closed connection
			<-r.Context().Done()
		},
		"dripping": func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			for r.Context().Err() == nil {
				if _, err := io.WriteString(w, "."); err != nil {
					return
				}
				_ = http.NewResponseController(w).Flush()
				<-time.After(time.Second)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			var ended chan struct{} // made within the bubble
			virtual(t, func(w http.ResponseWriter, r *http.Request) {
				handler(w, r)
				ended <- struct{}{}
			}, func(t *testing.T, h *harness, connect func(*sender.Sender)) {
				ended = make(chan struct{}, 8)
				hook := h.endpoint("http://receiver.test/")
				h.raise(1)
				h.start(h.config(), connect)
				list := h.await(hook, "the attempt failed", func(list []webhook.Delivery) bool { return len(list[0].Attempts) > 0 })
				a := list[0].Attempts[0]
				if a.Duration < 30*time.Second || a.Duration > 31*time.Second || a.Error != "no complete response within 30 s" {
					t.Errorf("got the attempt %+v, want a timeout after 30 s", a)
				}
				<-ended
				if name == "dripping" && (a.Status != 200 || len(a.Response) < 29) {
					t.Errorf("got the attempt %+v, want the status 200 and the first 29 bytes", a)
				}
			})
		})
	}
}

// Guarantee: Retry-After lengthens a wait to at most twice the schedule's.
func TestRetryAfterLengthensTheWait(t *testing.T) {
	for asked, want := range map[string]time.Duration{
		"15": 15 * time.Second, "3600": 20 * time.Second, "-5": 10 * time.Second, "99999999999999999999": 20 * time.Second, "soon": 10 * time.Second,
		"date": 17 * time.Second,
	} {
		handler := func(w http.ResponseWriter, _ *http.Request) {
			if asked == "date" {
				w.Header().Set("Retry-After", time.Now().Add(17*time.Second).UTC().Format(http.TimeFormat))
			} else {
				w.Header().Set("Retry-After", asked)
			}
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		virtual(t, handler, func(t *testing.T, h *harness, connect func(*sender.Sender)) {
			hook := h.endpoint("http://receiver.test/")
			cfg := h.config()
			cfg.Random = func() float64 { return 0.5 }
			h.raise(1)
			h.start(cfg, connect)
			list := h.await(hook, "the second attempt", func(list []webhook.Delivery) bool { return len(list[0].Attempts) == 2 })
			first, second := list[0].Attempts[0], list[0].Attempts[1]
			if got := second.StartedAt.Sub(first.StartedAt.Add(first.Duration)).Round(time.Second); got != want {
				t.Errorf("after Retry-After: %s: got a wait of %v, want %v", asked, got, want)
			}
		})
	}
}

// Guarantee: after 10 failures in a row the breaker postpones new deliveries without an
// attempt, while deliveries with an attempt keep their schedule. When the endpoint works
// again, everything is delivered.
func TestBreakerPostponesNewDeliveries(t *testing.T) {
	var back time.Time
	virtual(t, func(w http.ResponseWriter, r *http.Request) {
		if time.Now().Before(back) {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}, func(t *testing.T, h *harness, connect func(*sender.Sender)) {
		const events = 200
		start := time.Now()
		back = start.Add(5 * time.Minute)
		hook := h.endpoint("http://receiver.test/")
		s := h.start(h.config(), connect)
		h.raise(events)
		s.Wake()
		<-time.After(4 * time.Minute)
		started := 0
		for _, d := range h.deliveries(hook) {
			if len(d.Attempts) == 0 {
				continue
			}
			started++
			if len(d.Attempts) < 2 {
				continue
			}
			first, second := d.Attempts[0], d.Attempts[1]
			if waited := second.StartedAt.Sub(first.StartedAt.Add(first.Duration)); waited > 12*time.Second+time.Second {
				t.Errorf("the second attempt of a delivery started after %v, want at most 13 s", waited)
			}
		}
		// Nine attempts may have ended, and others started in their slots, before the tenth
		// failure opened the breaker. One more follows each of two pauses.
		if least, most := sender.BreakAfter, sender.MinWindow+sender.BreakAfter-1+2; started < least || started > most {
			t.Errorf("%d deliveries were started while the endpoint was down, want %d to %d", started, least, most)
		}
		if got := s.Stats(); got.Pauses < 3 || got.InFlight != 0 {
			t.Errorf("got %+v, want at least 3 pauses and nothing in flight", got)
		}
		w := h.webhook(hook)
		if w.PausedAt(time.Now()).IsZero() {
			t.Errorf("got an endpoint whose latest pause ended at %v, want it paused at %v", w.PausedUntil, time.Now())
		}
		for _, d := range h.deliveries(hook) {
			if d.State == webhook.Pending && d.NextAttemptAt.Before(w.PausedUntil) {
				t.Errorf("a postponed delivery has its next attempt at %v, want %v", d.NextAttemptAt, w.PausedUntil)
			}
		}
		<-time.After(45 * time.Minute)
		if w := h.webhook(hook); w.PausedUntil.IsZero() || w.PausedUntil.After(time.Now()) {
			t.Errorf("got an endpoint that is paused until %v, want a pause that has ended", w.PausedUntil)
		}
		if list := h.deliveries(hook); !in(events, webhook.Delivered)(list) {
			t.Errorf("not everything was delivered: %+v", s.Stats())
		}
	})
}

// Guarantee: a delivery that was requested by hand is sent although the breaker is open, and
// its success closes the breaker.
func TestManualDeliveryPassesTheBreaker(t *testing.T) {
	var up atomic.Bool
	virtual(t, func(w http.ResponseWriter, _ *http.Request) {
		if !up.Load() {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}, func(t *testing.T, h *harness, connect func(*sender.Sender)) {
		hook := h.endpoint("http://receiver.test/")
		s := h.start(h.config(), connect)
		h.raise(50)
		s.Wake()
		<-time.After(100 * time.Second) // in the second pause of the breaker
		up.Store(true)
		start := time.Now()
		e := h.redeliver(hook)
		s.Wake()
		h.until("the manual delivery is delivered", func() bool {
			return h.delivery(e).State == webhook.Delivered
		}, func() any { return h.delivery(e) })
		h.await(hook, "the breaker closes", func(list []webhook.Delivery) bool {
			for i := range list {
				if len(list[i].Attempts) == 0 {
					return false
				}
			}
			return true
		})
		if took := time.Since(start); took > 6*time.Second {
			t.Errorf("closing the breaker took %v, want at most 6 s", took)
		}
	})
}

// redeliver creates a manual delivery to the endpoint and returns its identifier.
func (h *harness) redeliver(hook string) (deliveryID string) {
	h.t.Helper()
	list := h.deliveries(hook)
	d := list[0]
	d.ID, d.State, d.Trigger, d.CreatedAt, d.NextAttemptAt = id.New(id.Delivery), webhook.Pending, webhook.ByHand, time.Now(), time.Now()
	h.update(func(tx control.Tx) error { return tx.InsertDelivery(h.t.Context(), &d) })
	return d.ID
}

func (h *harness) delivery(deliveryID string) (d *webhook.Delivery) {
	h.t.Helper()
	err := h.db.View(context.Background(), func(tx control.ReadTx) (err error) {
		d, err = tx.Delivery(context.Background(), h.owner, deliveryID)
		return err
	})
	if err != nil {
		h.t.Fatal(err)
	}
	return d
}

// Guarantee: a 410 disables the endpoint at once; 5 days in which every attempt failed do too.
func TestFailingEndpointIsDisabled(t *testing.T) {
	for name, tc := range map[string]struct {
		status int
		after  []webhook.State // the first failed delivery, and the next one 5 days later
	}{
		"gone":    {410, []webhook.State{webhook.Disabled}},
		"failing": {500, []webhook.State{webhook.Active, webhook.Disabled}},
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(tc.status) }, func(t *testing.T, h *harness, connect func(*sender.Sender)) {
				hook := h.endpoint("http://receiver.test/")
				for i, want := range tc.after {
					h.raise(1)
					s := h.start(h.config(), connect)
					<-time.After(time.Minute)
					if err := s.Stop(t.Context()); err != nil {
						t.Fatal(err)
					}
					if w := h.webhook(hook); w.State != want {
						t.Errorf("after failure %d: got the state %s, want %s", i+1, w.State, want)
					} else if want == webhook.Disabled && w.DisabledReason == "" {
						t.Errorf("after failure %d: the disabled endpoint has no reason", i+1)
					} else if want == webhook.Active && w.DisabledReason != "" {
						t.Errorf("after failure %d: the active endpoint has the reason %q", i+1, w.DisabledReason)
					}
					<-time.After(5 * 24 * time.Hour)
				}
			})
		})
	}
}

func (h *harness) webhook(webhookID string) (w *webhook.Webhook) {
	h.t.Helper()
	h.update(func(tx control.Tx) (err error) {
		w, err = tx.Webhook(context.Background(), h.owner, webhookID)
		return err
	})
	return w
}

// Guarantee: while one endpoint hangs on every delivery, another gets its deliveries at once,
// and the hanging one has no more in flight than its limit.
func TestHangingEndpointDelaysNoOther(t *testing.T) {
	const events = 100
	var (
		mu            sync.Mutex
		hanging, most int
	)
	count := func(by int) {
		mu.Lock()
		defer mu.Unlock()
		hanging += by
		most = max(most, hanging)
	}
	virtual(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if r.Host != "hanging.test" {
			return
		}
		count(1)
		<-r.Context().Done()
		count(-1)
	}, func(t *testing.T, h *harness, connect func(*sender.Sender)) {
		slow, quick := h.endpoint("http://hanging.test/"), h.endpoint("http://quick.test/")
		s := h.start(h.config(), connect)
		start := time.Now()
		for range 3 {
			h.raise(events)
			s.Wake()
			<-time.After(15 * time.Second)
		}
		list := h.deliveries(quick)
		if !in(3*events, webhook.Delivered)(list) {
			t.Fatalf("the quick endpoint did not get all deliveries: %+v", s.Stats())
		}
		for _, d := range list {
			if late := d.Attempts[0].StartedAt.Sub(d.CreatedAt); late > time.Second {
				t.Errorf("a delivery to the quick endpoint started after %v, want at most 1 s", late)
			}
		}
		<-time.After(10 * time.Minute)
		mu.Lock()
		if most < 1 || most > sender.MinWindow {
			t.Errorf("%d deliveries to the hanging endpoint were in flight at the same time, want 1 to %d", most, sender.MinWindow)
		}
		mu.Unlock()
		for _, d := range h.deliveries(slow) {
			for _, a := range d.Attempts {
				if a.Duration > 31*time.Second || a.StartedAt.Before(start) {
					t.Errorf("got the attempt %+v, want one of at most 31 s", a)
				}
			}
		}
	})
}

// Guarantee: Stop waits a few seconds for deliveries in flight, and hands deliveries that hang back
// without an attempt. Another sender sends these at once.
func TestStopHandsBack(t *testing.T) {
	var second atomic.Bool
	virtual(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if !second.Load() {
			<-r.Context().Done()
		}
	}, func(t *testing.T, h *harness, connect func(*sender.Sender)) {
		hook := h.endpoint("http://receiver.test/")
		h.raise(100)
		s := h.start(h.config(), connect)
		<-time.After(time.Second)
		if got := s.Stats(); got.InFlight != sender.MinWindow {
			t.Fatalf("got %+v, want %d in flight", got, sender.MinWindow)
		}
		start := time.Now()
		if err := s.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took > 6*time.Second {
			t.Errorf("Stop took %v, want at most 6 s", took)
		}
		list := h.deliveries(hook)
		if !in(100, webhook.Pending)(list) {
			t.Errorf("got %+v, want 100 pending deliveries", list)
		}
		second.Store(true)
		again := time.Now()
		h.start(h.config(), connect)
		list = h.await(hook, "the next sender delivers them", in(100, webhook.Delivered))
		for _, d := range list {
			if len(d.Attempts) != 1 || d.Attempts[0].Number != 1 || d.Attempts[0].StartedAt.Sub(again) > time.Second {
				t.Errorf("got %+v, want one attempt within 1 s", d)
			}
		}
	})
}

// Guarantee: deliveries of a sender that died are sent again when its leases end, and at once
// by a sender that uses the queue exclusively.
func TestDeliveriesOfADeadSenderAreSentAgain(t *testing.T) {
	for name, exclusive := range map[string]bool{"lease ends": false, "exclusive": true} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(http.ResponseWriter, *http.Request) {}, func(t *testing.T, h *harness, connect func(*sender.Sender)) {
				hook := h.endpoint("http://receiver.test/")
				h.tick = 15 * time.Second
				h.raise(20)
				now := time.Now()
				taken, err := sendertest.ClaimAll(t.Context(), h.db, sender.Claim{Now: now, Token: sender.TokenOf(h.config().Name, "dead"), Until: now.Add(sender.LeaseTime)}, 8)
				if err != nil || len(taken) != 8 {
					t.Fatal(len(taken), err)
				}
				cfg := h.config()
				want := sender.LeaseTime
				if exclusive {
					cfg.Exclusive, want = h.db, 0
				}
				h.start(cfg, connect)
				list := h.await(hook, "all are delivered", in(20, webhook.Delivered))
				var last time.Duration
				for _, d := range list {
					last = max(last, d.Attempts[0].StartedAt.Sub(now))
				}
				if last < want || last > want+time.Second {
					t.Errorf("the last delivery was sent after %v, want %v", last, want)
				}
			})
		})
	}
}

// counted is a queue that counts claims.
type counted struct {
	sender.Queue
	claims *atomic.Int64
}

func (c counted) ClaimDeliveries(ctx context.Context, claim sender.Claim) ([]sender.Job, error) {
	c.claims.Add(1)
	return c.Queue.ClaimDeliveries(ctx, claim)
}

// Guarantee: a sender makes few claims for a hanging endpoint with many waiting deliveries,
// which it must not start.
func TestHangingEndpointCausesFewClaims(t *testing.T) {
	virtual(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	}, func(t *testing.T, h *harness, connect func(*sender.Sender)) {
		h.endpoint("http://hanging.test/")
		cfg := h.config()
		var claims atomic.Int64
		cfg.Queue = counted{h.db, &claims}
		h.raise(500)
		h.start(cfg, connect)
		const minutes = 10
		<-time.After(minutes * time.Minute)
		if n := claims.Load(); n > minutes*12*3 { // idle senders make one in 5 s
			t.Errorf("got %d claims in %d minutes, want at most %d", n, minutes, minutes*12*3)
		}
	})
}

// Guarantee: while many endpoints of several accounts hang, an endpoint of another account gets its
// deliveries at once, from the first one on, and so does an endpoint of the same account whose last
// attempt succeeded. No account has more than its share of the slots, and the hanging endpoints get
// all their attempts.
func TestManyHangingEndpointsDelayNoOther(t *testing.T) {
	const accounts, hanging, events = 3, 25, 20
	virtual(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if strings.HasPrefix(r.Host, "hanging") {
			<-r.Context().Done()
		}
	}, func(t *testing.T, h *harness, connect func(*sender.Sender)) {
		alone := h.owner
		s := h.start(h.config(), connect)
		var owners, hooks []string
		for i := range accounts {
			owners = append(owners, h.account(fmt.Sprint("hanging ", i)))
		}
		same := h.endpoint("http://same.test/")
		h.raise(1)
		s.Wake()
		<-time.After(time.Second)
		for i, owner := range owners {
			var urls []string
			for j := range hanging {
				urls = append(urls, fmt.Sprintf("http://hanging%d-%d.test/", i, j))
			}
			h.owner = owner
			for _, hook := range h.endpoints(urls...) {
				hooks = append(hooks, hook)
			}
			h.raise(4)
		}
		s.Wake()
		<-time.After(time.Second)
		if n := s.Stats().InFlight; n < sender.UnprovenSlots/2 || n > sender.MaxInFlight {
			t.Errorf("got %d in flight, want %d to %d", n, sender.UnprovenSlots/2, sender.MaxInFlight)
		}
		h.raise(events) // of the account with same
		h.owner = alone
		other := h.endpoint("http://other.test/")
		h.raise(events)
		s.Wake()
		<-time.After(time.Second)
		if list := h.deliveries(other); !in(events, webhook.Delivered)(list) {
			t.Errorf("the endpoint of another account did not get all deliveries: %+v", s.Stats())
		}
		h.owner = owners[accounts-1]
		if list := h.deliveries(same); !in(1+4+events, webhook.Delivered)(list) {
			t.Errorf("the endpoint of the same account did not get all deliveries: %+v", s.Stats())
		}
		<-time.After(5 * time.Minute)
		for i, hook := range hooks {
			h.owner = owners[i/hanging]
			attempts := 0
			for _, d := range h.deliveries(hook) {
				attempts += len(d.Attempts)
			}
			if attempts < sender.BreakAfterTimeouts {
				t.Errorf("a hanging endpoint got %d attempts, want at least %d", attempts, sender.BreakAfterTimeouts)
			}
		}
	})
}

// account adds an account, to which the endpoints and events of the following calls belong.
func (h *harness) account(name string) (accountID string) {
	h.t.Helper()
	h.owner = id.New(id.Account)
	h.update(func(tx control.Tx) error {
		return tx.InsertAccount(h.t.Context(), &account.Account{ID: h.owner, Name: name, Tier: account.Platform, CreatedAt: time.Now()})
	})
	return h.owner
}

// Guarantee: Stop returns soon after its context has ended even if the store does not respond,
// with an error that wraps the context's. It can be called again, and without Start.
func TestStopIsBounded(t *testing.T) {
	virtual(t, func(http.ResponseWriter, *http.Request) {}, func(t *testing.T, h *harness, connect func(*sender.Sender)) {
		h.endpoint("http://receiver.test/")
		h.raise(1)
		cfg := h.config()
		cfg.Queue = stuckStore{h.db}
		s, err := sender.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		connect(s)
		if err := s.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Second) // the delivery was sent, and the store records it
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		err = s.Stop(ctx)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want an error that wraps the context's", err)
		}
		if took := time.Since(start); took < 3*time.Second || took > 4*time.Second {
			t.Errorf("Stop took %v, want 2 s more than its context", took)
		}
		if again := s.Stop(t.Context()); !errors.Is(again, err) {
			t.Errorf("the second Stop returned %v, want %v", again, err)
		}
		unstarted, err := sender.New(h.config())
		if err != nil {
			t.Fatal(err)
		}
		if err := unstarted.Stop(t.Context()); err != nil {
			t.Errorf("Stop without Start returned %v, want nil", err)
		}
	})
}

// stuckStore is a queue that records no results: it waits until the context ends.
type stuckStore struct{ sender.Queue }

func (stuckStore) FinishDeliveries(ctx context.Context, _ []sender.Result) (int, error) {
	<-ctx.Done()
	return 0, ctx.Err()
}
