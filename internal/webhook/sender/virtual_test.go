package sender_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/webhook"
	"github.com/keygate/keygate/internal/webhook/sender"
)

// pipes is a listener whose connections stay in memory, so that they take part
// in the time of a test.
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
		return nil, errors.New("nobody listens")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// virtual runs f in a bubble of time, with a receiver in memory at every host.
func virtual(t *testing.T, handler http.HandlerFunc, f func(t *testing.T, b *bed, connect func(*sender.Sender))) {
	synctest.Test(t, func(t *testing.T) {
		b, l := newBed(t), newPipes()
		b.backoff, b.patience, b.tick = usualBackoff, time.Hour, time.Second
		server := &http.Server{Handler: handler}
		go func() { _ = server.Serve(l) }()
		t.Cleanup(func() { _ = server.Close() })
		f(t, b, func(s *sender.Sender) {
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
	const takes, late = 2 * time.Second, 100 * time.Millisecond
	handler := func(w http.ResponseWriter, _ *http.Request) {
		<-time.After(takes)
		w.WriteHeader(http.StatusInternalServerError)
	}
	virtual(t, handler, func(t *testing.T, b *bed, connect func(*sender.Sender)) {
		hook, cfg := b.endpoint("http://receiver.test/"), b.config()
		cfg.Backoff = backoff
		s := b.start(cfg, connect)
		<-time.After(time.Minute) // nothing to do until something is
		made := time.Now()
		b.raise(1)
		s.Wake()
		<-time.After(2 * time.Hour)
		list := b.deliveries(hook)
		if !in(1, webhook.Failed)(list) || len(list[0].Attempts) != 5 || !list[0].NextAttemptAt.IsZero() {
			t.Fatalf("%+v", list)
		}
		previous, waits := made, append([]time.Duration{0}, backoff[:]...)
		for i, a := range list[0].Attempts {
			waited := a.StartedAt.Sub(previous)
			if waited < waits[i]*8/10-time.Millisecond || waited > waits[i]*12/10+late {
				t.Errorf("attempt %d came after %v, want %v", a.Number, waited, waits[i])
			}
			if a.Number != i+1 || a.Status != 500 || a.Error != "" || a.Duration < takes || a.Duration > takes+late {
				t.Errorf("attempt %+v", a)
			}
			previous = a.StartedAt.Add(a.Duration)
		}
	})
}

// Guarantee: 30 s are for the whole answer: a receiver that says nothing, or one
// byte after the other, has failed by then, and its connection is closed.
func TestSlowReceivers(t *testing.T) {
	for name, handler := range map[string]http.HandlerFunc{
		"hanging": func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // else the server does not see the end
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
			var ended chan struct{} // of the bubble
			virtual(t, func(w http.ResponseWriter, r *http.Request) {
				handler(w, r)
				ended <- struct{}{}
			}, func(t *testing.T, b *bed, connect func(*sender.Sender)) {
				ended = make(chan struct{}, 8)
				hook := b.endpoint("http://receiver.test/")
				b.raise(1)
				b.start(b.config(), connect)
				list := b.await(hook, "the attempt failed", func(list []webhook.Delivery) bool { return len(list[0].Attempts) > 0 })
				a := list[0].Attempts[0]
				if a.Duration < 30*time.Second || a.Duration > 31*time.Second || a.Error != "no whole answer came within 30 s" {
					t.Errorf("attempt %+v", a)
				}
				<-ended
				if name == "dripping" && (a.Status != 200 || len(a.Response) < 29) {
					t.Errorf("attempt %+v", a)
				}
			})
		})
	}
}

// Guarantee: Retry-After makes a wait longer, but at most twice the schedule's
// own.
func TestRetryAfter(t *testing.T) {
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
		virtual(t, handler, func(t *testing.T, b *bed, connect func(*sender.Sender)) {
			hook := b.endpoint("http://receiver.test/")
			cfg := b.config()
			cfg.Random = func() float64 { return 0.5 }
			b.raise(1)
			b.start(cfg, connect)
			list := b.await(hook, "the second attempt", func(list []webhook.Delivery) bool { return len(list[0].Attempts) == 2 })
			first, second := list[0].Attempts[0], list[0].Attempts[1]
			if got := second.StartedAt.Sub(first.StartedAt.Add(first.Duration)).Round(time.Second); got != want {
				t.Errorf("after Retry-After: %s the wait was %v, want %v", asked, got, want)
			}
		})
	}
}

// Guarantee: after 10 failures in a row the breaker postpones what was not begun,
// without an attempt, while what was begun keeps its schedule; when the endpoint
// is back everything arrives.
func TestBreaker(t *testing.T) {
	var back time.Time
	virtual(t, func(w http.ResponseWriter, r *http.Request) {
		if time.Now().Before(back) {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}, func(t *testing.T, b *bed, connect func(*sender.Sender)) {
		const events = 200
		start := time.Now()
		back = start.Add(5 * time.Minute)
		hook := b.endpoint("http://receiver.test/")
		s := b.start(b.config(), connect)
		b.raise(events)
		s.Wake()
		<-time.After(4 * time.Minute)
		begun := 0
		for _, d := range b.deliveries(hook) {
			if len(d.Attempts) == 0 {
				continue
			}
			begun++
			if len(d.Attempts) < 2 {
				continue
			}
			first, second := d.Attempts[0], d.Attempts[1]
			if waited := second.StartedAt.Sub(first.StartedAt.Add(first.Duration)); waited > 12*time.Second+time.Second {
				t.Errorf("what was begun waited %v for its second attempt", waited)
			}
		}
		// Nine may have ended, and others begun in their place, before the tenth
		// opened the breaker; then one after each of two pauses.
		if begun < sender.BreakAfter || begun > sender.MinWindow+sender.BreakAfter-1+2 {
			t.Errorf("%d deliveries were begun while the endpoint was down", begun)
		}
		if got := s.Stats(); got.Pauses < 3 || got.InFlight != 0 {
			t.Errorf("%+v", got)
		}
		<-time.After(45 * time.Minute)
		if list := b.deliveries(hook); !in(events, webhook.Delivered)(list) {
			t.Errorf("not everything arrived: %+v", s.Stats())
		}
	})
}

// Guarantee: what somebody asked for by hand passes an open breaker, and its
// success closes it.
func TestBreakerByHand(t *testing.T) {
	var up atomic.Bool
	virtual(t, func(w http.ResponseWriter, _ *http.Request) {
		if !up.Load() {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}, func(t *testing.T, b *bed, connect func(*sender.Sender)) {
		hook := b.endpoint("http://receiver.test/")
		s := b.start(b.config(), connect)
		b.raise(50)
		s.Wake()
		<-time.After(100 * time.Second) // in the second pause
		up.Store(true)
		begun := time.Now()
		e := b.raiseTest(hook)
		s.Wake()
		b.until("the test arrives", func() bool {
			return b.delivery(e).State == webhook.Delivered
		}, func() any { return b.delivery(e) })
		b.await(hook, "the pause ends", func(list []webhook.Delivery) bool {
			for i := range list {
				if len(list[i].Attempts) == 0 {
					return false
				}
			}
			return true
		})
		if took := time.Since(begun); took > 6*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// raiseTest makes a delivery by hand and returns its identifier.
func (b *bed) raiseTest(hook string) (deliveryID string) {
	b.t.Helper()
	list := b.deliveries(hook)
	d := list[0]
	d.ID, d.State, d.Trigger, d.CreatedAt, d.NextAttemptAt = id.New(id.Delivery), webhook.Pending, webhook.ByHand, time.Now(), time.Now()
	b.update(func(tx control.Tx) error { return tx.InsertDelivery(b.t.Context(), &d) })
	return d.ID
}

func (b *bed) delivery(deliveryID string) (d *webhook.Delivery) {
	b.t.Helper()
	err := b.db.View(context.Background(), func(tx control.ReadTx) (err error) {
		d, err = tx.Delivery(context.Background(), b.owner, deliveryID)
		return err
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return d
}

// Guarantee: 410 disables the endpoint at once; so do 5 days of nothing but
// failures.
func TestDisabling(t *testing.T) {
	for name, tc := range map[string]struct {
		status int
		after  []webhook.State // of one failed delivery, and of another 5 days later
	}{
		"gone":    {410, []webhook.State{webhook.Disabled}},
		"failing": {500, []webhook.State{webhook.Active, webhook.Disabled}},
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(tc.status) }, func(t *testing.T, b *bed, connect func(*sender.Sender)) {
				hook := b.endpoint("http://receiver.test/")
				for i, want := range tc.after {
					b.raise(1)
					s := b.start(b.config(), connect)
					<-time.After(time.Minute)
					if err := s.Stop(t.Context()); err != nil {
						t.Fatal(err)
					}
					if w := b.webhook(hook); w.State != want || (w.DisabledReason != "") != (want == webhook.Disabled) {
						t.Errorf("after failure %d: %s, %q", i+1, w.State, w.DisabledReason)
					}
					<-time.After(5 * 24 * time.Hour)
				}
			})
		})
	}
}

func (b *bed) webhook(webhookID string) (w *webhook.Webhook) {
	b.t.Helper()
	b.update(func(tx control.Tx) (err error) {
		w, err = tx.Webhook(context.Background(), b.owner, webhookID)
		return err
	})
	return w
}

// Guarantee: while one endpoint hangs on every delivery, another gets all of its
// own at once, and the one that hangs has no more in flight than its cap.
func TestIsolation(t *testing.T) {
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
	}, func(t *testing.T, b *bed, connect func(*sender.Sender)) {
		slow, quick := b.endpoint("http://hanging.test/"), b.endpoint("http://quick.test/")
		s := b.start(b.config(), connect)
		start := time.Now()
		for range 3 {
			b.raise(events)
			s.Wake()
			<-time.After(15 * time.Second)
		}
		list := b.deliveries(quick)
		if !in(3*events, webhook.Delivered)(list) {
			t.Fatalf("the quick endpoint did not get everything: %+v", s.Stats())
		}
		for _, d := range list {
			if late := d.Attempts[0].StartedAt.Sub(d.CreatedAt); late > time.Second {
				t.Errorf("a delivery to the quick endpoint began %v late", late)
			}
		}
		<-time.After(10 * time.Minute)
		mu.Lock()
		if most < 10 || most > 2*sender.MinWindow {
			t.Errorf("%d deliveries to the endpoint that hangs were in flight at once", most)
		}
		mu.Unlock()
		for _, d := range b.deliveries(slow) {
			for _, a := range d.Attempts {
				if a.Duration > 31*time.Second || a.StartedAt.Before(start) {
					t.Errorf("attempt %+v", a)
				}
			}
		}
	})
}

// Guarantee: a sender that stops waits for what is in flight, but not long: it
// hands back what hangs, without an attempt, and another sends it at once.
func TestStopHandsBack(t *testing.T) {
	var second atomic.Bool
	virtual(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if !second.Load() {
			<-r.Context().Done()
		}
	}, func(t *testing.T, b *bed, connect func(*sender.Sender)) {
		hook := b.endpoint("http://receiver.test/")
		b.raise(100)
		s := b.start(b.config(), connect)
		<-time.After(time.Second)
		if got := s.Stats(); got.InFlight != sender.MinWindow {
			t.Fatalf("%+v", got)
		}
		start := time.Now()
		if err := s.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took > 6*time.Second {
			t.Errorf("Stop took %v", took)
		}
		list := b.deliveries(hook)
		if !in(100, webhook.Pending)(list) {
			t.Errorf("%+v", list)
		}
		second.Store(true)
		again := time.Now()
		b.start(b.config(), connect)
		list = b.await(hook, "the next sender sends them", in(100, webhook.Delivered))
		for _, d := range list {
			if len(d.Attempts) != 1 || d.Attempts[0].Number != 1 || d.Attempts[0].StartedAt.Sub(again) > time.Second {
				t.Errorf("%+v", d)
			}
		}
	})
}

// Guarantee: what a dead sender had in flight is sent again when its leases end,
// and at once by a sender that has the queue for itself.
func TestDeadSender(t *testing.T) {
	for name, sole := range map[string]bool{"lease ends": false, "sole": true} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(http.ResponseWriter, *http.Request) {}, func(t *testing.T, b *bed, connect func(*sender.Sender)) {
				hook := b.endpoint("http://receiver.test/")
				b.tick = 15 * time.Second
				b.raise(20)
				now := time.Now()
				taken, err := b.db.ClaimDeliveries(t.Context(), sender.Claim{Now: now, Token: "dead", Until: now.Add(sender.LeaseTime), Limit: 8, EachLimit: 8})
				if err != nil || len(taken) != 8 {
					t.Fatal(len(taken), err)
				}
				cfg := b.config()
				want := sender.LeaseTime
				if sole {
					cfg.Exclusive, want = b.db, 0
				}
				b.start(cfg, connect)
				list := b.await(hook, "all arrive", in(20, webhook.Delivered))
				var last time.Duration
				for _, d := range list {
					last = max(last, d.Attempts[0].StartedAt.Sub(now))
				}
				if last < want || last > want+time.Second {
					t.Errorf("the last was sent after %v, want %v", last, want)
				}
			})
		})
	}
}

