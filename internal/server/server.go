package server

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	accesswriter "github.com/keygate/keygate/internal/accesslog/writer"
	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/acme/order"
	"github.com/keygate/keygate/internal/adminapi"
	"github.com/keygate/keygate/internal/admit"
	auditwriter "github.com/keygate/keygate/internal/audit/writer"
	"github.com/keygate/keygate/internal/balance"
	"github.com/keygate/keygate/internal/canary/lead"
	"github.com/keygate/keygate/internal/certificate"
	"github.com/keygate/keygate/internal/clientip"
	"github.com/keygate/keygate/internal/config"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/dashboard"
	"github.com/keygate/keygate/internal/edge"
	"github.com/keygate/keygate/internal/event/detect"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/netguard"
	"github.com/keygate/keygate/internal/provider"
	"github.com/keygate/keygate/internal/proxy"
	"github.com/keygate/keygate/internal/ratelimit"
	"github.com/keygate/keygate/internal/ratelimit/limitstore"
	requestwriter "github.com/keygate/keygate/internal/requestlog/writer"
	"github.com/keygate/keygate/internal/resolve"
	"github.com/keygate/keygate/internal/retention"
	"github.com/keygate/keygate/internal/secret"
	"github.com/keygate/keygate/internal/service"
	"github.com/keygate/keygate/internal/snapshot"
	"github.com/keygate/keygate/internal/store"
	"github.com/keygate/keygate/internal/store/spooled"
	"github.com/keygate/keygate/internal/targetreport"
	"github.com/keygate/keygate/internal/telemetry"
	"github.com/keygate/keygate/internal/telemetry/trace"
	"github.com/keygate/keygate/internal/traffic/meter"
	"github.com/keygate/keygate/internal/upstream"
	"github.com/keygate/keygate/internal/validation"
	"github.com/keygate/keygate/internal/webhook/fanout"
	"github.com/keygate/keygate/internal/webhook/sender"
)

// Config configures a Server.
type Config struct {
	// Settings are the settings, from package config. Required.
	Settings *config.Config
	// Log receives log lines. Nil discards them.
	Log *slog.Logger
	// Out is standard output. It receives the message of the first start: the admin key
	// itself if OutIsTerminal, else the path of its file. With --access-log=stdout it also
	// receives the access log. Nil discards both.
	Out           io.Writer
	OutIsTerminal bool
	// Env looks up environment variables of OpenTelemetry. Nil means that none is
	// set.
	Env func(name string) (string, bool)
	// Sockets are listeners that another process has opened, by the names of SocketNames. They replace
	// the addresses in Settings. The server closes them.
	Sockets map[string]net.Listener
	// LogLost, if set, returns the number of log lines that were lost because Log could not write them.
	LogLost func() uint64
	// Reload, if set, receives an element whenever Run is to call Server.Reload.
	Reload <-chan os.Signal
	// Stopping, if set, is called when the server begins to stop.
	Stopping func()
	// Version is the version that /metrics, traces and GET /v1/settings report.
	Version string
	// Lease says whether this node may decide, on both planes. Nil means the lease that it has as one
	// of several nodes; a single node always may decide.
	Lease admit.Lease
	// Resolver resolves the names of upstreams, and hostnames for which certificates are ordered. Nil means the system's.
	Resolver *net.Resolver
	// ACMEPorts are the ports at which hostnames have to lead here for a certificate. Zero means 80 and 443.
	ACMEPorts order.Ports
	// ACMEClient makes the requests to the certificate authority. Nil means one that trusts the system's authorities.
	ACMEClient *http.Client
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
	traces    *trace.Settings // nil without traces
	tracer    *trace.Tracer
	trust     *clientip.Trust

	certificates certificates
	issued       issuedCertificates
	process      string // names this process among all that ever used the store
	descriptors  descriptors

	db         store.Engine
	records    store.Engine   // db for access records; with a spool if several nodes can share the database
	spool      *spooled.Store // nil without it
	node       *node          // nil without a database that several nodes can share
	collector  *accesslog.Collector
	auditLog   *auditwriter.Writer
	operatorID string // of the account default
	meter      *meter.Meter
	requestLog *requestwriter.Writer
	events     *detect.Detector
	accessLog  *accesswriter.Writer // nil without --access-log
	guard      *netguard.Guard
	sender     *sender.Sender
	fanOut     *fanout.Service
	backlog    *fanout.Backlog

	clock       *ratelimit.Clock
	retention   *retention.Clock
	reserver    *ratelimit.Reserver
	quotas      *ratelimit.QuotaKeeper
	slots       *ratelimit.SlotKeeper // nil without a database that several nodes can share
	sharing     *ratelimit.Sharing    // nil if there is nothing to share limits with
	limitStore  *limitstore.Store     // nil without --redis-url
	fleet       *balance.Fleet
	toCheck     service.Signal // what the fleet has to check has changed
	names       *resolve.Resolver
	reporter    *targetreport.Reporter // nil without a database that several nodes can share
	follower    *snapshot.Follower
	heavy       chan struct{} // slots for work on large documents and tables: half of the processors
	documents   *validation.Documents
	checker     *validation.Checker
	mismatches  *validation.Reporter
	pools       *upstream.Pools
	maintenance *control.Maintenance
	usage       *control.Usage
	leader      *lead.Leader   // nil without the management API
	orderer     *order.Orderer // nil without the management API or --acme-email

	repositories repositories
	issuerKeys   *provider.Fetcher
	gateway      *edge.Server
	admin        *http.Server
	adminSlots   *connSlots
	ops          *http.Server
	linger       proxy.Linger // of all listeners

	stopOnce sync.Once
	stopped  chan struct{} // closed when drainAndStop has returned
	stopErr  error         // of it

	shelved bool          // shelve was called
	running service.Stack // everything started or opened, in this order
	serving service.Group // a goroutine for each listener
	failed  chan error    // receives an error if a listener ends by itself
}

