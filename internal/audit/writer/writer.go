// Package writer keeps the audit records of both planes: it takes them from the
// request path, writes them to the open ends of their accounts' logs many times
// a second, and seals what is full or old into blocks that are chained.
//
//	data plane ─► Take ─┐              every 100 ms            4096 records, 10 min
//	                    ├─► memory ─────────────────► chunks ──────────────────────► blocks
//	API ─────► Record ──┘                               ▲
//	                       a change's own transaction ──┘ management records
//
// Memory is bounded. What a store that is slow or full cannot take is counted,
// and told by a record of the log itself once the store is back.
package writer

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/service"
)

// Store keeps open ends and blocks.
type Store interface {
	// AppendAuditChunks adds chunks and management records to the open ends of
	// their accounts' logs, in one transaction.
	AppendAuditChunks(ctx context.Context, chunks []audit.Chunk, records []*audit.Record) error
	// JoinAuditChunks puts one chunk in the place of all of its account up to its ID.
	JoinAuditChunks(ctx context.Context, chunk audit.Chunk) error
	AuditOpen(ctx context.Context, accountID string) (*audit.Open, error)
	// SealAudit moves records from an open end to the chain, in one transaction.
	SealAudit(ctx context.Context, s *audit.Seal) error
}

// Keeper knows all accounts' logs.
type Keeper interface {
	AuditWaiting(ctx context.Context) ([]audit.Waiting, error)
	// TrimAudit removes what is too old or too much, in one short transaction;
	// nil is the end of the work.
	TrimAudit(ctx context.Context, now time.Time, maxBytes int64) (*audit.Trimmed, error)
	AuditChains(ctx context.Context) ([]audit.Chain, error)
}

// The defaults.
const (
	DefaultPeriod   = 100 * time.Millisecond
	DefaultMaxHeld  = 64 << 20
	DefaultMaxBytes = 50 << 30

	upkeepPeriod = 10 * time.Second
	trimPeriod   = time.Minute
	headPeriod   = time.Hour
	sealAfter    = 10 * time.Minute
)

// Config is what a Writer is made of. Store and Keeper are required.
type Config struct {
	Store  Store
	Keeper Keeper
	// OperatorID is the account default: of records that belong to no account,
	// as those of keys that nobody has.
	OperatorID string
	// MaxBytes is what the blocks of all accounts may take; 0 is
	// DefaultMaxBytes.
	MaxBytes int64
	// Period is how often records are written; 0 is DefaultPeriod.
	Period time.Duration
	// MaxHeld is how many bytes of memory the records may take that are not
	// written yet; 0 is DefaultMaxHeld. What comes beyond is lost, and counted.
	MaxHeld int
	Now     func() time.Time // nil is time.Now
	Log     *slog.Logger
}

// Writer is the audit log's way into the store. It is safe for concurrent use.
type Writer struct {
	cfg   Config
	codec *audit.Codec

	mu      sync.Mutex // of what follows
	intakes map[[16]byte]*intake
	held    int    // bytes that are not in the store
	lost    uint64 // records, ever

	// turn is held by whoever writes. It is a channel so that waiting for it
	// ends with a context.
	turn    chan struct{}
	sealing audit.Table               // of the block that is made; under turn
	unsent  []audit.Chunk             // encoded, and not in the store; under turn
	weight  int                       // what they count in held; under turn
	gaps    map[string]*loss          // to be told, by account; under turn
	open    map[string]*audit.Waiting // what of each account is open; under turn
	rest    int                       // writes that seal nothing; under turn
	last    time.Time                 // when it was last written; under turn
	failed  time.Time                 // when a failure was last logged; under turn

	keeping       sync.Mutex       // held by Upkeep, before the turn; of what follows
	trimmed, told time.Time        // when it last did
	heads         map[string]int64 // the number of the head last logged

	group service.Group
}

