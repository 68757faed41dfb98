package server

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"net/url"
	"time"

	"github.com/keygate/keygate/internal/config"
	"github.com/keygate/keygate/internal/ratelimit"
	"github.com/keygate/keygate/internal/ratelimit/limitstore"
	"github.com/keygate/keygate/internal/store/postgres"
)

// slowStore is a latency above which a store is likely to be in another region.
const slowStore = 20 * time.Millisecond

// examinePostgres checks the database of several nodes.
func (f *findings) examinePostgres(ctx context.Context, settings *config.Config, running bool) {
	const check = "PostgreSQL"
	i, err := postgres.Inspect(ctx, string(settings.DatabaseURL), settings.NodeName)
	if err != nil {
		f.problem(check, "start the database, open the network to it, or correct --database-url", "%v", err)
		f.examineSharedKey(settings, nil)
		return
	}
	if i.VersionNumber < postgres.OldestServer {
		f.problem(check, "use PostgreSQL 14 or newer", "its version is %s", i.Server)
	} else {
		f.ok(check, "it is reachable and has version %s", i.Server)
	}
	f.examineSession(settings, i)
	f.examinePooler(ctx, settings)
	f.examineSchema(settings, i)
	f.examineSharedKey(settings, i)
	f.examineNotifications(ctx, settings, i)
	f.examineDurability(i)
	f.examineConnections(i)
	f.examineSnapshots(i)
	f.examineNodes(settings, i, running)
	f.examineLatency("PostgreSQL latency", i.Latency)
	f.examineClocks("PostgreSQL clock", i.ClockAhead)
}

// examineSession checks that sessions accept writes.
func (f *findings) examineSession(settings *config.Config, i *postgres.Inspection) {
	const check = "PostgreSQL sessions"
	wanted := ""
	if u, err := url.Parse(string(settings.DatabaseURL)); err == nil {
		wanted = u.Query().Get("target_session_attrs")
	}
	switch {
	case i.ReadOnly:
		f.problem(check, "name the primary in --database-url, or all servers separated by commas; look for default_transaction_read_only", "the server accepts no writes: it is a replica, or set to read-only")
	case wanted != "" && wanted != "read-write" && wanted != "primary" && wanted != "any":
		f.warn(check, "set target_session_attrs=read-write in --database-url, or leave it out", "target_session_attrs is %q, but a node uses only a server that accepts writes", wanted)
	case i.Hosts > 1:
		f.ok(check, "they accept writes; of the %d servers in the URL a node uses the one that does (target_session_attrs=read-write)", i.Hosts)
	default:
		f.ok(check, "they accept writes (target_session_attrs=read-write)")
	}
}

// retryLogin is advice about a setting that no client of a pooler can read.
const retryLogin = "in PgBouncer, set server_login_retry to 1: by default a restart of the server is an outage of 15 s"

// examinePooler checks that the settings suit the mode of a pooler between node and database.
func (f *findings) examinePooler(ctx context.Context, settings *config.Config) {
	const check = "PostgreSQL pooler"
	switch way, err := postgres.CheckPooler(ctx, string(settings.DatabaseURL)); {
	case err != nil && way.Pooled:
		f.problem(check, "add default_query_exec_mode=exec to --database-url, or let the pooler pool sessions", "%v", err)
	case err != nil:
		f.problem(check, "correct --database-url", "%v", err)
	case way.Pooled && way.Sessions:
		f.ok(check, "it pools sessions: it needs as many connections to the server as the nodes have to it; %s", retryLogin)
	case way.Pooled:
		f.ok(check, "it pools transactions, and the URL says so (default_query_exec_mode); %s", retryLogin)
	}
}

// oldSnapshot is the age of a transaction above which it is likely to be forgotten, or a long dump.
const oldSnapshot = 5 * time.Minute

// examineSnapshots checks that no transaction keeps the server from removing dead rows.
func (f *findings) examineSnapshots(i *postgres.Inspection) {
	const check = "PostgreSQL oldest transaction"
	if i.OldestSnapshot < oldSnapshot {
		f.ok(check, "it has run for %s; those of other users are seen only with the role pg_read_all_stats", i.OldestSnapshot.Round(time.Second))
		return
	}
	f.warn(check, "end it with pg_terminate_backend if it was forgotten, set idle_in_transaction_session_timeout, and dump from a replica",
		"it has run for %s, and the server removes no dead rows meanwhile: reads of the nodes and changes become slower", i.OldestSnapshot.Round(time.Second))
}

