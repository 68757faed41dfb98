package postgres

import (
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Connections is how many connections a node has at most: the connections of its pools, and one
// each for its lease, for reading leases and for listening.
const Connections = writers + readers + searchers + followers + 3

// OldestServer is the oldest version of PostgreSQL that is supported, as server_version_num.
const OldestServer = 140000

// latencySamples is the number of round trips that Inspect measures.
const latencySamples = 9

// Inspection is what Inspect finds out about a server and its database.
type Inspection struct {
	Server        string // version, as in "15.14"
	VersionNumber int    // server_version_num
	ReadOnly      bool   // it accepts no writes: it is a replica, or set to read-only
	Pooled        bool   // the connection ends at a pooler
	Hosts         int    // that the URL names

	Schema    Version
	SchemaErr error // why the schema cannot be used: it is newer, or not Keygate's

	MaxConnections  int // that the server has for users without privileges
	RoleLimit       int // of connections of the user; -1 for none
	DatabaseLimit   int // of connections to the database; -1 for none
	ConnectionsOpen int // of all users
	Fsync           bool
	SyncCommit      string // synchronous_commit
	SyncNames       string // synchronous_standby_names; "" if replicas are asynchronous
	Replicas        int    // that are connected, synchronous or not
	SyncReplicas    int    // replicas that a commit waits for; -1 if the user may not see which these are
	Unconfirmed     bool   // a commit waited for synchronous replicas, but none confirmed it within confirmTime

	OldestSnapshot time.Duration // as DB.OldestSnapshot says

	Latency    time.Duration // median of several round trips
	ClockAhead time.Duration // by how much the server's clock is ahead of ours; negative if it is behind

	Canary    []byte // as the first node stored it; nil if there was no node yet
	LiveNodes int    // with a lease
	NameLive  bool   // a node with the name given to Inspect has a lease
}

// Inspect reads what a server and the database of a URL are like, for a node of the given name. It changes
// nothing. If there is no connection, the error is the same as from Open; it has no password.
func Inspect(ctx context.Context, url, node string) (*Inspection, error) {
	settings, err := parseURL(url)
	if err != nil {
		return nil, err
	}
	cfg := settings.ConnConfig
	configure(cfg)
	cfg.DefaultQueryExecMode = pgx.QueryExecModeExec // a pooler need not keep sessions
	i := &Inspection{Hosts: 1}
	hosts := map[string]bool{fmt.Sprint(cfg.Host, cfg.Port): true}
	for _, f := range cfg.Fallbacks {
		hosts[fmt.Sprint(f.Host, f.Port)] = true
	}
	i.Hosts = len(hosts)
	c, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil { // perhaps because it accepts no writes
		reading := cfg.Copy()
		reading.ValidateConnect = nil
		var second error
		if c, second = pgx.ConnectConfig(ctx, reading); second != nil {
			return nil, translate("connect", second)
		}
	}
	defer func() { _ = c.Close(context.WithoutCancel(ctx)) }() // only read from
	if err := i.readServer(ctx, c); err != nil {
		return nil, translate("inspect the server", err)
	}
	var micros int64
	if err := c.QueryRow(ctx, oldestSnapshot).Scan(&micros); err != nil {
		return nil, translate("read the oldest snapshot", err)
	}
	i.OldestSnapshot = time.Duration(max(0, micros)) * time.Microsecond
	if err := i.measure(ctx, c); err != nil {
		return nil, translate("measure the latency", err)
	}
	if i.SyncNames != "" && !i.ReadOnly {
		if i.Unconfirmed, err = unconfirmed(ctx, c, confirmTime); err != nil {
			return nil, translate("wait for a replica", err)
		}
	}
	err = inSchema(cfg, func(db *sql.DB) error {
		i.Schema, i.SchemaErr = ownVersions(ctx, db)
		return nil
	})
	if err == nil && i.SchemaErr == nil && i.Schema.Current > 0 {
		err = i.readNodes(ctx, c, node)
	}
	if err != nil && !i.ReadOnly {
		return nil, translate("inspect the database", err)
	}
	return i, nil
}

// readServer reads settings of the server.
func (i *Inspection) readServer(ctx context.Context, c *pgx.Conn) error {
	var pid uint32
	err := c.QueryRow(ctx, `SELECT current_setting('server_version'), current_setting('server_version_num')::int,
			current_setting('transaction_read_only') = 'on' OR pg_is_in_recovery(), pg_backend_pid(),
			current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
				- coalesce(current_setting('reserved_connections', true)::int, 0),
			(SELECT rolconnlimit FROM pg_roles WHERE rolname = current_user),
			(SELECT datconnlimit FROM pg_database WHERE datname = current_database()),
			(SELECT coalesce(sum(numbackends), 0)::int FROM pg_stat_database),
			current_setting('fsync') = 'on', current_setting('synchronous_commit'), current_setting('synchronous_standby_names'),
			(SELECT count(*)::int FROM pg_stat_replication),
			(SELECT CASE WHEN bool_or(sync_state IS NULL) THEN -1 ELSE count(*) FILTER (WHERE sync_state IN ('sync', 'quorum')) END::int FROM pg_stat_replication)`).Scan(
		&i.Server, &i.VersionNumber, &i.ReadOnly, &pid, &i.MaxConnections, &i.RoleLimit, &i.DatabaseLimit, &i.ConnectionsOpen,
		&i.Fsync, &i.SyncCommit, &i.SyncNames, &i.Replicas, &i.SyncReplicas)
	// A pooler gives a number of its own to its client.
	i.Pooled = err == nil && pid != c.PgConn().PID()
	return err
}

// confirmTime is how long Inspect waits until a synchronous replica confirms a commit.
const confirmTime = 2 * time.Second

// unconfirmed tries whether a synchronous replica fails to confirm a commit. The transaction leaves a message in the server's
// log of changes and changes nothing.
func unconfirmed(ctx context.Context, c *pgx.Conn, within time.Duration) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, within) // then the driver cancels COMMIT
	defer cancel()
	server := c.PgConn()
	forgetWarnings(server)
	_, err := server.Exec(ctx, `BEGIN; SET LOCAL synchronous_commit = on; SELECT pg_logical_emit_message(true, 'keygate', ''); COMMIT`).ReadAll()
	return err == nil && confirmedBy(server) != nil, err
}

