package snapshot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/balance"
	"github.com/keygate/keygate/internal/ratelimit"
	"github.com/keygate/keygate/internal/resolve"
	"github.com/keygate/keygate/internal/service"
	"github.com/keygate/keygate/internal/validation"
)

// Config configures a Follower.
type Config struct {
	// Source is the store. Required.
	Source Source
	// Reserver keeps the daily caps. Required.
	Reserver *ratelimit.Reserver
	// Quotas keeps the quotas of plans. Without it, plans with a quota cannot be used, and what they limit is refused.
	Quotas *ratelimit.QuotaKeeper
	// Slots makes limits of requests in flight parts of limits that all nodes share. Nil means that there is one node.
	Slots *ratelimit.SlotKeeper
	// Sharing makes token buckets parts of buckets that all nodes share. Nil means that there is one node.
	Sharing *ratelimit.Sharing
	// OpenSealed decrypts the sealed value of an upstream header or of an upstream client
	// key. Required if a gateway has one.
	OpenSealed func(sealed []byte) ([]byte, error)
	// GatewayDomain is the base domain of generated gateway hostnames. Empty means
	// localhost.
	GatewayDomain string
	// DefaultGlobalLimit is the global limit of gateways that have none of their own. Zero
	// means 1000000/s.
	DefaultGlobalLimit ratelimit.Rate
	// Now reads the clocks by which limits are decided. The Admitter must use the same
	// function. Required.
	Now func() ratelimit.Instant
	// PollInterval is the time between two reads of the change log after Start. Zero means
	// 250 ms.
	PollInterval time.Duration
	// Shared is set if several nodes follow the same store. Nil means that this is the only one.
	Shared *Shared
	// Recall is called for each WebhookChange and AccountChange, and with the zero Change if any may
	// have been missed. When it has returned, this node sends no more deliveries that it held for the
	// changed webhook or account. It must not block. Nil does nothing.
	Recall func(Change)
	// BucketBytes bounds the memory of the buckets of limits with per: key, of all accounts together
	// (ratelimit.Budget). Zero means 512 MiB.
	BucketBytes int64
	// Fleet chooses between the targets of upstreams. Nil means one of its own.
	Fleet *balance.Fleet
	// Names looks up the names of targets. It calls Follower.Resolved when something else is known of one. Nil means that they are
	// looked up at each connect.
	Names *resolve.Resolver
	// MayReach reports whether targets of accounts that may reach only public addresses may be at an address that was looked up. One
	// that may not is left out, so that nothing shows where a name leads in a network that is not open to the account. The guard
	// of connections decides all the same. Nil means that it may.
	MayReach func(netip.AddrPort) bool
	// Documents has the OpenAPI documents of gateways. Nil means that no request is held against one.
	Documents *validation.Documents
	// Retention returns the time by which the store removes what has ended (retention.Clock). Nil means that it removes nothing.
	Retention func() time.Time
	// Heavy has a slot for each piece of work that may keep a processor busy for long, such as
	// compiling a large table. If it is nil, half of the processors are slots, at least one.
	Heavy chan struct{}
	// Certificates serves certificates by ACME. Nil means that nobody does.
	Certificates Certificates
	// Log receives the failures of polling. Nil discards them.
	Log *slog.Logger
}

// Certificates puts certificates by ACME, and what validates them, in force as the store has them. Calls do not overlap.
type Certificates interface {
	// Load does so for all of them, Read for one, which may be gone. A record that is damaged is no error.
	Load(ctx context.Context) error
	Read(ctx context.Context, certificateID string) error
}

// Shared configures the Follower of one of several nodes. All fields are required.
//
// A change that cannot be applied must not stop later changes. Its gateway or key must not stay as it
// was either, since a node must not admit without a change that other nodes have. So a gateway that
// cannot be compiled is out of service until it can be, and a key that cannot be read is refused.
type Shared struct {
	// Log is the change log of the store, which is read in place of the Source's.
	Log PositionLog
	// Hint receives a value when the log may have a new entry. Polling at PollInterval goes on.
	Hint <-chan struct{}
	// Applied is called when Follower.Applied has changed. It must not block.
	Applied func()
	// Restarted is called before everything is read again because the log does not contain the last
	// position that was read. It must not block.
	Restarted func()
	// Unreadable is called when the log has a change in a format that this version does not read. The
	// node must not decide any more: neither this change nor those after it come into force. It must not
	// block.
	Unreadable func(err error)
	// Joined is called for a NodeChange, which is in force when it has returned nil. Nil does nothing.
	Joined func(ctx context.Context) error
}

// keyDailies identifies the daily counts of keys in the store. No route has this identifier.
const keyDailies = "key"

const (
	// sweepInterval is the time between two sweeps of the per-key buckets. If their memory gets short,
	// sweeps follow each other faster: after shortInterval plus sweepRest times the duration of the last
	// sweep.
	sweepInterval = time.Minute
	shortInterval = time.Second
	sweepRest     = 20

	defaultBucketBytes = 512 << 20
)

