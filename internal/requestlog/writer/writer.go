// Package writer writes refused and failed requests to the store, and requests with a cost or several attempts, and
// samples them if there are very many (contract, section 7).
package writer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/requestlog"
	"github.com/keygate/keygate/internal/service"
)

// The defaults of Config, and the bounds of the memory.
const (
	DefaultPeriod    = 250 * time.Millisecond
	DefaultPerSecond = 1000
	// DefaultChargedPerSecond is less, since all requests of a route may have a cost.
	DefaultChargedPerSecond = 100

	maxPending   = 1 << 16 // records
	maxTextBytes = 32 << 20
	// maxLongPaths is how many bytes of paths longer than requestlog.ShortPath are kept of one account and second. Further
	// paths are cut to that length, so that who sends very many refused requests does not fill the disk faster with long ones.
	maxLongPaths = 64 << 10
	batch        = 1000 // records per transaction, so that changes wait only briefly for it
	trimPeriod   = time.Minute
	trimBatch    = 1000
	// growth is the part of Config.MaxBytes that is written before the size of the log is looked at again.
	growth = 1024
	// cutLogPeriod is the time between two log lines on requests of an account that were removed early.
	cutLogPeriod = time.Hour
)

// Config configures a Writer. Store is required.
type Config struct {
	Store  requestlog.Store
	Now    func() time.Time // nil means time.Now
	Period time.Duration    // between two writes; 0 means DefaultPeriod
	// Retention returns the time by which records are past their retention, or the zero time
	// if that is not known yet; see retention.Clock. Nil means Now.
	Retention func() time.Time
	// PerSecond is the maximum number of requests kept of one account that begin in
	// the same second. 0 means DefaultPerSecond. As many are kept only because they had several attempts;
	// those beyond it are not counted as left out.
	PerSecond int
	// ChargedPerSecond is the same for requests that are kept only because they have a cost. Those
	// beyond it are not counted as left out. 0 means DefaultChargedPerSecond.
	ChargedPerSecond int
	// OperatorID is the account that gets the requests for which there is no gateway; "" drops them.
	OperatorID string
	// MaxBytes is the maximum size of all records in the store, as requestlog.Record.Size counts them. Beyond it, the oldest
	// records of the account that has most are removed early. 0 means that there is none.
	MaxBytes int64
	Log      *slog.Logger // nil discards
}

// Writer is an accesslog.Sink. It is safe for concurrent use.
type Writer struct {
	cfg Config

	mu      sync.Mutex // held only briefly, since Take waits for it
	records []requestlog.Record
	texts   int              // bytes of their texts
	left    map[second]int64 // number of requests left out since the last write
	kept    map[second]int   // number of requests kept, of the last minutes; with requestlog.NotKept, bytes of their long paths

	// writing is a mutex for writing, as a channel so that a wait for it can end with
	// a context.
	writing      chan struct{}
	pending      []requestlog.Record // not stored yet; guarded by writing, like the next two
	unsentCounts []requestlog.LeftOut
	batches      accesslog.Batches

	// grown is how many bytes were written since the size of the log was looked at, and batchesGrown in how many batches; guarded
	// by writing.
	grown        int64
	batchesGrown int

	cuts cuts

	lost         atomic.Uint64
	leftOut      atomic.Uint64
	removedEarly atomic.Uint64

	tails tails

	group service.Group
}

// chargedOfNode is for how many accounts at once a node keeps all the requests that an account may have kept only for their
// cost, so that these leave room for others.
const chargedOfNode = 10

// second is one second of one account.
type second struct {
	account [16]byte
	at      int64 // Unix
	why     requestlog.Belonging
}

var _ accesslog.Sink = (*Writer)(nil)

