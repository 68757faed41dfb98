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

// Opener decrypts what the store holds sealed.
type Opener interface {
	Open(sealed []byte) ([]byte, error)
}

// Config is what a sender works with.
type Config struct {
	Queue Queue
	// Sole is set if no other process uses the queue. Start then ends all
	// leases, which are those of a process that is dead.
	Sole   Sole
	Sealer Opener
	// Guard decides where endpoints may be: at public addresses and in the
	// networks of Allow, in which plain http is allowed too.
	Guard *netguard.Guard
	Allow []netip.Prefix
	// AllowHTTP allows plain http to public addresses.
	AllowHTTP bool
	// Backoff is how long to wait after the failed attempts 1 to 4.
	Backoff [webhook.MaxAttempts - 1]time.Duration
	Log     *slog.Logger
	// Roots are the certificate authorities to trust; nil for the system's.
	Roots *x509.CertPool
	// Resolver finds the addresses of hosts; nil for the system's.
	Resolver *net.Resolver
	// Now tells the time; nil for time.Now.
	Now func() time.Time
	// Random draws a number from 0 up to 1 for the jitter; nil for math/rand's.
	Random func() float64
}

// Bounds of a sender. Each delivery in flight costs up to about 64 KiB, mostly
// its connection; each one held, its payload and some 1 KiB.
const (
	// maxFlying is how many deliveries are in flight at a time.
	maxFlying = 2048
	// maxHeldInAll is how many deliveries are leased at a time.
	maxHeldInAll = 8192
	// An endpoint may have one in flyShare of the places that are free, and one
	// in claimShare of those to hold: as places get fewer each may have fewer, so
	// that few endpoints cannot take them all. Some 300 that hang at once can.
	flyShare   = 64
	claimShare = 8
)

// How long a claimed delivery is this sender's, and how much of that must be left
// when it begins, for a whole attempt and the writing of its result.
const (
	leaseTime    = 90 * time.Second
	attemptNeeds = Timeout + 20*time.Second
)

// Sender sends what waits in a queue. Its methods may be called by several
// goroutines.
type Sender struct {
	cfg      Config
	schedule webhook.Schedule
	dialer   *net.Dialer
	client   *http.Client
	wake     chan struct{}
	done     chan struct{} // something is in results or releases
	stats    counters

	mu        sync.Mutex
	endpoints map[string]*endpoint
	busy      map[*endpoint]struct{} // those with something held, or a breaker that opened
	starved   []*endpoint
	held      int
	flying    int
	full      bool // the last claim brought as many as there was room for in all
	stopping  bool
	planned   time.Time // when the next claim is due at the latest; zero while one is made
	swept     time.Time
	results   []finished
	releases  []*task
	recalled  map[string]struct{} // endpoints recalled since the last claim began

	stopClaim func() // nil until Start
	sendCtx   context.Context
	stopSend  func()
	stopWrite func()
	claiming  sync.WaitGroup
	sending   sync.WaitGroup
	finishing sync.WaitGroup
	stopOnce  sync.Once
	stopErr   error
}

// New returns a sender that does nothing until Start.
func New(cfg Config) (*Sender, error) {
	if cfg.Queue == nil || cfg.Sealer == nil || cfg.Guard == nil || cfg.Log == nil {
		return nil, errors.New("a sender needs a queue, a sealer, a guard and a log")
	}
	schedule, err := webhook.NewSchedule(cfg.Backoff)
	if err != nil {
		return nil, err
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Random == nil {
		cfg.Random = rand.Float64
	}
	dialer := newDialer(&cfg)
	return &Sender{
		cfg: cfg, schedule: schedule, dialer: dialer, client: newClient(&cfg, dialer),
		wake: make(chan struct{}, 1), done: make(chan struct{}, 1),
		endpoints: map[string]*endpoint{}, busy: map[*endpoint]struct{}{}, recalled: map[string]struct{}{},
	}, nil
}

// Start begins to send. ctx bounds the start alone. It is called once.
func (s *Sender) Start(ctx context.Context) error {
	if s.cfg.Sole != nil {
		n, err := s.cfg.Sole.ReleaseAllDeliveries(ctx)
		if err != nil {
			return fmt.Errorf("take back the webhook deliveries of the last run: %w", err)
		}
		if n > 0 {
			s.cfg.Log.InfoContext(ctx, "webhook deliveries that were in flight when the last run ended are sent again", "count", n)
		}
	}
	ctx = context.WithoutCancel(ctx)
	claimCtx, stopClaim := context.WithCancel(ctx)
	writeCtx, stopWrite := context.WithCancel(ctx)
	s.sendCtx, s.stopSend = context.WithCancel(ctx)
	s.stopClaim, s.stopWrite = stopClaim, stopWrite
	s.claiming.Go(func() { s.claimAll(claimCtx) })
	s.finishing.Go(func() { s.finishAll(writeCtx) })
	return nil
}

// Wake tells that a delivery was made. It never blocks.
func (s *Sender) Wake() { signal(s.wake) }

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// How long a stopping sender waits for what is in flight, before it hands it
// back without an attempt to be sent again, and then for the store.
const (
	grace     = 5 * time.Second
	lastWrite = 2 * time.Second
)

// Stop claims nothing more, waits for what is in flight, though not beyond ctx
// or grace, hands back what was not sent, and returns when the store has it all,
// or lastWrite after ctx is done.
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
	s.mu.Lock()
	s.stopping = true
	for e := range s.busy {
		s.release(e.queue...)
		e.queue = nil
	}
	s.mu.Unlock()
	if !endsWithin(ctx, &s.sending, grace, 0) {
		s.cfg.Log.InfoContext(ctx, "webhook deliveries in flight are cut off and will be sent again")
	}
	s.stopSend()
	s.sending.Wait() // not for long: every wait of an attempt ends with its context
	s.client.CloseIdleConnections()
	close(s.done)
	defer s.stopWrite()
	if !endsWithin(ctx, &s.finishing, leaseTime, lastWrite) {
		s.stopWrite()
		s.finishing.Wait()
		return errors.New("the results of some webhook deliveries were not written: they are sent again")
	}
	return nil
}

// endsWithin waits for w, at most for the given time and at most for the given
// time after ctx is done, and reports whether it ended.
func endsWithin(ctx context.Context, w *sync.WaitGroup, most, after time.Duration) bool {
	ended := make(chan struct{})
	go func() { w.Wait(); close(ended) }()
	ctx, cancel := context.WithTimeout(ctx, most)
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
