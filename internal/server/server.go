package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/adminapi"
	auditwriter "github.com/keygate/keygate/internal/audit/writer"
	"github.com/keygate/keygate/internal/clientip"
	"github.com/keygate/keygate/internal/config"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/edge"
	"github.com/keygate/keygate/internal/netguard"
	"github.com/keygate/keygate/internal/ratelimit"
	requestwriter "github.com/keygate/keygate/internal/requestlog/writer"
	"github.com/keygate/keygate/internal/secret"
	"github.com/keygate/keygate/internal/snapshot"
	"github.com/keygate/keygate/internal/store/sqlite"
	"github.com/keygate/keygate/internal/telemetry"
	"github.com/keygate/keygate/internal/telemetry/trace"
	"github.com/keygate/keygate/internal/traffic/meter"
	"github.com/keygate/keygate/internal/upstream"
	"github.com/keygate/keygate/internal/webhook/sender"
)

// Config is what a server is made of.
type Config struct {
	// Settings are from package config. Required.
	Settings *config.Config
	// Log receives what happens. Nil discards.
	Log *slog.Logger
	// Out is told of the first start; the key itself only if OutIsTerminal. Nil
	// discards.
	Out           io.Writer
	OutIsTerminal bool
	// Env looks up the variables of OpenTelemetry. Nil has none.
	Env func(name string) (string, bool)
	// Version is shown in /metrics.
	Version string
}

// Server is a running server.
type Server struct {
	cfg       Config
	log       *slog.Logger
	lock      *lock
	listeners listeners
	readiness telemetry.Readiness
	metrics   *telemetry.Metrics
	requests  *telemetry.Requests
	traces    *trace.Settings // nil if nobody asks for traces
	tracer    *trace.Tracer
	trust     *clientip.Trust

	certificates certificates

	db         *sqlite.DB
	collector  *accesslog.Collector
	journal    *auditwriter.Writer
	operatorID string // of the account default
	meter      *meter.Meter
	recorder   *requestwriter.Writer
	guard      *netguard.Guard
	sender     *sender.Sender

	ledger      *ratelimit.Reserver
	live        *snapshot.Follower
	pools       *upstream.Pools
	maintenance *control.Maintenance
	usage       *control.Usage
	gateway     *edge.Server
	admin       *http.Server
	ops         *http.Server

	undo   []func(ctx context.Context) error // how to end what was started, in the order of starting
	group  sync.WaitGroup                    // of the goroutines below
	failed chan error                        // a listener that ended by itself
}

// Start builds a server and starts it; when it returns, the server is ready.
// What was started is ended again if a later part fails.
func Start(ctx context.Context, cfg Config) (_ *Server, err error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Out == nil {
		cfg.Out = io.Discard
	}
	s := &Server{cfg: cfg, log: cfg.Log, metrics: telemetry.NewMetrics(cfg.Version), failed: make(chan error, 3)}
	s.trust = clientip.NewTrust(cfg.Settings.TrustedProxies)
	defer func() {
		if err != nil {
			err = errors.Join(err, s.end(context.WithoutCancel(ctx)))
		}
	}()
	begun := time.Now()
	for _, step := range []func(context.Context) error{
		s.readTraces, s.openCertificates, s.claim, s.serveOps, s.openPlanes, s.startServices, s.servePlanes,
	} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	s.readiness.Set(telemetry.Ready)
	s.log.Info("ready", "gateway", s.GatewayAddr(), "admin", s.AdminAddr(), "ops", s.OpsAddr(), "data_dir", cfg.Settings.DataDir,
		"after", time.Since(begun).Round(time.Millisecond).String(), "pid", os.Getpid())
	return s, nil
}

// GatewayAddr returns the address of the data plane in use, with the port that
// the system chose if the setting had port 0.
func (s *Server) GatewayAddr() string { return s.listeners.gateway.Addr().String() }

// AdminAddr returns the address of the management API in use.
func (s *Server) AdminAddr() string { return s.listeners.admin.Addr().String() }

// OpsAddr returns the address of /livez, /readyz and /metrics in use.
func (s *Server) OpsAddr() string { return s.listeners.ops.Addr().String() }

// Failed gives an error if a listener ends by itself; the server is then to be
// stopped.
func (s *Server) Failed() <-chan error { return s.failed }

// started notes how to end what was just started.
func (s *Server) started(stop func(ctx context.Context) error) { s.undo = append(s.undo, stop) }

