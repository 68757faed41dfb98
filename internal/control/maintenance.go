package control

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/keygate/keygate/internal/issuer"
	"github.com/keygate/keygate/internal/service"
)

// The periods of the maintenance, and how long records are kept (contract, sections 2 and 6). A
// node that was away for longer than changesKept loads the whole configuration again.
const (
	DefaultExpiryPeriod = time.Second
	DefaultTrimPeriod   = time.Minute

	changesKept = time.Hour
	eventsKept  = 7 * 24 * time.Hour
	daysKept    = 2 // today and yesterday
	trimBatch   = 200

	// Of a gateway, the revisions of the last 400 days are kept, or the newest 1,000 if they are more.
	revisionsKept   = 400 * 24 * time.Hour
	newestRevisions = 1000
	revisionBatch   = 50

	// A push takes seconds from its preparation to its transaction.
	preparedKept = 10 * time.Minute
	// A page of routes or a part of a revision has up to 128 KiB.
	tableBatch = 25

	// The requests of a window are written some seconds after its end at the latest.
	windowsKept = 48 * time.Hour
	// At each trim, so many quotas are looked at whether their subject exists.
	strayBatch, strayBatches = 1000, 10

	deliveredKept = 3 * 24 * time.Hour
	failedKept    = 7 * 24 * time.Hour
	// A delivery has up to five attempts of 8 KiB each, so batches are smaller.
	deliveryBatch = 25
)

// MaintenanceConfig configures a Maintenance. Service and Store are required.
type MaintenanceConfig struct {
	Service *Service
	Store   Store
	Now     func() time.Time // nil means time.Now
	// Retention returns the time by which records are past their retention, or the zero time
	// if that is not known yet; see retention.Clock. Nil means Now.
	Retention func() time.Time
	// Settled reports whether the clock may be believed that keys have expired; see retention.Clock. Nil
	// believes it at once.
	Settled      func() bool
	ExpiryPeriod time.Duration // 0 means DefaultExpiryPeriod
	TrimPeriod   time.Duration // 0 means DefaultTrimPeriod
	Log          *slog.Logger
}

// Maintenance does the periodic work on a store: it raises key.expired, fails the deliveries of
// disabled and deleted endpoints, removes records after their retention and all records of deleted accounts, finishes
// the deletion of gateways and imports of keys, indexes keys for searches, and lets the store learn the sizes of tables. Several nodes over one store may each run one.
type Maintenance struct {
	cfg   MaintenanceConfig
	work  []periodic
	stray int64 // where removeQuotas goes on
	group service.Group
}

