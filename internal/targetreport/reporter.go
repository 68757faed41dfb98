package targetreport

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/keygate/keygate/internal/balance"
	"github.com/keygate/keygate/internal/fairslots"
	"github.com/keygate/keygate/internal/service"
)

// The bounds of what a node reports.
const (
	// Interval is the time between two reports.
	Interval = 2 * time.Second
	// MaxOfAccount and MaxInAll are how many targets a node reports at most. Those that drain with requests in flight come first.
	MaxOfAccount = 1 << 12
	MaxInAll     = 1 << 15
	// maxRows is how many rows a transaction changes at most.
	maxRows = 2000
	// maxFresh is how many targets of an account that do not drain begin to be reported at once, so that a name server whose
	// addresses alternate makes few writes. The next report has others.
	maxFresh = 500
	// maxLeftOut is how many accounts a report names from which targets are left out.
	maxLeftOut = 100
	// restTime is the least time between two reports of a target that neither drains nor has drained, so that a name server whose
	// responses alternate, or a service whose checks do, makes few writes.
	restTime = 10 * time.Second
	// trimEvery is how many reports of a node there are for each look for those of ended leases.
	trimEvery = 15
)

// Config configures a Reporter. All fields are required except Log.
type Config struct {
	Store Store
	Fleet *balance.Fleet
	Clock Clock
	// Claimant names the present lease of the node; "" without one.
	Claimant func() string
	// InForce returns the number of a change up to which every change is in force on this node.
	InForce func() int64
	Log     *slog.Logger
}

// Reporter reports the state of the targets of this node.
type Reporter struct {
	cfg     Config
	leftOut atomic.Int64
	group   service.Group

	// Used only by the goroutine.
	claimant string           // of reported
	reported map[Key]reported // what the store has
	number   int64            // of the last report; -1 before the first
	lacks    []string         // LeftOut of the last report
	turn     int
	failing  bool
}

// reported is what the store has of a target.
type reported struct {
	summary summary
	at      time.Duration // when it was to be written last
	known   bool          // that the store has exactly this
}

// rests reports whether a change to the summary waits, because the target was reported shortly before.
func (r *reported) rests(to *summary, now time.Duration) bool {
	return r.known && !to.draining && !r.summary.draining && now-r.at < restTime
}

// summary is the part of an observation whose change makes a new report necessary.
type summary struct {
	state    balance.State
	since    time.Duration
	reason   string
	draining bool
	degraded bool
	// These count only of targets that drain.
	inFlight           int64
	requests, failures uint64
}