// end ends what was started, the last first.
func (s *Server) end(ctx context.Context) error {
	var errs []error
	for i := len(s.undo) - 1; i >= 0; i-- {
		errs = append(errs, s.undo[i](ctx))
	}
	s.undo = nil
	s.group.Wait()
	return errors.Join(errs...)
}

// claim takes the data directory and binds the listeners, so that whatever
// else runs here is noticed before anything is changed.
func (s *Server) claim(ctx context.Context) (err error) {
	if err := prepareDataDir(s.cfg.Settings.DataDir); err != nil {
		return err
	}
	if s.lock, err = takeLock(ctx, s.cfg.Settings.LockFile()); err != nil {
		return err
	}
	s.started(func(context.Context) error {
		s.lock.release()
		return nil
	})
	if s.listeners, err = listen(ctx, s.cfg.Settings); err != nil {
		return err
	}
	s.started(func(context.Context) error {
		s.listeners.close()
		return nil
	})
	return nil
}

// serveOps serves /livez from now on, to the very end.
func (s *Server) serveOps(context.Context) error {
	s.ops = newHTTPServer(telemetry.OpsHandler(&s.readiness, s.metrics, s.cfg.Settings.Pprof), s.log)
	s.ops.WriteTimeout = 0 // a profile takes as long as it was asked for
	s.run("ops", func() error { return s.ops.Serve(s.listeners.ops) })
	s.started(func(context.Context) error { return s.ops.Close() })
	return nil
}

// openPlanes opens the store, loads the snapshot and builds both planes.
func (s *Server) openPlanes(ctx context.Context) error {
	settings := s.cfg.Settings
	db, box, err := openStore(ctx, settings, s.log)
	if err != nil {
		return err
	}
	s.db = db
	s.started(func(context.Context) error { return db.Close() })
	if s.ledger, err = ratelimit.NewReserver(ratelimit.ReserverConfig{Store: db, Log: s.log}); err != nil {
		return err
	}
	if err := s.ledger.Start(ctx); err != nil {
		return fmt.Errorf("read the daily counts: %w", err)
	}
	s.started(s.ledger.Stop)

	watch := ratelimit.NewClock()
	if s.live, err = snapshot.New(snapshot.Config{
		Source: db, Reserver: s.ledger, OpenSealed: box.Open, GatewayDomain: settings.GatewayDomain,
		DefaultGlobalLimit: settings.DefaultGlobalLimit, Now: watch.Now, Log: s.log,
	}); err != nil {
		return err
	}
	if err := s.load(ctx); err != nil {
		return fmt.Errorf("load the configuration: %w", err)
	}
	if err := s.makeFirst(ctx, box); err != nil {
		return err
	}
	s.guard = netguard.New()
	s.guard.SetListeners(s.listeners.addresses()...)
	if err := s.startHooks(ctx, box); err != nil {
		return err
	}
	if err := s.startRecords(ctx); err != nil {
		return err
	}
	if err := s.buildGateway(watch); err != nil {
		return err
	}
	return s.buildAdmin(ctx, box, watch.Now)
}

// makeFirst makes the account default and its key in an empty store.
func (s *Server) makeFirst(ctx context.Context, box *secret.Box) error {
	ops, err := newControl(s.cfg.Settings, s.db, box, surroundings{publisher: s.live}, s.log)
	if err != nil {
		return err
	}
	remake := func(ctx context.Context, accountName string) (string, error) {
		k, err := ops.CreateAccountKey(ctx, accountName, "admin")
		if err != nil {
			return "", err
		}
		return k.Secret, nil
	}
	if err := firstStart(ctx, s.cfg.Settings, ops, remake, s.cfg.Out, s.cfg.OutIsTerminal); err != nil {
		return err
	}
	return s.db.View(ctx, func(tx control.ReadTx) error {
		operator, err := tx.AccountByName(ctx, account.Default)
		if err != nil {
			return fmt.Errorf("find the operator's account: %w", err)
		}
		s.operatorID = operator.ID
		return nil
	})
}