// Follower keeps the snapshot in force up to date with the store. It is safe for concurrent
// use.
type Follower struct {
	cfg           Config
	defaultGlobal ratelimit.Params
	current       atomic.Pointer[Snapshot]
	published     atomic.Uint64 // grows after each change of current
	caughtUp      atomic.Int64  // start of the last read of the store that is in force, by the monotonic clock in nanoseconds
	lastRead      atomic.Int64  // start of the last read of the change log
	inForce       atomic.Int64  // every change up to this number is in force
	used          *usedList
	former        formerPaths
	revoked       *revokedKeys
	ended         endedKeys
	buckets       *ratelimit.Budget  // of limits with per: key
	keyDailies    *ratelimit.Dailies // the daily caps of keys

	rates   sharedRates
	shared  sharedParts
	plans   planTable
	reads   atomic.Int64 // see nextRead
	pending pendingGateways
	work    service.Signal // wakes the goroutine that compiles

	// publishing is held while the next snapshot is made from the snapshot in force: for a short
	// time, and never while the store is read.
	publishing sync.Mutex
	holders    holderLimits // guarded by publishing

	// writing is the lock for reading the change log and changing keys. It is a channel so that a
	// context can end the wait for it. No gateway is compiled under it, except by the first Load,
	// so that no route table delays a change of a key.
	writing chan struct{}
	seq     atomic.Int64 // last entry of the change log that was read; changed under writing
	at      atomic.Pointer[readPoint]
	applied appliedPoint
	// The fields below are guarded by writing.
	loaded  bool
	classes map[classID]*callerClass
	rights  map[rightsID]*rights // one copy for all keys with the same scopes, plan and addresses
	// unreadable are the identifiers of the keys whose records cannot be read.
	unreadable map[string]struct{}
	// unreadableAccounts are the identifiers of the accounts whose records cannot be read.
	unreadableAccounts map[string]struct{}
	ownMu              sync.Mutex
	own                map[ownSlots]*ratelimit.SlotSet // guarded by ownMu
	// owners has the slots of owners; unreadableOwners and unreadablePlans are the identifiers of those whose records
	// cannot be read.
	owners           ownerTable
	unreadableOwners recordIDs
	// issuers are the issuers in force, nil for none; issuerStates counts the states that issuers have had, and
	// unreadableIssuers are those whose records cannot be read.
	issuers           atomic.Pointer[issuerTable]
	issuerStates      uint64
	unreadableIssuers recordIDs
	ownerNames        ownerNames
	names             atomic.Uint64 // grows when the name of an owner or a plan leads to another one
	unreadablePlans   recordIDs
	unusableKeys      atomic.Int64 // number of unreadable
	unusableAccounts  atomic.Int64 // number of unreadableAccounts

	failedMu sync.Mutex
	failed   map[string]bool // IDs of gateways that could not be compiled

	group service.Group
}

// New returns a Follower with an empty snapshot: call Load next. The only error is a
// missing required field of cfg.
func New(cfg Config) (*Follower, error) {
	switch {
	case cfg.Source == nil:
		return nil, errors.New("snapshot: Config.Source is required")
	case cfg.Reserver == nil:
		return nil, errors.New("snapshot: Config.Reserver is required")
	case cfg.Now == nil:
		return nil, errors.New("snapshot: Config.Now is required")
	}
	cfg.GatewayDomain = cmp.Or(cfg.GatewayDomain, "localhost")
	cfg.PollInterval = cmp.Or(cfg.PollInterval, 250*time.Millisecond)
	if cfg.Fleet == nil {
		cfg.Fleet = balance.NewFleet(nil)
	}
	if cfg.Heavy == nil {
		cfg.Heavy = make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2))
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.DefaultGlobalLimit.IsZero() {
		cfg.DefaultGlobalLimit = ratelimit.Rate{Count: 1_000_000, Per: time.Second}
	}
	f := &Follower{
		cfg:           cfg,
		defaultGlobal: ratelimit.CompileRate(cfg.DefaultGlobalLimit),
		used:          newUsedList(),
		revoked:       newRevokedKeys(maxRevokedOfAccount, maxRevoked),
		buckets:       ratelimit.NewBudget(cmp.Or(cfg.BucketBytes, defaultBucketBytes)),
		keyDailies:    cfg.Reserver.Dailies(keyDailies, ratelimit.Rate{Count: 1}), // each key has a cap of its own
		pending:       pendingGateways{byID: map[string]*pendingGateway{}},
		work:          service.NewSignal(),
		writing:       make(chan struct{}, 1),
		classes:       map[classID]*callerClass{},
		rights:        map[rightsID]*rights{},
		failed:        map[string]bool{},
		holders:       holderLimits{},
		unreadable:    map[string]struct{}{},

		unreadableAccounts: map[string]struct{}{},
		plans:              planTable{slots: map[string]*planSlot{}},
		owners:             ownerTable{},
		own:                map[ownSlots]*ratelimit.SlotSet{},
	}
	f.plans.names = &f.names
	f.put((&Snapshot{keys: newKeyTable()}).publishable(map[string]*account.Account{}, map[string]*Gateway{}))
	return f, nil
}