// examineSchema checks the schema of the database.
func (f *findings) examineSchema(settings *config.Config, i *postgres.Inspection) {
	const check = "PostgreSQL schema"
	switch v := i.Schema; {
	case i.SchemaErr != nil && v.Current > v.Newest:
		f.problem(check, "run the version that the message names, or restore a backup from before the upgrade", "%v", i.SchemaErr)
	case i.SchemaErr != nil:
		f.problem(check, "give Keygate a database of its own, whose owner is its user", "%v", i.SchemaErr)
	case v.Current == v.Newest:
		f.ok(check, "it is %d, the one of this version", v.Current)
	case v.Current > v.Newest:
		f.ok(check, "it is %d, newer than this version's %d, which may still start on it", v.Current, v.Newest)
	case settings.Migrate == "off":
		f.problem(check, "run keygate migrate up, or set --migrate=auto", "it is %d, and this version needs %d", v.Current, v.Newest)
	case v.Current == 0:
		f.ok(check, "the database is empty; the first start creates the schema %d", v.Newest)
	default:
		f.ok(check, "it is %d; the next start migrates it to %d", v.Current, v.Newest)
	}
}

// examineSharedKey checks the secret key of all nodes, against the database if i is not nil.
func (f *findings) examineSharedKey(settings *config.Config, i *postgres.Inspection) {
	const check = "secret key"
	box, err := sharedBox(settings)
	switch {
	case err != nil:
		f.problem(check, "give every node the same key, by --secret-key-file or "+config.SecretKeyVariable, "%v", err)
	case i == nil:
		f.ok(check, "it is there; whether it is that of the database is unknown")
	case i.Canary == nil:
		f.ok(check, "it is there; no node has used the database yet")
	default:
		if err := opensCanary(box, i.Canary); err != nil {
			f.problem(check, "give this node the key of the others, by --secret-key-file or "+config.SecretKeyVariable, "%v", err)
			return
		}
		f.ok(check, "it is the one of the database")
	}
}

// examineNotifications checks that LISTEN works as a node uses it.
func (f *findings) examineNotifications(ctx context.Context, settings *config.Config, i *postgres.Inspection) {
	const check = "PostgreSQL notifications"
	if i.ReadOnly {
		return
	}
	separate := settings.DatabaseListenURL != ""
	arrived, err := postgres.Notified(ctx, string(settings.DatabaseURL), string(cmp.Or(settings.DatabaseListenURL, settings.DatabaseURL)))
	pooler := ""
	if i.Pooled {
		pooler = "; --database-url leads to a pooler"
	}
	switch {
	case err != nil && separate:
		f.problem(check, "correct --database-listen-url: it names the same database past the pooler", "%v", err)
	case err != nil:
		f.problem(check, "correct --database-url", "%v", err)
	case arrived:
		f.ok(check, "they arrive%s", pooler)
	case separate:
		f.warn(check, "name the same database in --database-listen-url, on the server itself and not at a pooler", "they do not arrive over --database-listen-url, so that nodes read the change log many times a second instead%s", pooler)
	default:
		f.warn(check, "set --database-listen-url to the same database past the pooler", "they do not arrive, as behind a pooler in transaction mode, so that nodes read the change log many times a second instead%s", pooler)
	}
}