// New returns a Writer that takes records at once and writes them after Start.
func New(cfg Config) (*Writer, error) {
	if cfg.Store == nil {
		return nil, errors.New("requestlog/writer: Config.Store is required")
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Retention == nil {
		cfg.Retention = cfg.Now
	}
	cfg.Period = cmp.Or(cfg.Period, DefaultPeriod)
	cfg.PerSecond = cmp.Or(cfg.PerSecond, DefaultPerSecond)
	cfg.ChargedPerSecond = cmp.Or(cfg.ChargedPerSecond, DefaultChargedPerSecond)
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	return &Writer{cfg: cfg, left: map[second]int64{}, kept: map[second]int{}, writing: make(chan struct{}, 1), batches: accesslog.NewBatches()}, nil
}

// Lost returns the number of requests that were lost because the store did not take them
// in time.
func (r *Writer) Lost() uint64 { return r.lost.Load() }

// AddLost counts requests that the store had kept to add them later, and has lost.
func (r *Writer) AddLost(requests int) { r.lost.Add(uint64(requests)) }

// Unwritten returns the number of requests that are in memory and not in the store. If a write
// hangs, it does not wait, and returns 0.
func (r *Writer) Unwritten() int {
	select {
	case r.writing <- struct{}{}:
	default:
		return 0
	}
	defer func() { <-r.writing }()
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.pending) + len(r.records)
}

// LeftOut returns the number of requests that were left out by sampling.
func (r *Writer) LeftOut() uint64 { return r.leftOut.Load() }

// RemovedEarly returns the number of requests that this node has removed before the end of their retention.
func (r *Writer) RemovedEarly() uint64 { return r.removedEarly.Load() }

// Take implements accesslog.Sink.
func (r *Writer) Take(batch []accesslog.Entry) {
	for i := range batch {
		if why := requestlog.Belongs(&batch[i]); why != requestlog.NotKept {
			r.take(&batch[i], why)
		}
	}
}

func (r *Writer) take(e *accesslog.Entry, why requestlog.Belonging) {
	r.mu.Lock()
	defer r.mu.Unlock()
	charged := why == requestlog.Charged
	at := second{e.Account, e.Start / 1e6, why}      // without an account, these are requests without a gateway
	of := second{at: at.at, why: requestlog.Charged} // of all accounts; what is charged has an account
	switch {
	case e.Account == [16]byte{} && r.cfg.OperatorID == "":
	case charged && (r.kept[at] >= r.cfg.ChargedPerSecond || r.kept[of] >= chargedOfNode*r.cfg.ChargedPerSecond):
	case why != requestlog.Ended && (r.kept[at] >= r.cfg.PerSecond || len(r.records) >= maxPending/4):
	case r.kept[at] >= r.cfg.PerSecond:
		r.left[at]++
		r.leftOut.Add(1)
	case len(r.records) >= maxPending || r.texts >= maxTextBytes:
		r.lost.Add(1)
	default:
		if r.kept[at]++; charged {
			r.kept[of]++
		}
		record := requestlog.NewRecord(e)
		if e.Account == [16]byte{} {
			record.AccountID = r.cfg.OperatorID
		}
		if n := len(record.Path); n > requestlog.ShortPath {
			long := second{account: e.Account, at: at.at, why: requestlog.NotKept}
			if r.kept[long] += n; r.kept[long] > maxLongPaths {
				record.CutPath()
			}
		}
		r.records = append(r.records, record)
		r.texts += len(record.Path) + len(record.Method) + len(record.Cost) + len(record.AttemptList)
	}
}

// Start begins to write, until Stop.
func (r *Writer) Start(context.Context) error {
	repeat := func(period time.Duration, f func(context.Context) error) func(context.Context) {
		return func(ctx context.Context) {
			service.Every(ctx, period, func(ctx context.Context) {
				if err := f(ctx); err != nil && ctx.Err() == nil {
					r.cfg.Log.Warn("writing the request log failed; it is retried", "error", err)
				}
			})
		}
	}
	if err := r.group.Start(repeat(r.cfg.Period, r.Sync), repeat(trimPeriod, r.Trim)); err != nil {
		return fmt.Errorf("start the request log writer: %w", err)
	}
	return nil
}

// Stop writes what was taken and ends. No record may be taken after it. It returns
// an error if the store fails or ctx ends first.
func (r *Writer) Stop(ctx context.Context) error {
	if err := r.group.Stop(ctx); err != nil {
		return fmt.Errorf("stop the request log writer: %w", err)
	}
	return r.Sync(ctx)
}

// Trim removes requests beyond their retention, and then beyond the maximum size, in short transactions.
func (r *Writer) Trim(ctx context.Context) error {
	for {
		more, err := r.cfg.Store.TrimRequests(ctx, r.cfg.Retention().Add(-requestlog.Keep), trimBatch)
		if err != nil {
			return err
		}
		if !more {
			return r.cut(ctx, math.MaxInt)
		}
	}
}