// Start builds a server and starts it. When it returns nil, the server is ready. If a
// step fails, Start stops everything that it started.
func Start(ctx context.Context, cfg Config) (_ *Server, err error) {
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	if cfg.Out == nil {
		cfg.Out = io.Discard
	}
	s := &Server{cfg: cfg, log: cfg.Log, metrics: telemetry.NewMetrics(cfg.Version), failed: make(chan error, 3)}
	s.trust = clientip.NewTrust(cfg.Settings.TrustedProxies)
	defer func() {
		if err != nil {
			err = errors.Join(err, s.stopRunning(context.WithoutCancel(ctx)))
		}
	}()
	began := time.Now()
	for _, step := range []func(context.Context) error{
		s.divideDescriptors, s.readTraces, s.openCertificates, s.claim, s.openAccessLog, s.serveOps, s.openPlanes, s.startServices, s.servePlanes,
	} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	s.readiness.Set(telemetry.Ready)
	s.log.Info("ready", "gateway", s.GatewayAddr(), "admin", s.AdminAddr(), "ops", s.OpsAddr(), "dashboard", s.AdminURL()+"/", "data_dir", cfg.Settings.DataDir,
		"after", time.Since(began).Round(time.Millisecond).String(), "pid", os.Getpid())
	return s, nil
}

// GatewayAddr returns the address that the data plane listens on, with the port that
// the system chose if the setting has port 0. It is "" without a data plane.
func (s *Server) GatewayAddr() string { return addrOf(s.listeners.gateway) }

// AdminAddr returns the address that the management API listens on, or "" without one.
func (s *Server) AdminAddr() string { return addrOf(s.listeners.admin) }

// OpsAddr returns the address that /livez, /readyz and /metrics listen on.
func (s *Server) OpsAddr() string { return s.listeners.ops.Addr().String() }

// Failed receives an error if a listener ends by itself. The caller must then stop the
// server.
func (s *Server) Failed() <-chan error { return s.failed }

// stopRunning stops and closes everything that was started, in the reverse order.
func (s *Server) stopRunning(ctx context.Context) error {
	err := s.running.Stop(ctx)
	// The listeners are closed, so serving on them ends at once.
	return errors.Join(err, s.serving.Stop(context.WithoutCancel(ctx)))
}

// claim locks the data directory and binds the listeners, so that a conflict with
// another server is found before anything changes.
func (s *Server) claim(ctx context.Context) (err error) {
	if err := prepareDataDir(s.cfg.Settings.DataDir, s.log); err != nil {
		return err
	}
	if s.lock, err = takeLock(ctx, s.cfg.Settings.LockFile()); err != nil {
		return err
	}
	s.pushClose(s.lock.release)
	if s.listeners, err = listen(ctx, s.cfg.Settings, s.cfg.Sockets); err != nil {
		return err
	}
	s.pushClose(s.listeners.close)
	return nil
}