// New returns a Reporter. The error is a missing field of cfg.
func New(cfg Config) (*Reporter, error) {
	if cfg.Store == nil || cfg.Fleet == nil || cfg.Clock.Mono == nil || cfg.Clock.Wall == nil || cfg.Claimant == nil || cfg.InForce == nil {
		return nil, errors.New("targetreport: all fields of Config but Log are required")
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Reporter{cfg: cfg}, nil
}

// Start reports every Interval until Stop.
func (r *Reporter) Start(context.Context) error {
	if err := r.group.Start(func(ctx context.Context) { service.Every(ctx, Interval, r.turnOver) }); err != nil {
		return fmt.Errorf("start reporting targets: %w", err)
	}
	return nil
}

// Stop ends what Start began. The reports end with the lease of the node.
func (r *Reporter) Stop(ctx context.Context) error {
	if err := r.group.Stop(ctx); err != nil {
		return fmt.Errorf("stop reporting targets: %w", err)
	}
	return nil
}

// LeftOut returns how many targets the last report left out.
func (r *Reporter) LeftOut() int64 { return r.leftOut.Load() }

// turnOver reports, and now and then removes what ended leases have left.
func (r *Reporter) turnOver(ctx context.Context) {
	err := r.Report(ctx)
	if r.turn++; err == nil && r.turn%trimEvery == 0 {
		_, err = r.cfg.Store.TrimTargetReports(ctx, maxRows)
	}
	switch {
	case ctx.Err() != nil:
	case err != nil && !r.failing:
		r.cfg.Log.Warn("the state of targets could not be reported to the other nodes; trying again", "error", err)
		r.failing = true
	case err == nil && r.failing:
		r.cfg.Log.Info("the state of targets is reported again")
		r.failing = false
	}
}

// Report writes what differs from the last report. Without a lease it does nothing.
func (r *Reporter) Report(ctx context.Context) error {
	claimant := r.cfg.Claimant()
	if claimant == "" {
		return nil
	}
	if claimant != r.claimant {
		r.claimant, r.reported, r.number, r.lacks = claimant, map[Key]reported{}, -1, nil
	}
	number := r.cfg.InForce() // before the figures
	all := r.observe()
	lacks := r.bound(&all)
	batches := r.difference(all)
	if number != r.number || len(batches) > 0 || !slices.Equal(lacks, r.lacks) {
		if len(batches) == 0 {
			batches = append(batches, &Batch{})
		}
		last := batches[len(batches)-1]
		last.Ends, last.Number, last.LeftOut = true, number, lacks
	}
	for _, b := range batches {
		b.Claimant = claimant
		if err := r.write(ctx, b); err != nil {
			return err
		}
	}
	return nil
}

// write writes a batch. If the result is unknown, its targets are reported again.
func (r *Reporter) write(ctx context.Context, b *Batch) error {
	err := r.cfg.Store.PutTargetReports(ctx, b)
	for i := range b.Put {
		k := b.Put[i].key()
		was := r.reported[k]
		was.known = err == nil
		r.reported[k] = was
	}
	for _, k := range b.Remove {
		if err != nil {
			r.reported[k] = reported{}
		} else {
			delete(r.reported, k)
		}
	}
	if err == nil && b.Ends {
		r.number, r.lacks = b.Number, b.LeftOut
	}
	return err
}

// observation is a target that the report has.
type observation struct {
	Report
	summary summary
}

// urgency orders the targets of an account.
func (o *observation) urgency() int {
	switch {
	case o.Draining && o.InFlight > 0:
		return 0
	case o.Draining:
		return 1
	case o.summary.state != balance.Healthy || o.Degraded:
		return 2
	}
	return 3
}

// observe returns the targets that drain, and those whose state has changed, by their accounts.
func (r *Reporter) observe() (all []observation) {
	now := r.cfg.Clock.now()
	r.cfg.Fleet.Observe(now.mono, func(n balance.Name, list []balance.Status) bool {
		seen := map[Key]bool{}
		for i := range list {
			s := &list[i]
			o := observation{now.of(n, s), summary{state: s.State, since: s.Since, reason: s.Reason, draining: s.Draining}}
			o.summary.degraded = o.Degraded
			if s.Draining {
				o.summary.inFlight, o.summary.requests, o.summary.failures = s.Own, s.Requests, s.Failures
			}
			k := o.key()
			if _, known := r.reported[k]; !known && !s.Draining && !o.Degraded && (s.State == balance.Healthy || s.State == balance.Warming) || seen[k] {
				continue
			}
			seen[k] = true
			all = append(all, o)
		}
		return true
	})
	slices.SortFunc(all, func(a, b observation) int {
		return cmp.Or(cmp.Compare(a.Account, b.Account), cmp.Compare(a.urgency(), b.urgency()), cmp.Compare(a.Gateway, b.Gateway), cmp.Compare(a.Upstream, b.Upstream),
			cmp.Compare(a.URL, b.URL), cmp.Compare(a.Address, b.Address))
	})
	return all
}

// bound leaves out what is too much, and returns Batch.LeftOut. Accounts that have less than their share leave the rest to others.
func (r *Reporter) bound(all *[]observation) (lacks []string) {
	var sizes []int
	account := ""
	for i := range *all {
		if a := (*all)[i].Account; len(sizes) == 0 || a != account {
			account, sizes = a, append(sizes, 0)
		}
		sizes[len(sizes)-1] = min(sizes[len(sizes)-1]+1, MaxOfAccount)
	}
	most := min(MaxOfAccount, fairslots.Most(MaxInAll, sizes))
	kept, n := (*all)[:0], 0
	account = ""
	left := int64(0)
	for i := range *all {
		o := (*all)[i]
		if o.Account != account {
			account, n = o.Account, 0
		}
		if n++; n <= most {
			kept = append(kept, o)
			continue
		}
		left++
		if o.urgency() == 0 && (len(lacks) == 0 || lacks[len(lacks)-1] != account) {
			lacks = append(lacks, account)
		}
	}
	*all = kept
	r.leftOut.Store(left)
	if len(lacks) > maxLeftOut {
		lacks = []string{AllAccounts}
	}
	return lacks
}

// difference returns what makes the store have all, in batches of up to maxRows.
func (r *Reporter) difference(all []observation) (batches []*Batch) {
	var b *Batch
	next := func() *Batch {
		if b == nil || len(b.Put)+len(b.Remove) == maxRows {
			b = &Batch{}
			batches = append(batches, b)
		}
		return b
	}
	now := r.cfg.Clock.Mono()
	present := make(map[Key]bool, len(all))
	fresh := map[string]int{} // by account
	for i := range all {
		k := all[i].key()
		present[k] = true
		was, has := r.reported[k]
		if has && was.known && (was.summary == all[i].summary || was.rests(&all[i].summary, now)) {
			continue
		}
		if !has && !all[i].Draining {
			if fresh[k.Account]++; fresh[k.Account] > maxFresh {
				continue
			}
		}
		b := next()
		b.Put = append(b.Put, all[i].Report)
		r.reported[k] = reported{summary: all[i].summary, at: now}
	}
	var removed []Key
	for k := range r.reported {
		if !present[k] {
			removed = append(removed, k)
		}
	}
	for _, k := range removed {
		b := next()
		b.Remove = append(b.Remove, k)
	}
	return batches
}
