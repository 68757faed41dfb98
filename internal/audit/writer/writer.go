// Package writer writes the audit log. It takes the records of both planes, writes them to
// the open ends of their accounts' logs ten times a second, and seals full or old open
// ends into chained blocks.
//
//	data plane ─► Take ─┐              every 100 ms            4096 records, 10 min
//	                    ├─► memory ─────────────────► chunks ──────────────────────► blocks
//	API ─────► Record ──┘                               ▲
//	                       a change's own transaction ──┘ management records
//
// Memory is bounded. Records that do not fit while the store is slow or full are lost and
// counted, and a gap record in the log says so once the store works again.
package writer

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/service"
)

// Store stores open ends and blocks.
type Store interface {
	// AppendAuditChunks adds the chunks and management records of a batch to the open
	// ends of their accounts' logs, in one transaction. If the store already has the batch, or a
	// later batch of the same writer, nothing changes. The error accesslog.ErrSpooled says that the
	// batch is added later.
	AppendAuditChunks(ctx context.Context, batch accesslog.BatchID, chunks []audit.Chunk, records []*audit.Record) error
	// JoinAuditChunks replaces the chunks of an account with the identifiers gone by one chunk, at
	// the position of the last of them. If a chunk does not exist, because another node has joined
	// or sealed it, it changes nothing and returns fault.Conflict.
	JoinAuditChunks(ctx context.Context, gone []int64, chunk audit.Chunk) error
	AuditOpen(ctx context.Context, accountID string) (*audit.Open, error)
	// SealAudit moves records from an open end to the chain, in one transaction. It
	// removes exactly the chunks and management records that the seal names: others may
	// have been written since they were read, wherever they are in the order. If the
	// blocks do not continue the chain, or a chunk or record does not exist, it changes
	// nothing and returns fault.Conflict: another node has sealed it.
	SealAudit(ctx context.Context, s *audit.Seal) error
}

// Keeper maintains the logs of all accounts.
type Keeper interface {
	AuditWaiting(ctx context.Context) ([]audit.Waiting, error)
	// TrimAudit removes records beyond their retention or the maximum size, in one
	// short transaction. It returns nil if there was nothing to remove.
	TrimAudit(ctx context.Context, now time.Time, maxBytes int64) (*audit.Trimmed, error)
	AuditChains(ctx context.Context) ([]audit.Chain, error)
}

// The defaults.
const (
	DefaultPeriod   = 100 * time.Millisecond
	DefaultMaxHeld  = 64 << 20
	DefaultMaxBytes = 50 << 30

	maintenancePeriod = 10 * time.Second
	trimPeriod        = time.Minute
	headPeriod        = time.Hour
)

// Config configures a Writer. Store and Keeper are required.
type Config struct {
	Store  Store
	Keeper Keeper
	// OperatorID is the ID of the account default, which gets the records that belong to no
	// account, such as records of unknown keys.
	OperatorID string
	// MaxBytes is the maximum size of the blocks of all accounts, in bytes. 0 means
	// DefaultMaxBytes.
	MaxBytes int64
	// Period is the time between the starts of two writes, if a write takes no longer. 0 means
	// DefaultPeriod.
	Period time.Duration
	// MaxHeld is the maximum size of the records in memory that are not yet written,
	// in bytes. 0 means DefaultMaxHeld. Further records are lost and counted.
	MaxHeld int
	Now     func() time.Time // nil means time.Now
	// Retention returns the time by which records are past their retention, or the zero time
	// if that is not known yet; see retention.Clock. Nil means Now.
	Retention func() time.Time
	Log       *slog.Logger
}