// serveOps serves /livez, from now until everything else has stopped.
func (s *Server) serveOps(context.Context) error {
	s.ops = newHTTPServer(telemetry.OpsHandler(&s.readiness, s.metrics, s.cfg.Settings.Pprof), s.log)
	slots := s.bound(s.ops, s.descriptors.ops, "ops")
	s.ops.WriteTimeout = 0 // a profile may take as long as the client asks
	s.serve("ops", func() error { return s.ops.Serve(slots.Listener(s.listeners.ops)) })
	s.running.Push(func(ctx context.Context) error {
		err := s.ops.Close()
		ended, cancel := context.WithCancel(ctx)
		cancel() // nothing more is waited for
		slots.Stop(ended)
		return err
	})
	return nil
}

// openPlanes opens the store, loads the snapshot and builds both planes.
func (s *Server) openPlanes(ctx context.Context) error {
	settings := s.cfg.Settings
	if err := prepareFirstStart(settings); err != nil {
		return err
	}
	db, box, err := s.awaitStore(ctx)
	if err != nil {
		return err
	}
	s.db = db
	s.running.Push(func(context.Context) error { return db.Close() })
	s.readiness.SetDegraded(s.trouble)
	s.clock = ratelimit.NewClock()
	if err := s.openNode(ctx, db); err != nil {
		return err
	}
	if err := s.running.Start(ctx, &prober{db: db}); err != nil {
		return err
	}
	if s.retention, err = retention.New(retention.Config{Store: db, Log: s.log}); err != nil {
		return err
	}
	if err := s.running.Start(ctx, s.retention); err != nil {
		return err
	}
	if s.reserver, err = ratelimit.NewReserver(ratelimit.ReserverConfig{Store: db, Now: s.clock.WallTime, Steer: s.clock.Steer, Nodes: s.node.count, Log: s.log}); err != nil {
		return err
	}
	if err := s.running.Start(ctx, s.reserver); err != nil {
		return fmt.Errorf("read the daily counts: %w", err)
	}
	if s.backlog, err = fanout.NewBacklog(db); err != nil {
		return err
	}
	if err := s.running.Start(ctx, s.backlog); err != nil {
		return err
	}
	if s.quotas, err = ratelimit.NewQuotaKeeper(ratelimit.QuotaKeeperConfig{
		Store: db, Process: s.node.process(), Alone: s.node == nil, Nodes: s.node.count, Now: s.clock.WallTime, Steer: s.clock.Steer,
		Full: s.backlog.FullForTraffic, Log: s.log,
	}); err != nil {
		return err
	}
	if err := s.running.Start(ctx, s.quotas); err != nil {
		return err
	}
	s.metrics.Gauge("keygate_quotas", "Quotas of keys and owners that this node counts at present.", func() float64 { return float64(s.quotas.Count()) })

	if err := s.openSlots(ctx); err != nil {
		return err
	}
	if err := s.openSharing(s.clock); err != nil {
		return err
	}
	certificates, err := s.openIssued(box)
	if err != nil {
		return err
	}
	s.heavy = make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2))
	if err := s.openFleet(ctx); err != nil {
		return err
	}
	if err := s.openDocuments(ctx); err != nil {
		return err
	}
	if s.follower, err = snapshot.New(snapshot.Config{
		Documents: s.documents,
		Retention: s.retention.Now,
		Source:    db, Reserver: s.reserver, Quotas: s.quotas, Slots: s.slots, Sharing: s.sharing, OpenSealed: box.Open, GatewayDomain: settings.GatewayDomain,
		DefaultGlobalLimit: settings.DefaultGlobalLimit, Now: s.clock.Now, Log: s.log, Heavy: s.heavy,
		Shared: s.node.shared(), Recall: s.recall, Fleet: s.fleet, Names: s.names, MayReach: s.mayReach, Certificates: certificates,
	}); err != nil {
		return err
	}
	if err := s.load(ctx); err != nil {
		return fmt.Errorf("load the configuration: %w", err)
	}
	if err := s.createFirstAccount(ctx, box); err != nil {
		return err
	}
	if err := s.openReports(ctx); err != nil {
		return err
	}
	if err := s.startSharing(ctx); err != nil {
		return err
	}
	s.guard = netguard.New()
	s.guard.SetListeners(s.listeners.addresses()...)
	if settings.ServesAdmin() {
		if err := s.buildSender(box); err != nil {
			return err
		}
	}
	if err := s.buildIssuerKeys(box); err != nil {
		return err
	}
	if err := s.startSinks(ctx); err != nil {
		return err
	}
	if err := s.startUsage(ctx); err != nil {
		return err
	}
	if s.usage, err = control.NewUsage(control.UsageConfig{Store: s.db, Drain: s.follower.DrainUsed, Log: s.log}); err != nil {
		return err
	}
	if settings.ServesGateway() {
		if err := s.running.Start(ctx, s.names); err != nil {
			return err
		}
		if err := s.buildGateway(s.clock, box); err != nil {
			return err
		}
		if err := s.startChecks(ctx); err != nil {
			return err
		}
	}
	if !settings.ServesAdmin() {
		return nil
	}
	return s.buildAdmin(ctx, box)
}