// measure measures round trips, and compares the clocks over the shortest of them.
func (i *Inspection) measure(ctx context.Context, c *pgx.Conn) error {
	type sample struct{ took, ahead time.Duration }
	var samples []sample
	for range latencySamples {
		before := time.Now()
		var micros int64
		if err := c.QueryRow(ctx, `SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint`).Scan(&micros); err != nil {
			return err
		}
		took := time.Since(before)
		samples = append(samples, sample{took, time.UnixMicro(micros).Sub(before.Add(took / 2))})
	}
	slices.SortFunc(samples, func(a, b sample) int { return cmp.Compare(a.took, b.took) })
	i.Latency, i.ClockAhead = samples[len(samples)/2].took, samples[0].ahead
	return nil
}

// readNodes reads the canary and which nodes have a lease.
func (i *Inspection) readNodes(ctx context.Context, c *pgx.Conn, node string) error {
	err := c.QueryRow(ctx, `SELECT (SELECT canary FROM installation), (SELECT count(*)::int FROM nodes WHERE state = 'live'),
		EXISTS (SELECT FROM nodes WHERE state = 'live' AND name = $1)`, node).Scan(&i.Canary, &i.LiveNodes, &i.NameLive)
	return err
}

// Notified reports whether notifications that are sent over a connection to the database of url arrive at a
// connection to the database of listenURL. They do not arrive behind a pooler in transaction mode, or if the
// URLs name different databases.
func Notified(ctx context.Context, url, listenURL string) (bool, error) {
	channel := "keygate_doctor_" + rand.Text()
	listener, err := connectPlain(ctx, listenURL)
	if err != nil {
		return false, err
	}
	defer func() { _ = listener.Close(context.WithoutCancel(ctx)) }() // only read from
	if _, err := listener.Exec(ctx, `LISTEN "`+channel+`"`); err != nil {
		return false, translate("listen", err)
	}
	sender, err := connectPlain(ctx, url)
	if err != nil {
		return false, err
	}
	defer func() { _ = sender.Close(context.WithoutCancel(ctx)) }() // as above
	if _, err := sender.Exec(ctx, `SELECT pg_notify($1, '')`, pgx.QueryExecModeExec, channel); err != nil {
		return false, translate("notify", err)
	}
	waiting, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	for { // behind a pooler in transaction mode, the session may listen for others, too
		var n *pgconn.Notification
		if n, err = listener.WaitForNotification(waiting); err != nil || n.Channel == channel {
			break
		}
	}
	switch {
	case err == nil:
		return true, nil
	case ctx.Err() != nil:
		return false, ctx.Err()
	case errors.Is(err, context.DeadlineExceeded):
		return false, nil
	default:
		return false, translate("listen", err)
	}
}

// connectPlain opens a connection as a node does.
func connectPlain(ctx context.Context, url string) (*pgx.Conn, error) {
	settings, err := parseURL(url)
	if err != nil {
		return nil, err
	}
	configure(settings.ConnConfig)
	c, err := pgx.ConnectConfig(ctx, settings.ConnConfig)
	return c, translate("connect", err)
}