// NewMaintenance returns a Maintenance, which does nothing until Start.
func NewMaintenance(cfg MaintenanceConfig) (*Maintenance, error) {
	if cfg.Service == nil {
		return nil, errors.New("control: MaintenanceConfig.Service is required")
	}
	if cfg.Store == nil {
		return nil, errors.New("control: MaintenanceConfig.Store is required")
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Retention == nil {
		cfg.Retention = cfg.Now
	}
	cfg.ExpiryPeriod = cmp.Or(cfg.ExpiryPeriod, DefaultExpiryPeriod)
	cfg.TrimPeriod = cmp.Or(cfg.TrimPeriod, DefaultTrimPeriod)
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	m := &Maintenance{cfg: cfg}
	m.work = []periodic{
		{name: "raising key.expired", period: cfg.ExpiryPeriod, step: m.notifyExpired, log: cfg.Log},
		{name: "failing deliveries of disabled or deleted endpoints", period: cfg.ExpiryPeriod, step: m.failStranded, log: cfg.Log},
		{name: "removing old records", period: cfg.TrimPeriod, step: m.removeOld, log: cfg.Log},
		{name: "removing the records of deleted accounts", period: cfg.ExpiryPeriod, step: m.removeAccounts, log: cfg.Log},
		{name: "finishing the deletion of gateways", period: cfg.ExpiryPeriod, step: m.cfg.Service.FinishDeletions, log: cfg.Log},
		{name: "finishing imports of keys", period: cfg.ExpiryPeriod, step: m.cfg.Service.FinishImports, log: cfg.Log},
		{name: "indexing keys for searches", period: cfg.ExpiryPeriod, step: m.indexKeys, log: cfg.Log},
		{name: "learning the sizes of tables", period: cfg.ExpiryPeriod, step: m.cfg.Store.Analyze, log: cfg.Log},
	}
	return m, nil
}

// Start starts the maintenance, which runs until Stop.
func (m *Maintenance) Start(context.Context) error {
	var runs []func(context.Context)
	for i := range m.work {
		runs = append(runs, m.work[i].run)
	}
	if err := m.group.Start(runs...); err != nil {
		return fmt.Errorf("start the maintenance: %w", err)
	}
	return nil
}

// Stop stops the maintenance and waits for a running transaction. It returns an error if ctx
// ends first.
func (m *Maintenance) Stop(ctx context.Context) error {
	if err := m.group.Stop(ctx); err != nil {
		return fmt.Errorf("stop the maintenance: %w", err)
	}
	return nil
}

// notifyExpired raises key.expired. Until the clock is settled it does nothing: an event cannot be taken back.
func (m *Maintenance) notifyExpired(ctx context.Context) error {
	if m.cfg.Settled != nil && !m.cfg.Settled() {
		return nil
	}
	_, err := m.cfg.Service.NotifyExpired(ctx)
	return err
}

// repeat runs f in short transactions until there is nothing more to do. A change waits for one
// of them at most.
func (m *Maintenance) repeat(ctx context.Context, f func(tx Tx, now time.Time) (more bool, err error)) error {
	for {
		more := false
		err := m.cfg.Store.Update(ctx, func(tx Tx) (err error) {
			more, err = f(tx, m.cfg.Now().UTC())
			return err
		})
		if err != nil || !more {
			return err
		}
	}
}

func (m *Maintenance) failStranded(ctx context.Context) error {
	ids, err := readIn(ctx, m.cfg.Store.View, func(tx ReadTx) ([]string, error) { return tx.StrandingWebhooks(ctx) }) // usually none
	for _, webhookID := range ids {
		err = errors.Join(err, m.repeat(ctx, func(tx Tx, now time.Time) (bool, error) {
			return tx.FailStranded(ctx, webhookID, now, strandedBatch)
		}))
	}
	return err
}

func (m *Maintenance) removeOld(ctx context.Context) error {
	now := m.cfg.Retention().UTC()
	err := m.repeat(ctx, func(tx Tx, _ time.Time) (bool, error) {
		day := now.Unix()/86400 - (daysKept - 1)
		return tx.Trim(ctx, now.Add(-responsesKept), now.Add(-changesKept), now.Add(-eventsKept), day, trimBatch)
	})
	err = errors.Join(err, m.removeRevisions(ctx, now))
	err = errors.Join(err, m.repeat(ctx, func(tx Tx, _ time.Time) (bool, error) {
		return tx.TrimTables(ctx, now.Add(-preparedKept), tableBatch)
	}))
	err = errors.Join(err, m.repeat(ctx, func(tx Tx, _ time.Time) (bool, error) {
		return tx.TrimSessions(ctx, now, trimBatch)
	}))
	err = errors.Join(err, m.repeat(ctx, func(tx Tx, _ time.Time) (bool, error) {
		return tx.TrimUsers(ctx, now, trimBatch)
	}))
	err = errors.Join(err, m.removeQuotas(ctx, now))
	err = errors.Join(err, m.repeat(ctx, func(tx Tx, _ time.Time) (bool, error) {
		return tx.TrimDenials(ctx, now.Add(-issuer.MaxLeeway), trimBatch)
	}))
	return errors.Join(err, m.repeat(ctx, func(tx Tx, _ time.Time) (bool, error) {
		return tx.TrimDeliveries(ctx, now.Add(-deliveredKept), now.Add(-failedKept), deliveryBatch)
	}))
}

// removeQuotas removes windows of quotas, and quotas of owners that were deleted. It takes some time until it has looked
// at all quotas.
func (m *Maintenance) removeQuotas(ctx context.Context, now time.Time) error {
	err := m.repeat(ctx, func(tx Tx, _ time.Time) (bool, error) { return tx.TrimQuotas(ctx, now.Add(-windowsKept), trimBatch) })
	for range strayBatches {
		var stray []int64
		next := int64(0)
		readErr := m.cfg.Store.View(ctx, func(tx ReadTx) (err error) {
			stray, next, err = tx.StrayQuotas(ctx, m.stray, strayBatch)
			return err
		})
		if readErr == nil && len(stray) > 0 {
			readErr = m.repeat(ctx, func(tx Tx, _ time.Time) (bool, error) { return tx.DeleteQuotas(ctx, stray, trimBatch) })
		}
		if readErr != nil {
			return errors.Join(err, readErr)
		}
		if m.stray = next; next == 0 {
			break
		}
	}
	return err
}

// removeRevisions reads before it takes the store's write lock, because usually there is nothing to do.
func (m *Maintenance) removeRevisions(ctx context.Context, now time.Time) error {
	kept := KeptRevisions{Newest: newestRevisions, Since: now.Add(-revisionsKept), AccountBytes: m.cfg.Service.cfg.Bounds.revisionBytes()}
	some, err := readIn(ctx, m.cfg.Store.View, func(tx ReadTx) (bool, error) { return tx.HasOldRevisions(ctx, kept) })
	if err != nil || !some {
		return err
	}
	return m.repeat(ctx, func(tx Tx, _ time.Time) (bool, error) { return tx.TrimRevisions(ctx, kept, revisionBatch) })
}

func (m *Maintenance) removeAccounts(ctx context.Context) error {
	ids, err := readIn(ctx, m.cfg.Store.View, func(tx ReadTx) ([]string, error) { return tx.DeletedAccounts(ctx) }) // usually none
	for _, accountID := range ids {
		for more := true; more && err == nil; {
			more, err = removeAccount(ctx, m.cfg.Store, accountID, 1)
		}
	}
	return err
}

// Indexing many keys, as after an upgrade, takes a minute; meanwhile the log shows the progress.
const (
	indexBatch  = 1000 // keys for one transaction, unless the store takes fewer
	manyToIndex = 50_000
	indexReport = 10 * time.Second
)

// indexKeys reads before it takes the store's write lock, because usually nothing has changed.
func (m *Maintenance) indexKeys(ctx context.Context) error {
	waiting, err := readIn(ctx, m.cfg.Store.View, func(tx ReadTx) (int, error) { return tx.KeysToIndex(ctx, manyToIndex) })
	if err != nil || waiting == 0 {
		return err
	}
	many := waiting == manyToIndex
	start := m.cfg.Now()
	indexed, reported := 0, start
	for done := 1; done > 0; indexed += done {
		err := m.cfg.Store.Update(ctx, func(tx Tx) (err error) {
			done, err = tx.IndexKeys(ctx, indexBatch)
			return err
		})
		if err != nil {
			return err
		}
		if now := m.cfg.Now(); many && now.Sub(reported) >= indexReport {
			reported = now
			m.cfg.Log.Info("indexing keys for searches; searches are slower until this is done", "indexed", indexed)
		}
	}
	if many {
		m.cfg.Log.Info("indexed keys for searches", "indexed", indexed, "took", m.cfg.Now().Sub(start))
	}
	return nil
}