// Writer writes the audit log. It is an accesslog.Sink, and safe for concurrent use.
type Writer struct {
	cfg   Config
	codec *audit.Codec

	mu         sync.Mutex // guards the next fields
	intakes    map[[16]byte]*intake
	held       int    // bytes of records that are not in the store
	lost       uint64 // number of lost records since the start
	collection uint64 // number of the collection of records that comes next
	refusals   refusals

	// writeLock is a mutex for writing, as a channel so that a wait for it can end
	// with a context.
	writeLock chan struct{}
	sealing   audit.Table               // records of the block being sealed; under writeLock
	unsent    outgoing                  // encoded, but not in the store yet; under writeLock
	sending   outgoing                  // the open batch; under writeLock
	batches   accesslog.Batches         // of what is written; under writeLock
	gaps      map[string]*loss          // not recorded yet, by account; under writeLock
	open      map[string]*audit.Waiting // the open end of each account; under writeLock
	sealed    time.Time                 // time of the last write that sealed; under writeLock
	last      time.Time                 // time of the last write; under writeLock
	collected time.Time                 // the same by the system's clock, whatever Config.Now says; under writeLock
	failed    time.Time                 // time at which a failure was last logged; under writeLock

	// maintaining is held by Maintain, and locked before writeLock. It guards the fields below.
	maintaining          sync.Mutex
	trimmed, headsLogged time.Time        // times of the last trimming and the last logging
	heads                map[string]int64 // the number of the head last logged, by account

	group service.Group
}

// outgoing is the content of one transaction.
type outgoing struct {
	chunks  []audit.Chunk
	weight  int             // bytes of the chunks' records in held
	records []*audit.Record // of gaps
}

// intake is the records of one account since they were last written.
type intake struct {
	table, other *audit.Table // one table is filled while the other is written
	weight       int          // of table, in held
	loss         loss
	used         time.Time // of the last write at which it had records
}

// loss describes lost records.
type loss struct {
	records     int64
	first, last time.Time
}

func (l *loss) add(o loss) {
	if o.records == 0 {
		return
	}
	if l.records == 0 || o.first.Before(l.first) {
		l.first = o.first
	}
	if o.last.After(l.last) {
		l.last = o.last
	}
	l.records += o.records
}

// New returns a Writer that takes records at once and writes them after Start.
func New(cfg Config) (*Writer, error) {
	if cfg.Store == nil || cfg.Keeper == nil {
		return nil, errors.New("audit/writer: Config.Store and Config.Keeper are required")
	}
	cfg.MaxBytes = cmp.Or(cfg.MaxBytes, DefaultMaxBytes)
	cfg.Period = cmp.Or(cfg.Period, DefaultPeriod)
	cfg.MaxHeld = cmp.Or(cfg.MaxHeld, DefaultMaxHeld)
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Retention == nil {
		cfg.Retention = cfg.Now
	}
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	codec, err := audit.NewCodec()
	if err != nil {
		return nil, err
	}
	return &Writer{
		cfg: cfg, codec: codec, intakes: map[[16]byte]*intake{}, writeLock: make(chan struct{}, 1), batches: accesslog.NewBatches(),
		gaps: map[string]*loss{}, open: map[string]*audit.Waiting{}, heads: map[string]int64{}, collection: 1,
	}, nil
}

// recordWeight is the approximate size of a record in memory without its texts, in bytes.
const recordWeight = 64

// Take implements accesslog.Sink: it takes the authentications of a batch.
func (w *Writer) Take(batch []accesslog.Entry) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var account [16]byte
	var in *intake
	for i := range batch {
		e := &batch[i]
		if !e.Authenticated || e.Part == accesslog.Ended {
			continue
		}
		if in == nil || e.Account != account {
			account, in = e.Account, w.intake(e.Account)
		}
		event := audit.Event{
			Time: e.Start, Request: e.Request, Gateway: e.Gateway, Key: e.Key, Client: e.Client, Prefix: e.Prefix,
			Outcome: outcomeOf(e.Result), Method: e.MethodName(), Path: e.Path,
		}
		if e.Token != nil {
			event.Token, event.IssuerID, event.Subject = true, e.Token.IssuerID, e.Token.Subject
		}
		before := in.table.Texts()
		counts := w.refusals.count(e.Account, event.Outcome, clientOf(&e.Client), e.Start)
		switch {
		case counts != nil && counts.collection == w.collection:
			in.table.CountEvent(counts.row, &event)
			w.weigh(in, in.table.Texts()-before)
		case w.held >= w.cfg.MaxHeld:
			w.lose(in, time.UnixMicro(e.Start))
		case counts != nil:
			counts.row, counts.collection = in.table.AddCounted(&event), w.collection
			w.weigh(in, recordWeight+in.table.Texts()-before)
		default:
			in.table.AddEvent(&event)
			w.weigh(in, recordWeight+in.table.Texts()-before)
		}
	}
}