// Current returns the snapshot in force, with one atomic load. It is never nil; before Load
// it is empty.
func (f *Follower) Current() *Snapshot { return f.current.Load() }

// Fleet returns what chooses between the targets of upstreams.
func (f *Follower) Fleet() *balance.Fleet { return f.cfg.Fleet }

// Version returns a number that grows after each change of what is in force: accounts, plans, owners, gateways and
// keys. If it is read first, everything that is read from a snapshot afterwards is at least as new.
func (f *Follower) Version() uint64 { return f.published.Load() + f.Current().keys.changes.Load() }

// put makes a snapshot the one in force.
func (f *Follower) put(s *Snapshot) {
	f.current.Store(s)
	f.published.Add(1)
}

// Start begins to catch up at every PollInterval, so that what another process writes is
// soon in force, and to drop idle per-key buckets. Failures are logged and retried.
func (f *Follower) Start(context.Context) error {
	if err := f.group.Start(f.run, f.runWork, f.runSweep); err != nil {
		return fmt.Errorf("start following the store: %w", err)
	}
	return nil
}

// Stop ends what Start began. The Follower remains usable.
func (f *Follower) Stop(ctx context.Context) error {
	if err := f.group.Stop(ctx); err != nil {
		return fmt.Errorf("stop following the store: %w", err)
	}
	return nil
}

func (f *Follower) run(ctx context.Context) {
	poll := time.NewTimer(f.pollWait())
	defer poll.Stop()
	var hint <-chan struct{}
	if f.cfg.Shared != nil {
		hint = f.cfg.Shared.Hint
	}
	failing := false
	readAll := func() {
		err := f.read(ctx)
		if ctx.Err() != nil {
			return
		}
		f.report(err, &failing, "reading configuration changes")
		if err == nil {
			f.work.Notify()
		}
		poll.Reset(f.pollWait())
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-hint:
			readAll()
		case <-poll.C:
			readAll()
		}
	}
}

// runSweep drops the per-key buckets that are not needed.
func (f *Follower) runSweep(ctx context.Context) {
	minute := time.NewTicker(sweepInterval)
	defer minute.Stop()
	rest := time.NewTimer(0)
	defer rest.Stop()
	rested := false
	for {
		short := f.buckets.Short()
		if !rested {
			short = nil
		}
		var began time.Time
		select {
		case <-ctx.Done():
			return
		case <-rest.C:
			rested = true
			continue
		case <-minute.C:
			began = time.Now()
			f.sweep(f.ended.turn())
			f.revoked.sweep(f.cfg.Now().Wall / 1000)
			f.trimDenials()
		case <-short:
			began = time.Now()
			f.sweep(nil)
		}
		rested = false
		rest.Reset(max(shortInterval, sweepRest*time.Since(began)))
	}
}

// sweep drops the per-key buckets that are full again or whose key has ended.
func (f *Follower) sweep(ended map[[16]byte]bool) {
	f.Current().sweep(f.cfg.Now(), ended)
	f.plans.sweep(f.cfg.Now(), ended)
	f.sweepHolders(f.cfg.Now(), ended)
	f.sweepSlots()
}

// runWork puts in force the changes of gateways that run reads. It runs in a goroutine of its own,
// so that no route table delays changes of keys that another process makes.
func (f *Follower) runWork(ctx context.Context) {
	failing := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.work:
			err := f.settleAll(ctx)
			if ctx.Err() != nil {
				return
			}
			f.report(err, &failing, "applying configuration changes")
		}
	}
}

// report logs that something failed, or succeeded again.
func (f *Follower) report(err error, failing *bool, what string) {
	switch {
	case err != nil && !*failing:
		f.cfg.Log.Error(what+" failed; keeping the present configuration and retrying", "error", err)
	case err == nil && *failing:
		f.cfg.Log.Info(what + " succeeded again")
	}
	*failing = err != nil
}

// Age returns the time since the store was last read successfully, whether or not it had
// changes: the snapshot in force is no older. Normally it is at most a little more than
// PollInterval.
func (f *Follower) Age() time.Duration {
	return time.Duration(f.cfg.Now().Mono - f.caughtUp.Load())
}

// InForce returns the number of a change up to which every change is in force. It is normally the
// last change.
func (f *Follower) InForce() int64 { return f.inForce.Load() }

// DrainUsed calls yield for each key that authenticated a request since the last call, with
// the time of its last use. Calls must not overlap.
func (f *Follower) DrainUsed(yield func(keyID string, at time.Time)) { f.used.drain(yield) }

// BucketBudget returns the budget of the buckets of limits with per: key.
func (f *Follower) BucketBudget() *ratelimit.Budget { return f.buckets }

// lock locks f for reading the change log. The error is ctx.Err().
func (f *Follower) lock(ctx context.Context) error {
	select {
	case f.writing <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (f *Follower) unlock() { <-f.writing }