// createFirstAccount creates the account default and its admin key in an empty store.
func (s *Server) createFirstAccount(ctx context.Context, box *secret.Box) error {
	ops, err := newControl(s.cfg.Settings, s.db, box, dependencies{publisher: s.follower, now: s.clock.WallTime}, s.log)
	if err != nil {
		return err
	}
	replaceKey := func(ctx context.Context, accountName string) (string, error) {
		k, err := ops.CreateAccountKey(ctx, accountName, "admin")
		if err != nil {
			return "", err
		}
		return k.Secret, nil
	}
	if err := firstStart(ctx, s.cfg.Settings, ops, replaceKey, s.cfg.Out, s.cfg.OutIsTerminal); err != nil {
		return err
	}
	return s.db.View(ctx, func(tx control.ReadTx) error {
		operator, err := tx.AccountByName(ctx, account.Default)
		if fault.CodeOf(err) == fault.NotFound && !s.cfg.Settings.Shared() {
			return errVanished(s.cfg.Settings, s.cfg.Settings.SecretKeyFile)
		}
		if err != nil {
			return fmt.Errorf("find the operator's account: %w", err)
		}
		s.operatorID = operator.ID
		return nil
	})
}

func (s *Server) buildAdmin(ctx context.Context, box *secret.Box) error {
	ops, err := newControl(s.cfg.Settings, s.db, box, dependencies{
		validation: s.mismatches, documents: s.documents,
		publisher: s.follower, now: s.clock.WallTime, wake: s.fanOut.Wake, full: s.backlog.FullForCalls, audit: s.syncers(s.collector, s.auditLog),
		heavy: s.heavy, repositories: &s.repositories, issuers: s.issuerKeys, everywhere: s.node.everywhere(), quotas: s.quotas, targets: s.targetView(),
		sources: control.Sources{AccessLog: s.collector, Traffic: trafficSource{s.meter, s}, Usage: s.db, Requests: requestSource{s.requestLog, s}, Levels: s.follower, Routes: s.follower},
	}, s.log)
	if err != nil {
		return err
	}
	if s.maintenance, err = control.NewMaintenance(control.MaintenanceConfig{Service: ops, Store: s.db, Now: s.clock.WallTime, Retention: s.retention.Now, Settled: s.retention.Settled, Log: s.log}); err != nil {
		return err
	}
	var dial func(ctx context.Context, client netip.Addr) (net.Conn, error)
	var reach func(ctx context.Context, gatewayID string) string
	if s.gateway != nil {
		dial, reach = s.gateway.Dial, s.reach
	}
	signIn, err := s.buildSSO(box)
	if err != nil {
		return err
	}
	api, err := adminapi.New(adminapi.Config{
		SSO:  signIn,
		Dial: dial, Reach: reach, Control: ops, Authenticate: adminapi.BySnapshot(s.follower, s.lease()), Settings: s.settings, Version: s.cfg.Version, ClientIP: s.trust.ClientIP, Now: s.clock.WallTime, Clock: s.clock.Now,
		Trusted: s.trust.Trusted, Recorder: s.auditLog, BasePath: s.cfg.Settings.AdminBasePath, Log: s.log,
	})
	if err != nil {
		return err
	}
	pages, err := dashboard.New(dashboard.Config{BasePath: s.cfg.Settings.AdminBasePath, API: api})
	if err != nil {
		return err
	}
	if err := s.buildRepositories(ops, api); err != nil {
		return err
	}
	s.process = cmp.Or(s.node.process(), rand.Text())
	if err := s.buildLeader(ops); err != nil {
		return err
	}
	if err := s.buildOrderer(ops, box); err != nil {
		return err
	}
	s.admin = newHTTPServer(s.leaving(s.metrics.Count("admin", pages)), s.log)
	s.admin.RegisterOnShutdown(api.EndStreams)
	return nil
}