// examineDurability reports what a failure of the server may lose.
func (f *findings) examineDurability(i *postgres.Inspection) {
	const check = "PostgreSQL durability"
	switch {
	case !i.Fsync:
		f.problem(check, "set fsync = on", "fsync is off: a crash of its machine may lose changes that were answered, or the database")
	case i.SyncNames == "":
		f.warn(check, "set synchronous_standby_names, if changes that were answered must survive a failover; a managed database may have storage that does so without replicas",
			"no replica is synchronous (%s connected): a failover may lose the newest changes, revocations among them", plural(i.Replicas, "replica is", "replicas are"))
	case i.SyncReplicas == 0 || i.Unconfirmed:
		f.problem(check, "start the replicas that synchronous_standby_names names, under these names (application_name in their primary_conninfo)",
			"synchronous_standby_names is %q, and no synchronous replica confirms what is written (%s connected): no change can be answered with success", i.SyncNames, plural(i.Replicas, "replica is", "replicas are"))
	case i.SyncReplicas < 0:
		f.ok(check, "synchronous_standby_names is %q, and a synchronous replica confirms what is written (%s connected)", i.SyncNames, plural(i.Replicas, "replica is", "replicas are"))
	default:
		f.ok(check, "synchronous_standby_names is %q (%s connected)", i.SyncNames, plural(i.SyncReplicas, "synchronous replica is", "synchronous replicas are"))
	}
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// examineConnections compares what the server allows with what nodes need.
func (f *findings) examineConnections(i *postgres.Inspection) {
	const check = "PostgreSQL connections"
	allowed := i.MaxConnections
	for _, limit := range []int{i.RoleLimit, i.DatabaseLimit} {
		if limit >= 0 {
			allowed = min(allowed, limit)
		}
	}
	need := postgres.Connections
	const remedy = "raise max_connections, the limit of the user or that of the database; or put a pooler in transaction mode before it"
	switch fits := allowed / need; {
	case i.Pooled:
		f.ok(check, "a pooler is in between; a node opens up to %d connections to it", need)
	case fits == 0:
		f.problem(check, remedy, "%d are allowed, and a node uses up to %d", allowed, need)
	case fits < i.LiveNodes || i.MaxConnections-i.ConnectionsOpen < need && i.LiveNodes == 0:
		f.warn(check, remedy, "%d are allowed and %d are open; %s with up to %d each", allowed, i.ConnectionsOpen, plural(max(1, i.LiveNodes), "node needs room", "nodes need room"), need)
	default:
		f.ok(check, "%d are allowed, enough for %s with up to %d each; %d are open", allowed, plural(fits, "node", "nodes"), need, i.ConnectionsOpen)
	}
}

// examineNodes tells which nodes there are.
func (f *findings) examineNodes(settings *config.Config, i *postgres.Inspection, running bool) {
	const check = "nodes"
	live := plural(i.LiveNodes, "node has a lease", "nodes have a lease")
	switch {
	case i.NameLive && !running:
		f.warn(check, "set another --node-name, unless the node has just ended or runs on another data directory", "%s, one of them with the name %s of this one", live, settings.NodeName)
	default:
		f.ok(check, "%s; the name of this one is %s", live, settings.NodeName)
	}
}

func (f *findings) examineLatency(check string, latency time.Duration) {
	text := fmt.Sprintf("a round trip takes %s", latency.Round(10*time.Microsecond))
	if latency > slowStore {
		f.warn(check, "put it and the nodes into the same region", "%s", text)
		return
	}
	f.ok(check, "%s", text)
}

// examineLimitStore checks Redis or Valkey.
func (f *findings) examineLimitStore(ctx context.Context, settings *config.Config) {
	const check = "limit store"
	store, err := limitstore.New(limitstore.Config{Address: settings.Redis, Installation: func() string { return "doctor" }, Node: rand.Text()})
	if err != nil {
		f.problem(check, "correct --redis-url", "%v", err)
		return
	}
	defer store.Close()
	servers, err := store.Report(ctx)
	if err != nil {
		f.problem(check, "start it, open the network to it, or correct --redis-url", "%v", err)
		return
	}
	for i := range servers {
		f.examineLimitServer(settings, &servers[i], len(servers) > 1)
	}
	if err := store.TryScript(ctx); err != nil {
		f.problem(check, "use a server with Lua scripts, and a user that may run them and write keys that begin with keygate:", "the script of limits does not work: %v", err)
	} else {
		f.ok(check, "the script of limits works")
	}
	if settings.SharedLimits == ratelimit.Divided {
		f.warn("--shared-limits", "set --shared-limits=leased, or leave it out", "limits are divided between the nodes although there is a limit store")
	}
}

func (f *findings) examineLimitServer(settings *config.Config, r *limitstore.ServerReport, several bool) {
	check := "limit store"
	if several {
		check += " " + r.Address
	}
	if r.OldVersion {
		f.problem(check, "use Redis 6.2, Valkey 7.2 or newer", "its version is %s %s", r.Product, r.Version)
	} else {
		f.ok(check, "%s is reachable: %s %s, up for %s", settings.Redis, r.Product, r.Version, r.Uptime)
	}
	if r.Replica {
		if !several {
			f.problem(check, "name the primary in --redis-url, or the sentinels", "it is a replica, which accepts no writes")
		}
		return
	}
	if r.UnsafePolicy {
		f.problem(check+" memory", "set maxmemory-policy to noeviction", "its maxmemory-policy is %s, so that it may forget limits", r.Policy)
	} else {
		f.examineMemory(check+" memory", r)
	}
	if r.Evicted > 0 {
		f.warn(check+" memory", "give it more memory and a database of its own", "it has evicted %d keys since it was started", r.Evicted)
	}
	kept := "it keeps nothing on disk"
	switch {
	case r.AppendOnly:
		kept = "it writes an append-only file"
	case r.SavesDumps:
		kept = "it writes dumps"
	}
	f.ok(check+" durability", "%s, and %s connected; if it is emptied, nodes restore the levels that they know", kept, plural(int(r.Replicas), "replica is", "replicas are"))
	f.examineLatency(check+" latency", r.Latency)
	f.examineClocks(check+" clock", r.ClockAhead)
}

// examineMemory checks how much of its memory a server of the limit store uses.
func (f *findings) examineMemory(check string, r *limitstore.ServerReport) {
	const nearlyFull = 0.8
	switch used, most := float64(r.UsedMemory), float64(r.MaxMemory); {
	case r.MaxMemory == 0:
		f.ok(check, "it uses %s, without a bound", sizeText(used))
	case used > nearlyFull*most:
		f.warn(check, "give it more memory", "it uses %s of %s; once it is full it counts as lost", sizeText(used), sizeText(most))
	default:
		f.ok(check, "it uses %s of %s, and its policy is %s", sizeText(used), sizeText(most), r.Policy)
	}
}