// counted is a queue that counts the claims.
type counted struct {
	sender.Queue
	claims *atomic.Int64
}

func (c counted) ClaimDeliveries(ctx context.Context, claim sender.Claim) ([]sender.Job, error) {
	c.claims.Add(1)
	return c.Queue.ClaimDeliveries(ctx, claim)
}

// Guarantee: a sender does not keep the store busy for what it may not begin: an
// endpoint that hangs, with many deliveries that wait, costs few claims.
func TestFewClaims(t *testing.T) {
	virtual(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	}, func(t *testing.T, b *bed, connect func(*sender.Sender)) {
		b.endpoint("http://hanging.test/")
		cfg := b.config()
		var claims atomic.Int64
		cfg.Queue = counted{b.db, &claims}
		b.raise(500)
		b.start(cfg, connect)
		const minutes = 10
		<-time.After(minutes * time.Minute)
		if n := claims.Load(); n > minutes*12*3 { // one in 5 s is the idle rate
			t.Errorf("%d claims", n)
		}
	})
}

// Guarantee: many endpoints that hang at once leave places for another one.
func TestManyHanging(t *testing.T) {
	const hanging, each, events = 150, 20, 50
	virtual(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if r.Host != "quick.test" {
			<-r.Context().Done()
		}
	}, func(t *testing.T, b *bed, connect func(*sender.Sender)) {
		var urls []string
		for i := range hanging {
			urls = append(urls, fmt.Sprintf("http://hanging%d.test/", i))
		}
		b.endpoints(urls...)
		b.raise(each)
		s := b.start(b.config(), connect)
		<-time.After(time.Second)
		flying := s.Stats().InFlight
		if flying < hanging*4 {
			t.Fatalf("%+v", s.Stats())
		}
		quick := b.endpoint("http://quick.test/")
		b.raise(events)
		s.Wake()
		<-time.After(time.Second)
		if list := b.deliveries(quick); !in(events, webhook.Delivered)(list) {
			t.Errorf("with %d in flight the quick endpoint did not get everything: %+v", flying, s.Stats())
		}
		if n := s.Stats().InFlight; n > sender.MaxInFlight {
			t.Errorf("%d in flight", n)
		}
	})
}
