package control

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

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

	deliveredKept = 3 * 24 * time.Hour
	failedKept    = 7 * 24 * time.Hour
	// A delivery has up to five attempts of 8 KiB each, so batches are smaller.
	deliveryBatch = 25
)

// MaintenanceConfig configures a Maintenance. Service and Store are required.
type MaintenanceConfig struct {
	Service      *Service
	Store        Store
	Now          func() time.Time // nil means time.Now
	ExpiryPeriod time.Duration    // 0 means DefaultExpiryPeriod
	TrimPeriod   time.Duration    // 0 means DefaultTrimPeriod
	Log          *slog.Logger
}

// Maintenance does the periodic work on a store: it raises key.expired, fails the deliveries of
// disabled and deleted endpoints, and removes records after their retention and those of deleted
// accounts. Several nodes over one
// store may each run one.
type Maintenance struct {
	cfg      MaintenanceConfig
	expiry   loop
	stranded loop
	trim     loop
	removal  loop
	group    service.Group
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
	if cfg.ExpiryPeriod == 0 {
		cfg.ExpiryPeriod = DefaultExpiryPeriod
	}
	if cfg.TrimPeriod == 0 {
		cfg.TrimPeriod = DefaultTrimPeriod
	}
	m := &Maintenance{cfg: cfg}
	log := logOr(cfg.Log)
	m.expiry = loop{name: "raising key.expired", period: cfg.ExpiryPeriod, step: m.notifyExpired, log: log}
	m.stranded = loop{name: "failing deliveries of disabled or deleted endpoints", period: cfg.ExpiryPeriod, step: m.failStranded, log: log}
	m.trim = loop{name: "removing old records", period: cfg.TrimPeriod, step: m.removeOld, log: log}
	m.removal = loop{name: "removing the records of deleted accounts", period: cfg.ExpiryPeriod, step: m.removeAccounts, log: log}
	return m, nil
}

// Start starts the maintenance, which runs until Stop.
func (m *Maintenance) Start(context.Context) error {
	if err := m.group.Start(m.expiry.run, m.stranded.run, m.trim.run, m.removal.run); err != nil {
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

func (m *Maintenance) notifyExpired(ctx context.Context) error {
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
	var ids []string
	err := m.cfg.Store.View(ctx, func(tx ReadTx) (err error) { // usually there is none
		ids, err = tx.StrandingWebhooks(ctx)
		return err
	})
	for _, webhookID := range ids {
		err = errors.Join(err, m.repeat(ctx, func(tx Tx, now time.Time) (bool, error) {
			return tx.FailStranded(ctx, webhookID, now, strandedBatch)
		}))
	}
	return err
}

func (m *Maintenance) removeOld(ctx context.Context) error {
	err := m.repeat(ctx, func(tx Tx, now time.Time) (bool, error) {
		day := now.Unix()/86400 - (daysKept - 1)
		return tx.Trim(ctx, now.Add(-responsesKept), now.Add(-changesKept), now.Add(-eventsKept), day, trimBatch)
	})
	return errors.Join(err, m.repeat(ctx, func(tx Tx, now time.Time) (bool, error) {
		return tx.TrimDeliveries(ctx, now.Add(-deliveredKept), now.Add(-failedKept), deliveryBatch)
	}))
}

func (m *Maintenance) removeAccounts(ctx context.Context) error {
	var ids []string
	err := m.cfg.Store.View(ctx, func(tx ReadTx) (err error) { // usually there is none
		ids, err = tx.DeletedAccounts(ctx)
		return err
	})
	for _, accountID := range ids {
		for more := true; more && err == nil; {
			more, err = removeAccount(ctx, m.cfg.Store, accountID, 1)
		}
	}
	return err
}