// Record takes an authentication of the management plane. It does not wait for the store.
func (w *Writer) Record(r *audit.Record) {
	account, ok := id.Parse(id.Account, r.AccountID)
	if !ok {
		account, _ = id.Parse(id.Account, w.cfg.OperatorID)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	in := w.intake(account)
	before := in.table.Texts()
	addr, _ := netip.ParseAddr(r.ClientIP)
	counts := w.refusals.count(account, r.Outcome, addr, r.Time.UnixMicro())
	if counts != nil && counts.collection == w.collection {
		in.table.CountRecord(counts.row, r)
		w.weigh(in, in.table.Texts()-before)
		return
	}
	if counts != nil {
		counted := *r
		counted.Count = 1
		r = &counted
	}
	if w.held >= w.cfg.MaxHeld || in.table.Add(r) != nil {
		w.lose(in, r.Time)
		return
	}
	if counts != nil {
		counts.row, counts.collection = in.table.Len()-1, w.collection
	}
	w.weigh(in, recordWeight+in.table.Texts()-before)
}

func (w *Writer) intake(account [16]byte) *intake {
	in := w.intakes[account]
	if in == nil {
		in = &intake{table: &audit.Table{}, other: &audit.Table{}, used: w.cfg.Now()}
		w.intakes[account] = in
	}
	return in
}

func (w *Writer) weigh(in *intake, weight int) {
	in.weight += weight
	w.held += weight
}

func (w *Writer) lose(in *intake, at time.Time) {
	w.lost++
	in.loss.add(loss{1, at, at})
}

// AddLost counts records that the Store had kept to add them later, and has lost. Their accounts are
// unknown, so the gap is shown in the log of the account default. at is the time of the gap.
func (w *Writer) AddLost(records int, at time.Time) {
	account, _ := id.Parse(id.Account, w.cfg.OperatorID)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lost += uint64(records)
	w.intake(account).loss.add(loss{int64(records), at, at})
}

// Lost returns the number of records lost since the start.
func (w *Writer) Lost() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lost
}

// Unwritten returns the number of records that are in memory and not in the store. If a write
// hangs, it does not wait, and returns 0.
func (w *Writer) Unwritten() (n int) {
	select {
	case w.writeLock <- struct{}{}:
	default:
		return 0
	}
	defer w.unlock()
	for _, chunks := range [][]audit.Chunk{w.sending.chunks, w.unsent.chunks} {
		for i := range chunks {
			n += chunks[i].Records
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, in := range w.intakes {
		n += in.table.Len()
	}
	return n
}

// Held returns the size of the records in memory that are not yet written, in bytes.
func (w *Writer) Held() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.held
}

// outcomeOf returns the outcome of an authentication: success unless check 3, 4 or 6
// refused the request (contract, section 7). A suspended owner is a refusal like check 4: the key is
// valid, and may not be used here.
func outcomeOf(d accesslog.Result) audit.Outcome {
	switch d {
	case accesslog.KeyInvalid:
		return audit.KeyInvalid
	case accesslog.KeyExpired:
		return audit.KeyExpired
	case accesslog.WrongGateway, accesslog.WrongScope, accesslog.OwnerSuspended:
		return audit.ScopeInsufficient
	case accesslog.AddressDenied:
		return audit.AddressNotAllowed
	default:
		return audit.Success
	}
}
