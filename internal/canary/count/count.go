// Package count counts the requests of canaries on a node, and stores what it has counted (targets.md, section 8).
//
//	access records ─► Counter: a tally for each canary and step ─► every 5 s ─► Store: a row for each, which the leader adds up
//	                     ▲
//	       callers that a canary leaves out, read when its first request comes
//
// What is counted of a request is that it ended, on which side and for whom; whether it was bad: an upstream's 5xx, or 502 or 504 of
// the gateway; and the time from when it was sent to the upstream until the head of the response has come, for streams and tunnels
// too, or without a response until the end. Requests that were refused before they could be sent, and those whose client has
// hung up before a response began, do not count.
package count

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/canary"
	"github.com/keygate/keygate/internal/fairslots"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/service"
)

// The bounds of a Counter.
const (
	// Interval is the time between two writes. A crash loses what was counted since the last one.
	Interval = 5 * time.Second
	// MaxCallers is how many callers of the new upstream are told apart between two writes, of a canary and, divided by the number of
	// nodes, in all. Others count together.
	MaxCallers      = 20_000
	MaxCallersInAll = 200_000
	// MaxTallies is how many steps of canaries are counted between two writes. Requests of others are lost. It is also of how many
	// canaries the lists are kept.
	MaxTallies = 2_000
	// MaxSlots is how many callers the lists have room for, in all. A list for which there is none leaves out nobody.
	MaxSlots = 8 << 20
	// learnAtOnce is how many lists are read at once.
	learnAtOnce = 50
	// maxRows is how many rows a transaction writes at most, and maxBytes about how many bytes.
	maxRows  = 2_000
	maxBytes = 4 << 20
	// forgetAfter is how long a node keeps the list of a canary without requests.
	forgetAfter = 10 * time.Minute
	// lookPeriod is the time between two looks for lists that are missing.
	lookPeriod    = time.Second
	complainEvery = time.Minute
	stopTime      = 2 * time.Second
)

// Store keeps the counts. It is safe for concurrent use.
type Store interface {
	// AppendCanaryCounts adds the rows of a batch, all or none. If the store already has the batch, or a later batch of the same
	// writer, nothing changes. The error is fault.Unavailable while there are canary.MaxStored bytes of them.
	AppendCanaryCounts(ctx context.Context, batch accesslog.BatchID, rows []canary.CountRow) error
	// CanaryCallersLeftOut returns the lists of those canaries whose lists are decided, by the canaries' identifiers, in the form of
	// canary.EncodeCallers.
	CanaryCallersLeftOut(ctx context.Context, canaryIDs []string) (map[string][]byte, error)
}

// Config configures a Counter. Store is required.
type Config struct {
	Store Store
	Nodes func() int       // how many nodes there are; nil means 1
	Now   func() time.Time // by the store's clock, nearly; nil means time.Now
	Log   *slog.Logger     // nil discards
}

// Counter is an accesslog.Sink. It is safe for concurrent use.
type Counter struct {
	cfg  Config
	lost atomic.Uint64

	mu      sync.Mutex // held only briefly, since Take waits for it
	tallies map[step]*tally
	last    *tally                     // of the last request
	callers fairslots.Shares[[16]byte] // told apart
	counted fairslots.Shares[[16]byte] // tallies
	lists   map[[16]byte]*list
	kept    fairslots.Shares[[16]byte] // lists
	slots   fairslots.Shares[[16]byte] // of them
	spare   []*canary.Tally

	// writing is a mutex of writes, as a channel so that a wait for it can end with a context.
	writing chan struct{}
	pending []canary.CountRow // not stored yet
	sending int               // number of the first ones in the open batch
	batches accesslog.Batches

	told  time.Time // when a failure was logged last; used by the goroutine alone
	looks int
	group service.Group
}

// step is a step of a canary.
type step struct {
	canary [16]byte
	number uint32
}

// tally is what was counted of a step since the last write.
type tally struct {
	step
	account [16]byte
	*canary.Tally
	list *list
}

// list is the callers that a canary leaves out.
type list struct {
	known bool
	slots []uint64 // a hash table, whose length is a power of two; nil without callers. Callers are hashes already.
	zero  bool     // it has the caller 0, which the table does not have
	used  time.Time

	account [16]byte
}

// slotsFor returns the length of the table for a number of callers.
func slotsFor(callers int) int { return 1 << bits.Len(uint(callers+callers/2)) }

// put makes the list one of callers.
func (l *list) put(callers []uint64) {
	l.known = true
	if len(callers) == 0 {
		return
	}
	l.slots = make([]uint64, slotsFor(len(callers)))
	for _, caller := range callers {
		if caller == 0 {
			l.zero = true
			continue
		}
		at := caller & uint64(len(l.slots)-1)
		for l.slots[at] != 0 {
			at = (at + 1) & uint64(len(l.slots)-1)
		}
		l.slots[at] = caller
	}
}

