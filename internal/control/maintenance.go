package control

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/keygate/keygate/internal/service"
)

// How often the upkeep looks, and how long the records that it removes are
// kept (contract, sections 2 and 6). A node that follows the change log and
// was away for longer than the log goes back loads everything again.
const (
	DefaultExpiryPeriod = time.Second
	DefaultTrimPeriod   = time.Minute

	changesKept = time.Hour
	eventsKept  = 7 * 24 * time.Hour
	daysKept    = 2 // the day that runs and the one before
	trimBatch   = 200

	deliveredKept = 3 * 24 * time.Hour
	failedKept    = 7 * 24 * time.Hour
	// A delivery has up to five attempts with 8 KiB each: fewer at a time.
	deliveryBatch = 25
)

// MaintenanceConfig is what an Maintenance is made of. Service and Store are required.
type MaintenanceConfig struct {
	Service      *Service
	Store        Store
	Now          func() time.Time // nil is time.Now
	ExpiryPeriod time.Duration    // 0 is DefaultExpiryPeriod
	TrimPeriod   time.Duration    // 0 is DefaultTrimPeriod
	Log          *slog.Logger
}

// Maintenance does what time asks of a store: it tells expiries and removes what is
// kept no longer. Several nodes over one store may run one each.
type Maintenance struct {
	cfg      MaintenanceConfig
	expiry   loop
	stranded loop
	trim     loop
	group    service.Group
}

// NewMaintenance returns an Maintenance that stands still until Start.
func NewMaintenance(cfg MaintenanceConfig) (*Maintenance, error) {
	if cfg.Service == nil || cfg.Store == nil {
		return nil, errors.New("control: Service and Store are required")
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
	u := &Maintenance{cfg: cfg}
	log := logOr(cfg.Log)
	u.expiry = loop{name: "telling of expired keys", period: cfg.ExpiryPeriod, step: u.notifyExpired, log: log}
	u.stranded = loop{name: "failing what waits for ended endpoints", period: cfg.ExpiryPeriod, step: u.failStranded, log: log}
	u.trim = loop{name: "removing old records", period: cfg.TrimPeriod, step: u.removeOld, log: log}
	return u, nil
}

// Start begins the maintenance, until Stop.
func (u *Maintenance) Start(context.Context) error {
	if err := u.group.Start(u.expiry.run, u.stranded.run, u.trim.run); err != nil {
		return fmt.Errorf("start the maintenance: %w", err)
	}
	return nil
}

// Stop ends the maintenance; a transaction that runs is waited for. It returns an
// error if that takes longer than ctx.
func (u *Maintenance) Stop(ctx context.Context) error {
	if err := u.group.Stop(ctx); err != nil {
		return fmt.Errorf("stop the maintenance: %w", err)
	}
	return nil
}

func (u *Maintenance) notifyExpired(ctx context.Context) error {
	_, err := u.cfg.Service.NotifyExpired(ctx)
	return err
}

// repeat runs short transactions, of which a change waits for one at most, until
// one finds no more to do.
func (u *Maintenance) repeat(ctx context.Context, f func(tx Tx, now time.Time) (more bool, err error)) error {
	for {
		more := false
		err := u.cfg.Store.Update(ctx, func(tx Tx) (err error) {
			more, err = f(tx, u.cfg.Now().UTC())
			return err
		})
		if err != nil || !more {
			return err
		}
	}
}

func (u *Maintenance) failStranded(ctx context.Context) error {
	var ids []string
	err := u.cfg.Store.View(ctx, func(tx ReadTx) (err error) { // most of the time there is none
		ids, err = tx.StrandingWebhooks(ctx)
		return err
	})
	for _, webhookID := range ids {
		err = errors.Join(err, u.repeat(ctx, func(tx Tx, now time.Time) (bool, error) {
			return tx.FailStranded(ctx, webhookID, now, strandedBatch)
		}))
	}
	return err
}

func (u *Maintenance) removeOld(ctx context.Context) error {
	err := u.repeat(ctx, func(tx Tx, now time.Time) (bool, error) {
		day := now.Unix()/86400 - (daysKept - 1)
		return tx.Trim(ctx, now.Add(-responsesKept), now.Add(-changesKept), now.Add(-eventsKept), day, trimBatch)
	})
	return errors.Join(err, u.repeat(ctx, func(tx Tx, now time.Time) (bool, error) {
		return tx.TrimDeliveries(ctx, now.Add(-deliveredKept), now.Add(-failedKept), deliveryBatch)
	}))
}
