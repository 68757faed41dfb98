package sender

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/keygate/keygate/internal/netguard"
	"github.com/keygate/keygate/internal/webhook"
)

// Opener decrypts what the store holds encrypted.
type Opener interface {
	Open(sealed []byte) ([]byte, error)
}

// Config is what a sender works with. Queue, Sealer, Guard and Log are required.
type Config struct {
	Queue Queue
	// Exclusive is set if no other process uses the queue. Start then ends all leases:
	// only a process that has died can have left them.
	Exclusive Exclusive
	// Sealer decrypts the signing secrets.
	Sealer Opener
	// Guard decides which addresses may be connected to: public ones and those in the
	// networks of Allow, where plain http is allowed too.
	Guard *netguard.Guard
	Allow []netip.Prefix
	// AllowHTTP allows plain http to public addresses.
	AllowHTTP bool
	// Backoff holds the waits after the failed attempts 1 to 4.
	Backoff [webhook.MaxAttempts - 1]time.Duration
	Log     *slog.Logger
	// Roots are the certificate authorities to trust. Nil means the system's.
	Roots *x509.CertPool
	// Resolver resolves host names. Nil means the system's.
	Resolver *net.Resolver
	// Now returns the time. Nil means time.Now.
	Now func() time.Time
	// Random returns a number in [0, 1) for the jitter of waits. Nil means
	// math/rand/v2's Float64.
	Random func() float64
}

func (cfg *Config) check() error {
	for _, required := range []struct {
		name    string
		missing bool
	}{
		{"Queue", cfg.Queue == nil},
		{"Sealer", cfg.Sealer == nil},
		{"Guard", cfg.Guard == nil},
		{"Log", cfg.Log == nil},
	} {
		if required.missing {
			return fmt.Errorf("webhook/sender: Config.%s is required", required.name)
		}
	}
	return nil
}

// Sender sends the deliveries of a queue. Its methods may be called by several
// goroutines.
type Sender struct {
	cfg        Config
	schedule   webhook.Schedule
	dialer     *net.Dialer
	client     *http.Client
	stats      counters
	results    *results
	dispatcher *dispatcher
	writer     *writer

	stopClaim func() // nil until Start
	sendCtx   context.Context
	stopSend  func()
	stopWrite func()
	claiming  sync.WaitGroup
	sending   sync.WaitGroup
	writing   sync.WaitGroup
	stopOnce  sync.Once
	stopErr   error
}

// New returns a sender that does nothing until Start.
func New(cfg Config) (*Sender, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	schedule, err := webhook.NewSchedule(cfg.Backoff)
	if err != nil {
		return nil, fmt.Errorf("webhook/sender: Config.Backoff: %w", err)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Random == nil {
		cfg.Random = rand.Float64
	}
	dialer := newDialer(&cfg)
	s := &Sender{cfg: cfg, schedule: schedule, dialer: dialer, client: newClient(&cfg, dialer), results: newResults()}
	s.dispatcher = newDispatcher(&cfg, s.results, &s.stats)
	s.dispatcher.start = func(t *task) { s.sending.Go(func() { s.send(t) }) }
	s.writer = &writer{
		queue: cfg.Queue, results: s.results, dispatcher: s.dispatcher, stats: &s.stats, now: cfg.Now, log: cfg.Log,
	}
	return s, nil
}

// Start starts sending. ctx bounds only the start. Start is called once.
func (s *Sender) Start(ctx context.Context) error {
	if s.cfg.Exclusive != nil {
		n, err := s.cfg.Exclusive.ReleaseAllDeliveries(ctx)
		if err != nil {
			return fmt.Errorf("release the webhook deliveries of the last run: %w", err)
		}
		if n > 0 {
			s.cfg.Log.InfoContext(ctx, "sending webhook deliveries again that were in flight when the last run ended", "count", n)
		}
	}
	ctx = context.WithoutCancel(ctx)
	claimCtx, stopClaim := context.WithCancel(ctx)
	writeCtx, stopWrite := context.WithCancel(ctx)
	s.sendCtx, s.stopSend = context.WithCancel(ctx)
	s.stopClaim, s.stopWrite = stopClaim, stopWrite
	s.claiming.Go(func() { s.claimAll(claimCtx) })
	s.writing.Go(func() { s.writer.run(writeCtx) })
	return nil
}

// Wake makes the sender look for new deliveries now. It never blocks.
func (s *Sender) Wake() { s.dispatcher.askForClaim() }

// Recall is called after an endpoint was changed, disabled or deleted. Deliveries to it
// that are not in flight are claimed again: they are sent as the store has the endpoint
// now, or not at all.
func (s *Sender) Recall(webhookID string) { s.dispatcher.recall(webhookID) }

// send makes one attempt and reports it to the dispatcher.
func (s *Sender) send(t *task) {
	attempt, retryAfter := s.attempt(s.sendCtx, t)
	if s.sendCtx.Err() != nil && !attempt.Succeeded() {
		s.dispatcher.cutOff(t) // by Stop, so it does not count as a failure of the endpoint
		return
	}
	r := Result{Lease: t.Lease, Attempt: attempt, State: webhook.Delivered}
	if !attempt.Succeeded() {
		ended := attempt.StartedAt.Add(attempt.Duration)
		r.State, r.NextAttemptAt = s.schedule.After(attempt.Number, ended, s.cfg.Random(), retryAfter)
	}
	s.stats.count(&r)
	s.dispatcher.ended(finished{t, r})
}

const (
	// gracePeriod is how long Stop waits for deliveries in flight before it interrupts
	// them.
	gracePeriod = 5 * time.Second
	// writeGrace is how long Stop waits for the store after its context has ended.
	writeGrace = 2 * time.Second
)

// Stop stops the sender. It makes no more claims, waits for the deliveries in flight
// until gracePeriod has passed or ctx ends, and hands the rest back to the store without
// an attempt. It returns when the store has all results, or an error writeGrace after ctx
// has ended; those deliveries are sent again. Stop is idempotent.
func (s *Sender) Stop(ctx context.Context) error {
	if s.stopClaim == nil {
		return nil
	}
	s.stopOnce.Do(func() { s.stopErr = s.stop(ctx) })
	return s.stopErr
}

func (s *Sender) stop(ctx context.Context) error {
	s.stopClaim()
	s.claiming.Wait()
	s.dispatcher.stop()
	if !endsWithin(ctx, &s.sending, gracePeriod, 0) {
		s.cfg.Log.InfoContext(ctx, "interrupting webhook deliveries in flight; they will be sent again")
	}
	s.stopSend()
	s.sending.Wait() // short: every wait of an attempt ends with its context
	s.client.CloseIdleConnections()
	s.results.close()
	defer s.stopWrite()
	if !endsWithin(ctx, &s.writing, leaseTime, writeGrace) {
		s.stopWrite()
		s.writing.Wait()
		return errors.New("could not write the results of some webhook deliveries: they will be sent again")
	}
	return nil
}

// endsWithin waits for w until limit has passed or, if that is earlier, until after has
// passed since ctx ended. It reports whether w ended.
func endsWithin(ctx context.Context, w *sync.WaitGroup, limit, after time.Duration) bool {
	ended := make(chan struct{})
	go func() { w.Wait(); close(ended) }()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	select {
	case <-ended:
		return true
	case <-ctx.Done():
	}
	last := time.NewTimer(after)
	defer last.Stop()
	select {
	case <-ended:
		return true
	case <-last.C:
		return false
	}
}