// intake is what came of one account since it was last written.
type intake struct {
	table, other *audit.Table // one is filled while the other is written
	weight       int          // of table, in held
	loss         loss
	idle         int // times that it was found empty
}

// loss is records that are missing.
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

// New returns a journal that writes nothing by itself until Start.
func New(cfg Config) (*Writer, error) {
	if cfg.Store == nil || cfg.Keeper == nil {
		return nil, errors.New("make the audit journal: Store and Keeper are required")
	}
	if cfg.MaxBytes == 0 {
		cfg.MaxBytes = DefaultMaxBytes
	}
	if cfg.Period == 0 {
		cfg.Period = DefaultPeriod
	}
	if cfg.MaxHeld == 0 {
		cfg.MaxHeld = DefaultMaxHeld
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	codec, err := audit.NewCodec()
	if err != nil {
		return nil, err
	}
	return &Writer{
		cfg: cfg, codec: codec, intakes: map[[16]byte]*intake{}, turn: make(chan struct{}, 1),
		gaps: map[string]*loss{}, open: map[string]*audit.Waiting{}, heads: map[string]int64{},
	}, nil
}

// recordWeight is about what a record takes in memory beside its texts.
const recordWeight = 64

// Take implements outcome.Sink: it keeps authentication events.
func (j *Writer) Take(batch []accesslog.Entry) {
	j.mu.Lock()
	defer j.mu.Unlock()
	var account [16]byte
	var in *intake
	for i := range batch {
		e := &batch[i]
		if !e.Authenticated || e.Part == accesslog.Ended {
			continue
		}
		if in == nil || e.Account != account {
			account, in = e.Account, j.intake(e.Account)
		}
		if j.held >= j.cfg.MaxHeld {
			j.lose(in, time.UnixMicro(e.Start))
			continue
		}
		before := in.table.Texts()
		in.table.AddEvent(&audit.Event{
			Time: e.Start, Request: e.Request, Gateway: e.Gateway, Key: e.Key, Client: e.Client, Prefix: e.Prefix,
			Outcome: outcomeOf(e.Result), Method: e.MethodName(), Path: e.Path,
		})
		j.weigh(in, before)
	}
}

// Record keeps an authentication event of the management plane. It does not
// wait for the store.
func (j *Writer) Record(r *audit.Record) {
	account, ok := id.Parse(id.Account, r.AccountID)
	if !ok {
		account, _ = id.Parse(id.Account, j.cfg.OperatorID)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	in := j.intake(account)
	if j.held >= j.cfg.MaxHeld {
		j.lose(in, r.Time)
		return
	}
	before := in.table.Texts()
	if err := in.table.Add(r); err != nil {
		j.lose(in, r.Time)
		return
	}
	j.weigh(in, before)
}

func (j *Writer) intake(account [16]byte) *intake {
	in := j.intakes[account]
	if in == nil {
		in = &intake{table: &audit.Table{}, other: &audit.Table{}}
		j.intakes[account] = in
	}
	return in
}

func (j *Writer) weigh(in *intake, before int) {
	w := recordWeight + in.table.Texts() - before
	in.weight += w
	j.held += w
}

func (j *Writer) lose(in *intake, at time.Time) {
	j.lost++
	in.loss.add(loss{1, at, at})
}

// Lost returns how many records were lost, ever.
func (j *Writer) Lost() uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.lost
}

// Held returns how many bytes of memory the records take that are not written
// yet.
func (j *Writer) Held() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.held
}

// outcomeOf tells how the authentication ended: whatever checks 3, 4 and 6 did
// not refuse is a success (contract, section 7).
func outcomeOf(d accesslog.Result) audit.Outcome {
	switch d {
	case accesslog.KeyInvalid:
		return audit.KeyInvalid
	case accesslog.KeyExpired:
		return audit.KeyExpired
	case accesslog.WrongGateway, accesslog.WrongScope:
		return audit.ScopeInsufficient
	default:
		return audit.Success
	}
}