func (l *list) has(caller uint64) bool {
	if l.slots == nil || caller == 0 {
		return l.zero && caller == 0
	}
	at := caller & uint64(len(l.slots)-1)
	for l.slots[at] != 0 && l.slots[at] != caller {
		at = (at + 1) & uint64(len(l.slots)-1)
	}
	return l.slots[at] == caller
}

// New returns a Counter that counts at once and writes after Start. The only error is a missing Config.Store.
func New(cfg Config) (*Counter, error) {
	if cfg.Store == nil {
		return nil, errors.New("canary/count: Config.Store is required")
	}
	if cfg.Nodes == nil {
		cfg.Nodes = func() int { return 1 }
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Counter{
		cfg: cfg, tallies: map[step]*tally{}, callers: fairslots.NewShares[[16]byte](MaxCallersInAll), lists: map[[16]byte]*list{}, writing: make(chan struct{}, 1),
		counted: fairslots.NewShares[[16]byte](MaxTallies), kept: fairslots.NewShares[[16]byte](MaxTallies), slots: fairslots.NewShares[[16]byte](MaxSlots),
		batches: accesslog.NewBatches(),
	}, nil
}

// Lost returns the number of requests that could not be counted, because too many canaries had some at once.
func (c *Counter) Lost() uint64 { return c.lost.Load() }

// Take implements accesslog.Sink. It allocates only for callers and steps that are new since the last write.
func (c *Counter) Take(batch []accesslog.Entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range batch {
		if r := &batch[i].Record; r.Canary != [16]byte{} && r.Part != accesslog.Started {
			c.count(r)
		}
	}
}

// count counts a request. The caller holds mu.
func (c *Counter) count(r *accesslog.Record) {
	one := canary.Counts{Requests: 1}
	switch r.Result {
	case accesslog.Forwarded:
		if r.UpstreamStatus >= 500 {
			one.Bad = 1
		}
	case accesslog.Unreachable, accesslog.TimedOut:
		one.Bad = 1
	default:
		return
	}
	t := c.tally(r)
	if t == nil || t.list.has(r.CanaryCaller) {
		return
	}
	side := canary.Other
	if r.CanaryNext {
		side = canary.Next
	}
	latency := r.Upstream
	if latency < 0 {
		latency = r.Duration
	}
	t.AddLatency(side, time.Duration(latency))
	if side == canary.Next {
		if t.AddKnown(r.CanaryCaller, one) {
			return
		}
		if c.takeCaller(t) {
			t.Add(side, r.CanaryCaller, one)
			return
		}
	}
	t.AddRest(side, one)
}

// takeCaller reports whether another caller may be told apart.
func (c *Counter) takeCaller(t *tally) bool {
	c.callers.SetMost(MaxCallersInAll / max(1, c.cfg.Nodes()))
	if t.Callers() >= MaxCallers || !c.callers.MayTake(t.account, 1) {
		return false
	}
	c.callers.Take(t.account, 1)
	return true
}

// tally returns where a request counts; nil if it does not.
func (c *Counter) tally(r *accesslog.Record) *tally {
	of := step{r.Canary, r.CanaryStep}
	if c.last != nil && c.last.step == of {
		return c.last
	}
	t := c.tallies[of]
	if t == nil {
		l := c.list(r)
		switch {
		case !l.known:
			return nil
		case !c.counted.MayTake(r.Account, 1):
			c.lost.Add(1)
			return nil
		}
		c.counted.Take(r.Account, 1)
		t = &tally{step: of, account: r.Account, list: l, Tally: &canary.Tally{}}
		if last := len(c.spare) - 1; last >= 0 {
			t.Tally, c.spare = c.spare[last], c.spare[:last]
		}
		c.tallies[of] = t
	}
	c.last = t
	return t
}

// list returns the list of the canary of a request, which Learn reads if it is not known yet.
func (c *Counter) list(r *accesslog.Record) *list {
	l := c.lists[r.Canary]
	if l == nil {
		l = &list{account: r.Account}
		if !c.kept.MayTake(l.account, 1) {
			c.lost.Add(1)
			return l
		}
		c.kept.Take(l.account, 1)
		c.lists[r.Canary] = l
	}
	l.used = c.cfg.Now()
	return l
}

// Start begins to write, until Stop.
func (c *Counter) Start(context.Context) error {
	if err := c.group.Start(func(ctx context.Context) { service.Every(ctx, lookPeriod, c.look) }); err != nil {
		return fmt.Errorf("start to count requests of canaries: %w", err)
	}
	return nil
}

// Stop writes what was counted, for up to stopTime, and ends. No record may be taken after it. What the store does not take is lost,
// which the log says. The error is that of ctx.
func (c *Counter) Stop(ctx context.Context) error {
	if err := c.group.Stop(ctx); err != nil {
		return fmt.Errorf("stop counting requests of canaries: %w", err)
	}
	writing, cancel := context.WithTimeout(ctx, stopTime)
	defer cancel()
	if err := c.Sync(writing); err != nil {
		c.cfg.Log.Warn("the last counts of canaries could not be stored, and are lost", "error", err)
	}
	return nil
}

// look reads lists that are missing, and writes when it is time.
func (c *Counter) look(ctx context.Context) {
	err := c.Learn(ctx)
	if c.looks++; c.looks%int(Interval/lookPeriod) == 0 {
		err = errors.Join(err, c.Sync(ctx))
	}
	if now := c.cfg.Now(); err != nil && ctx.Err() == nil && now.Sub(c.told).Abs() >= complainEvery {
		c.told = now
		c.cfg.Log.Warn("counts of canaries could not be stored; it is retried", "error", err)
	}
}

// Learn reads the lists of canaries that have requests, as soon as they are decided. Requests before that do not count.
func (c *Counter) Learn(ctx context.Context) error {
	c.mu.Lock()
	var wanted []string
	for canaryID, l := range c.lists {
		if !l.known {
			wanted = append(wanted, id.Format(id.Canary, canaryID))
		}
	}
	c.mu.Unlock()
	var errs []error
	for some := range slices.Chunk(wanted, learnAtOnce) {
		lists, err := c.cfg.Store.CanaryCallersLeftOut(ctx, some)
		if err != nil {
			return fmt.Errorf("read whom canaries leave out: %w", err)
		}
		for canaryID, data := range lists {
			callers, err := canary.DecodeCallers(data)
			if err != nil { // nobody is left out, as if the hour before had no reports
				errs = append(errs, fmt.Errorf("canary %s: %w", canaryID, err))
			}
			c.learn(canaryID, callers)
		}
	}
	return errors.Join(errs...)
}

func (c *Counter) learn(canaryID string, callers []uint64) {
	of, _ := id.Parse(id.Canary, canaryID)
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.lists[of]
	if l == nil || l.known {
		return
	}
	if !c.slots.MayTake(l.account, slotsFor(len(callers))) {
		callers = nil
	}
	l.put(callers)
	c.slots.Take(l.account, len(l.slots))
}

// Sync stores everything that was counted before the call.
func (c *Counter) Sync(ctx context.Context) error {
	select {
	case c.writing <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("wait for the counts of canaries: %w", ctx.Err())
	}
	defer func() { <-c.writing }()
	if err := c.send(ctx); err != nil {
		return err // what was counted since goes on to be counted together
	}
	c.collect()
	return c.send(ctx)
}

// collect makes rows of what was counted. The caller has writing.
func (c *Counter) collect() {
	now := c.cfg.Now()
	c.mu.Lock()
	tallies := c.tallies
	c.tallies, c.last = map[step]*tally{}, nil
	c.callers.Reset()
	c.counted.Reset()
	for _, t := range tallies {
		t.list.used = now
	}
	for canaryID, l := range c.lists {
		if now.Sub(l.used) >= forgetAfter {
			c.kept.Give(l.account, 1)
			c.slots.Give(l.account, len(l.slots))
			delete(c.lists, canaryID)
		}
	}
	c.mu.Unlock()
	for of, t := range tallies {
		if t.Empty() {
			continue
		}
		data, _ := t.MarshalBinary() // see there
		c.pending = append(c.pending, canary.CountRow{CanaryID: id.Format(id.Canary, of.canary), Number: int(of.number), At: now, Data: data})
	}
	c.keep(tallies)
}

// keep keeps the memory of some tallies for the next ones.
func (c *Counter) keep(tallies map[step]*tally) {
	const spare, small = 100, 1_000
	var kept []*canary.Tally
	for _, t := range tallies {
		if len(kept) < spare && t.Callers() <= small {
			t.Reset()
			kept = append(kept, t.Tally)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.spare = kept
}

// send writes what is pending. The caller has writing.
func (c *Counter) send(ctx context.Context) error {
	for len(c.pending) > 0 {
		batch, isNew := c.batches.Open()
		if isNew {
			c.sending = batchLen(c.pending)
		}
		err := c.cfg.Store.AppendCanaryCounts(ctx, batch, c.pending[:c.sending])
		if err != nil {
			return fmt.Errorf("write counts of canaries: %w", err)
		}
		c.batches.Close()
		c.pending, c.sending = c.pending[c.sending:], 0
	}
	c.pending = nil
	return nil
}

// batchLen returns how many rows make the next batch.
func batchLen(rows []canary.CountRow) (n int) {
	for size := 0; n < min(len(rows), maxRows) && (n == 0 || size+len(rows[n].Data) <= maxBytes); n++ {
		size += len(rows[n].Data)
	}
	return n
}