func (s *Server) buildAdmin(ctx context.Context, box *secret.Box, clock func() ratelimit.Instant) error {
	ops, err := newControl(s.cfg.Settings, s.db, box, surroundings{
		publisher: s.live, wake: s.sender.Wake, recall: s.sender.Recall, audit: inTurn{s.collector, s.journal},
		sources: control.Sources{AccessLog: s.collector, Traffic: s.meter, Requests: s.recorder, Levels: s.live},
	}, s.log)
	if err != nil {
		return err
	}
	if s.maintenance, err = control.NewMaintenance(control.MaintenanceConfig{Service: ops, Store: s.db, Log: s.log}); err != nil {
		return err
	}
	if s.usage, err = control.NewUsage(control.UsageConfig{Store: s.db, Drain: s.live.DrainUsed, Log: s.log}); err != nil {
		return err
	}
	api, err := adminapi.New(adminapi.Config{
		Control: ops, Authenticate: adminapi.BySnapshot(s.live), Settings: s.settings, ClientIP: s.trust.ClientIP, Clock: clock,
		Recorder: s.journal, Log: s.log,
	})
	if err != nil {
		return err
	}
	s.admin = newHTTPServer(s.metrics.Count("admin", api), s.log)
	return nil
}

func (s *Server) settings() []adminapi.Setting {
	var out []adminapi.Setting
	for _, v := range s.cfg.Settings.Values() {
		out = append(out, adminapi.Setting{Name: v.Name, Value: v.Text, Source: v.Source})
	}
	return out
}

// startServices starts what works in the background.
func (s *Server) startServices(ctx context.Context) error {
	if err := s.live.Start(ctx); err != nil {
		return err
	}
	s.started(s.live.Stop)
	if err := s.maintenance.Start(ctx); err != nil {
		return err
	}
	s.started(s.maintenance.Stop)
	if err := s.usage.Start(ctx); err != nil {
		return err
	}
	s.started(s.usage.Stop)
	return nil
}

// servePlanes begins to answer on both planes.
func (s *Server) servePlanes(context.Context) error {
	s.run("gateway", func() error { return s.gateway.Serve(s.listeners.gateway) })
	s.run("admin", func() error { return s.admin.Serve(s.secured(s.listeners.admin)) })
	return nil
}

// run serves a listener until it is closed.
func (s *Server) run(name string, serve func() error) {
	s.group.Go(func() {
		if err := serve(); err != nil && !errors.Is(err, http.ErrServerClosed) && s.readiness.Phase() != telemetry.Draining {
			s.failed <- fmt.Errorf("the %s listener ended: %w", name, err)
		}
	})
}

// Stop drains the server and ends it. /readyz answers 503 from its first
// moment; both planes stop accepting and finish what runs, for as long as
// ctx allows; then everything in memory is written and the store closed. That
// requests were cut off is no error.
func (s *Server) Stop(ctx context.Context) error {
	s.readiness.Set(telemetry.Draining)
	s.log.Info("shutting down")
	var planes sync.WaitGroup
	var gatewayErr, adminErr error
	planes.Go(func() { gatewayErr = s.gateway.Shutdown(ctx) })
	planes.Go(func() { adminErr = shutdown(ctx, s.admin, s.log) })
	planes.Wait()
	// What follows must not be cut short because the requests took all the
	// time that there was.
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	err := errors.Join(gatewayErr, adminErr, s.end(closing))
	s.log.Info("ended")
	return err
}

// closeTimeout is for writing what is in memory after the drain.
const closeTimeout = 10 * time.Second

func shutdown(ctx context.Context, srv *http.Server, log *slog.Logger) error {
	err := srv.Shutdown(ctx)
	if err != nil && ctx.Err() != nil {
		log.Warn("management calls were cut off by the end of the drain")
		return srv.Close()
	}
	return err
}

// load fills the snapshot. With a million keys that is a heap which only grows:
// at its usual pace the collector would look through all of it at each doubling,
// and take as long as the loading itself.
func (s *Server) load(ctx context.Context) error {
	const pace = 400 // percent of growth between two collections
	if usual := debug.SetGCPercent(pace); usual < 0 || usual > pace {
		debug.SetGCPercent(usual) // somebody knows better
	} else {
		defer debug.SetGCPercent(usual)
	}
	return s.live.Load(ctx)
}

// newHTTPServer returns a server with time-outs for callers that stall.
func newHTTPServer(h http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       2 * time.Minute, // 16 MiB over a slow line
		WriteTimeout:      3 * time.Minute,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,

		DisableGeneralOptionsHandler: true, // OPTIONS * is refused like any path that is not there
		ErrorLog:                     slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}