// settings returns the settings in force: the numbers of connections may be lowered from the
// configured ones (divideDescriptors).
func (s *Server) settings() []adminapi.Setting {
	var out []adminapi.Setting
	configured := s.cfg.Settings
	for _, v := range configured.Values() {
		switch v.Name {
		case "max-connections":
			v.Text = strconv.Itoa(s.descriptors.clients)
		case "max-connections-per-address":
			v.Text = strconv.Itoa(s.descriptors.perAddress(configured.MaxConnections, configured.MaxConnectionsPerAddress))
		}
		out = append(out, adminapi.Setting{Name: v.Name, Value: v.Text, Source: v.Source})
	}
	return out
}

// startServices starts the services that need both planes.
func (s *Server) startServices(ctx context.Context) error {
	if err := s.running.Start(ctx, s.follower); err != nil {
		return err
	}
	if err := s.startNode(ctx); err != nil {
		return err
	}
	rest := []service.Service{s.issuerKeys, s.usage}
	if s.cfg.Settings.ServesAdmin() {
		rest = []service.Service{s.sender, s.fanOut, s.maintenance, s.issuerKeys, s.usage, s.repositories, s.leader}
	}
	if s.orderer != nil {
		rest = append(rest, s.orderer)
	}
	return s.running.Start(ctx, rest...)
}

// servePlanes begins to serve requests on both planes.
func (s *Server) servePlanes(context.Context) error {
	if s.gateway != nil {
		s.serve("gateway", func() error { return s.gateway.Serve(s.listeners.gateway) })
	}
	s.serveValidations()
	if s.admin == nil {
		return nil
	}
	s.warnExposed()
	slots := s.bound(s.admin, s.descriptors.admin, "admin")
	s.adminSlots = slots
	s.serve("admin", func() error { return s.admin.Serve(s.secured(slots.Listener(s.listeners.admin))) })
	return nil
}

// serve serves a listener in a goroutine until the listener is closed.
func (s *Server) serve(name string, serve func() error) {
	s.serving.Go(func(context.Context) {
		if err := serve(); err != nil && !errors.Is(err, http.ErrServerClosed) && s.readiness.Phase() != telemetry.Draining {
			s.failed <- fmt.Errorf("the %s listener ended: %w", name, err)
		}
	})
}

// Reload reads the files of certificates again and opens the file of the access log again.
func (s *Server) Reload() {
	s.log.Info("reading certificates again and opening log files again")
	for _, set := range []*certificate.Set{s.certificates.gateway, s.certificates.admin} {
		if set != nil {
			set.Check()
		}
	}
	if s.accessLog != nil {
		s.accessLog.Reopen()
	}
}

// AnnounceStop makes /readyz respond with 503 from now on. Both planes still serve, also new
// connections, and ask their clients with each response to use another connection for the next request.
// Call Stop some time later.
func (s *Server) AnnounceStop() {
	s.readiness.Set(telemetry.Draining)
	if s.gateway != nil {
		s.gateway.Announce()
	}
	s.log.Info("shutting down")
	if s.cfg.Stopping != nil {
		s.cfg.Stopping()
	}
}

// load fills the snapshot. With a million keys the heap only grows meanwhile. At its usual pace the
// garbage collector would scan the whole heap at each doubling, which would take as long as the
// loading itself.
func (s *Server) load(ctx context.Context) error {
	const pace = 400 // percent of growth between two collections
	if usual := debug.SetGCPercent(pace); usual < 0 || usual > pace {
		debug.SetGCPercent(usual) // GOGC is off or higher already
	} else {
		defer debug.SetGCPercent(usual)
	}
	return s.follower.Load(ctx)
}

// bound makes the connections of a server bounded, if it serves the listener of the slots.
func (s *Server) bound(srv *http.Server, slots int, name string) *connSlots {
	p := newConnSlots(slots, name, &s.linger, s.log)
	srv.Handler, srv.ConnContext = p.Handler(srv.Handler), p.ConnContext
	return p
}

// leaving returns h for a server that may stop: once it begins to, each response says that the
// connection is closed, so that net/http closes it, or sends GOAWAY over HTTP/2.
func (s *Server) leaving(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.readiness.Phase() == telemetry.Draining {
			w.Header().Set("Connection", "close")
		}
		h.ServeHTTP(w, r)
	})
}

// newHTTPServer returns a server with timeouts for clients that stall.
func newHTTPServer(h http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       2 * time.Minute, // 16 MiB over a slow connection
		WriteTimeout:      3 * time.Minute,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,

		DisableGeneralOptionsHandler: true, // OPTIONS * is refused like any unknown path
		ErrorLog:                     slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}
