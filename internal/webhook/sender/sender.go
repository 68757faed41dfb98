package sender

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/keygate/keygate/internal/netguard"
	"github.com/keygate/keygate/internal/service"
	"github.com/keygate/keygate/internal/webhook"
)

// Opener decrypts what the store holds encrypted.
type Opener interface {
	Open(sealed []byte) ([]byte, error)
}

// Config configures a sender. Queue, Sealer, Guard and Log are required.
type Config struct {
	Queue Queue
	// Name is the name of this process among the processes that use the queue, without a slash. No
	// two senders may have the same name at the same time. If there is only one sender, it may be
	// "". With Node, it is not used.
	Name string
	// Exclusive, if set, ends the leases that an earlier process of this name has left.
	// Start calls it.
	Exclusive Exclusive
	// Node is the lease of this node among the nodes that share the queue. The sender claims and
	// sends only under it. Nil means that the node needs none.
	Node NodeLease
	// Peers, if set, releases the deliveries of nodes whose leases have ended.
	Peers Peers
	// Poll is the time between two looks for deliveries that other processes created: SharedPoll if
	// there are other processes. Zero means 5 seconds.
	Poll time.Duration
	// Sealer decrypts the signing secrets.
	Sealer Opener
	// Guard decides which addresses may be connected to: public addresses, and addresses in the
	// networks of Allow, where plain http is allowed too.
	Guard *netguard.Guard
	Allow []netip.Prefix
	// AllowHTTP allows plain http to public addresses.
	AllowHTTP bool
	// Backoff holds the waits after the failed attempts 1 to 4.
	Backoff [webhook.MaxAttempts - 1]time.Duration
	Log     *slog.Logger
	// MaxInFlight is how many deliveries are in flight at a time. Zero means 2048. Half as
	// many connections are kept idle.
	MaxInFlight int
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
	if strings.Contains(cfg.Name, "/") {
		return fmt.Errorf("webhook/sender: Config.Name %q has a slash", cfg.Name)
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
	claimant   *claimant

	watching service.Group
	claiming service.Group
	sending  service.Group
	writing  service.Group
	stopOnce sync.Once
	stopErr  error
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
	cfg.MaxInFlight = cmp.Or(cfg.MaxInFlight, maxInFlight)
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Random == nil {
		cfg.Random = rand.Float64
	}
	dialer := newDialer(&cfg)
	s := &Sender{cfg: cfg, schedule: schedule, dialer: dialer, client: newClient(&cfg, dialer), results: newResults()}
	s.claimant = &claimant{lease: cfg.Node, fixed: cfg.Name}
	s.dispatcher = newDispatcher(&cfg, s.claimant, s.results, &s.stats)
	s.dispatcher.start = func(t *task) {
		// Go always runs it: Stop stops the dispatcher before this group.
		s.sending.Go(func(context.Context) { s.send(s.sending.Grace(), t) })
	}
	s.writer = &writer{
		queue: cfg.Queue, results: s.results, dispatcher: s.dispatcher, stats: &s.stats, now: cfg.Now, log: cfg.Log,
	}
	return s, nil
}

// Start starts sending. ctx bounds only the start. Start is called once.
func (s *Sender) Start(ctx context.Context) error {
	if s.cfg.Exclusive != nil {
		n, err := s.cfg.Exclusive.ReleaseAllDeliveries(ctx, s.cfg.Name)
		if err != nil {
			return fmt.Errorf("release the webhook deliveries of the last run: %w", err)
		}
		if n > 0 {
			s.cfg.Log.InfoContext(ctx, "sending webhook deliveries again that were in flight when the last run ended", "count", n)
		}
	}
	if s.cfg.Node != nil {
		if err := s.watching.Start(s.watchClaimant); err != nil {
			return err
		}
	}
	return errors.Join(
		s.writing.Start(func(context.Context) { s.writer.run(s.writing.Grace()) }),
		s.claiming.Start(s.claimAll),
	)
}

// Wake makes the sender look for new deliveries now. It never blocks.
func (s *Sender) Wake() { s.dispatcher.look() }

// Recall is called after an endpoint was changed, disabled or deleted. Deliveries to it
// that are not in flight are claimed again: they are sent to the endpoint as it is now stored, or
// not at all.
func (s *Sender) Recall(webhookID string) { s.dispatcher.recall(webhookID) }

// RecallAccount is Recall for every endpoint of an account.
func (s *Sender) RecallAccount(accountID string) { s.dispatcher.recallAccount(accountID) }

// RecallAll is Recall for every endpoint.
func (s *Sender) RecallAll() { s.dispatcher.recallAll() }

// send makes one attempt and reports it to the dispatcher. ctx ends when Stop interrupts
// the attempts.
func (s *Sender) send(ctx context.Context, t *task) {
	ctx, cancel := s.claimant.attempt(ctx, t.claimant)
	defer cancel()
	attempt, retryAfter := s.attempt(ctx, t)
	if ctx.Err() != nil && !attempt.Succeeded() {
		s.dispatcher.cutOff(t) // not a failure of the endpoint
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
	// storeGrace is how long Stop waits for the store after its context has ended.
	storeGrace = 2 * time.Second
)

// Stop stops the sender. It makes no more claims, waits for the deliveries in flight
// until gracePeriod has passed or ctx ends, and hands the rest back to the store without
// an attempt. It returns when the store has all results. If the store takes longer than
// storeGrace after ctx has ended, Stop returns an error; those deliveries are sent again.
// No goroutine of the sender runs when Stop returns. Stop is idempotent.
func (s *Sender) Stop(ctx context.Context) error {
	s.stopOnce.Do(func() { s.stopErr = s.stop(ctx) })
	return s.stopErr
}

func (s *Sender) stop(ctx context.Context) error {
	storeCtx, cancel := extend(ctx, storeGrace)
	defer cancel()
	_ = stopGroup(storeCtx, &s.claiming, claimTimeout)
	s.dispatcher.stop()
	if err := stopGroup(ctx, &s.sending, gracePeriod); err != nil {
		s.cfg.Log.InfoContext(ctx, "interrupted webhook deliveries in flight; they will be sent again")
	}
	_ = s.watching.Stop(context.WithoutCancel(ctx)) // it ends at once
	s.client.CloseIdleConnections()
	s.results.close()
	if err := stopGroup(storeCtx, &s.writing, leaseTime); err != nil {
		return fmt.Errorf("write the results of webhook deliveries, which will be sent again: %w", cmp.Or(ctx.Err(), err))
	}
	return nil
}

// stopGroup stops g. If g runs for longer than limit or beyond the end of ctx, it ends g's
// grace context, waits for the goroutines, which then end soon, and returns an error.
func stopGroup(ctx context.Context, g *service.Group, limit time.Duration) error {
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := g.Stop(bounded)
	if err != nil {
		_ = g.Stop(context.WithoutCancel(ctx))
	}
	return err
}

// extend returns a context that ends when the given time has passed after the end of ctx.
func extend(ctx context.Context, by time.Duration) (extended context.Context, cancel func()) {
	extended, end := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		timer := time.NewTimer(by)
		defer timer.Stop()
		select {
		case <-timer.C:
			end()
		case <-extended.Done():
		}
	})
	return extended, func() { stop(); end() }
}
