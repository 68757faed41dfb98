package postgres

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"time"

	"github.com/keygate/keygate/internal/balance"
	"github.com/keygate/keygate/internal/store/rows"
	"github.com/keygate/keygate/internal/targetreport"
)

var _ targetreport.Store = (*DB)(nil)

// claimantOf is lease.Row.Claimant of a row of the table nodes.
const claimantOf = `(encode(n.boot, 'hex') || '.' || n.epoch)`

// targetDigest is the part of the primary key of target_reports that stands for a URL and an address, which are too long for an
// index.
func targetDigest(url, address string) []byte {
	sum := sha256.Sum256([]byte(url + "\x00" + address))
	return sum[:]
}

// targetKeys are primary keys of the table target_reports without the claimant, as columns.
type targetKeys struct {
	gateways, upstreams []string
	targets             [][]byte
}

func (k *targetKeys) add(n balance.Name, url, address string) {
	k.gateways, k.upstreams, k.targets = append(k.gateways, n.Gateway), append(k.upstreams, n.Upstream), append(k.targets, targetDigest(url, address))
}

// PutTargetReports implements targetreport.Store.
func (db *DB) PutTargetReports(ctx context.Context, b *targetreport.Batch) error {
	return db.write(ctx, func(t *tx) error {
		if len(b.Remove) > 0 {
			var k targetKeys
			for _, r := range b.Remove {
				k.add(r.Name, r.URL, r.Address)
			}
			if err := t.Queue(ctx, "remove reports of targets", `DELETE FROM target_reports r USING unnest($2::text[], $3::text[], $4::bytea[]) AS k (gateway_id, upstream, target)
				WHERE r.claimant = $1 AND r.gateway_id = k.gateway_id AND r.upstream = k.upstream AND r.target = k.target`, b.Claimant, k.gateways, k.upstreams, k.targets); err != nil {
				return err
			}
		}
		if err := t.putTargetReports(ctx, b); err != nil {
			return err
		}
		if !b.Ends {
			return nil
		}
		leftOut := b.LeftOut
		if leftOut == nil {
			leftOut = []string{}
		}
		return t.Queue(ctx, "put the report of a node", `INSERT INTO target_nodes (claimant, number, left_out) VALUES ($1, $2, $3)
			ON CONFLICT (claimant) DO UPDATE SET number = excluded.number, left_out = excluded.left_out`, b.Claimant, b.Number, leftOut)
	})
}

func (t *tx) putTargetReports(ctx context.Context, b *targetreport.Batch) error {
	if len(b.Put) == 0 {
		return nil
	}
	var k targetKeys
	var accounts, urls, addresses, states, reasons []string
	var draining, degraded []bool
	var since, inFlight, requests, failures []int64
	var untils, checks []*int64
	for i := range b.Put {
		r := &b.Put[i]
		k.add(r.Name, r.URL, r.Address)
		accounts, urls, addresses, states, reasons = append(accounts, r.Account), append(urls, r.URL), append(addresses, r.Address), append(states, r.State), append(reasons, r.Reason)
		draining, degraded = append(draining, r.Draining), append(degraded, r.Degraded)
		since, inFlight, requests, failures = append(since, r.Since.UnixMicro()), append(inFlight, r.InFlight), append(requests, r.Requests), append(failures, r.Failures)
		untils, checks = append(untils, maybeMicros(r.Until)), append(checks, maybeMicros(r.LastCheck))
	}
	return t.Queue(ctx, "put reports of targets", `INSERT INTO target_reports (claimant, gateway_id, upstream, target, account_id, url, address, state, reason, draining, degraded, since, until, in_flight, requests, failures, last_check)
		SELECT $1, k.* FROM unnest($2::text[], $3::text[], $4::bytea[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[], $10::boolean[], $11::boolean[],
			$12::bigint[], $13::bigint[], $14::bigint[], $15::bigint[], $16::bigint[], $17::bigint[]) AS k
		ON CONFLICT (gateway_id, upstream, target, claimant) DO UPDATE SET state = excluded.state, reason = excluded.reason, draining = excluded.draining, degraded = excluded.degraded,
			since = excluded.since, until = excluded.until, in_flight = excluded.in_flight, requests = excluded.requests, failures = excluded.failures, last_check = excluded.last_check`,
		b.Claimant, k.gateways, k.upstreams, k.targets, accounts, urls, addresses, states, reasons, draining, degraded, since, untils, inFlight, requests, failures, checks)
}

// maybeMicros is rows.MaybeMicros as an item of an array.
func maybeMicros(t time.Time) *int64 {
	if t.IsZero() {
		return nil
	}
	return new(rows.Micros(t))
}

// TargetReports implements targetreport.Store.
func (db *DB) TargetReports(ctx context.Context, n balance.Name, except string, limit int) (list []targetreport.NodeReport, err error) {
	err = db.statement(ctx, db.readers, reserveTime, func(t *readTx) error {
		list = nil // it may be an attempt more
		return t.Query(ctx, "read reports of targets", `SELECT n.name, r.url, r.address, r.state, r.reason, r.draining, r.degraded, r.since, r.until, r.in_flight, r.requests, r.failures, r.last_check
			FROM target_reports r JOIN nodes n ON r.claimant = `+claimantOf+`
			WHERE n.state = 'live' AND n.role <> 'control' AND r.claimant <> $1 AND r.account_id = $2 AND r.gateway_id = $3 AND r.upstream = $4
			ORDER BY r.state = 'healthy' AND NOT r.draining, n.name, r.url, r.address LIMIT $5`, []any{except, n.Account, n.Gateway, n.Upstream, rows.Limit(limit)}, func(row *rows.Row) error {
			r := targetreport.NodeReport{Report: targetreport.Report{Name: n}}
			var since int64
			var until, check sql.NullInt64
			err := row.Scan(&r.Node, &r.URL, &r.Address, &r.State, &r.Reason, &r.Draining, &r.Degraded, &since, &until, &r.InFlight, &r.Requests, &r.Failures, &check)
			r.Since, r.Until, r.LastCheck = rows.Instant(since), rows.MaybeInstant(until), rows.MaybeInstant(check)
			list = append(list, r)
			return err
		})
	})
	return list, err
}

// TargetFlights implements targetreport.Store.
func (db *DB) TargetFlights(ctx context.Context, n balance.Name, url string) (list []targetreport.NodeFlight, err error) {
	err = db.statement(ctx, db.readers, reserveTime, func(t *readTx) error {
		list = nil // it may be an attempt more
		return t.Query(ctx, "read what is in flight at a target", `SELECT n.name, `+claimantOf+`, coalesce(t.number, -1), coalesce(t.left_out && ARRAY[$1::text, $2::text], false),
				coalesce((SELECT sum(r.in_flight) FROM target_reports r WHERE r.claimant = `+claimantOf+` AND r.account_id = $1 AND r.gateway_id = $3 AND r.upstream = $4 AND r.url = $5), 0)::bigint
			FROM nodes n LEFT JOIN target_nodes t ON t.claimant = `+claimantOf+`
			WHERE n.state = 'live' AND n.role <> 'control' ORDER BY n.name`, []any{n.Account, targetreport.AllAccounts, n.Gateway, n.Upstream, url}, func(row *rows.Row) error {
			var f targetreport.NodeFlight
			err := row.Scan(&f.Node, &f.Claimant, &f.Number, &f.LeftOut, &f.InFlight)
			list = append(list, f)
			return err
		})
	})
	return list, err
}

// TrimTargetReports implements targetreport.Store. A lease that has ended never begins again, so nothing is reported under it any
// more, except for what was on its way.
func (db *DB) TrimTargetReports(ctx context.Context, limit int) (removed int, err error) {
	const ended = `claimant NOT IN (SELECT ` + claimantOf + ` FROM nodes n WHERE n.state = 'live')`
	err = db.write(ctx, func(t *tx) error {
		n, err := t.Exec(ctx, "remove reports of ended leases", `DELETE FROM target_reports WHERE ctid = ANY (ARRAY(SELECT ctid FROM target_reports WHERE `+ended+` LIMIT $1 FOR UPDATE SKIP LOCKED))`, rows.Limit(limit))
		if err != nil {
			return err
		}
		removed = int(n)
		n, err = t.Exec(ctx, "remove nodes of ended leases", `DELETE FROM target_nodes WHERE ctid = ANY (ARRAY(SELECT ctid FROM target_nodes WHERE `+ended+` LIMIT $1 FOR UPDATE SKIP LOCKED))`, rows.Limit(limit-removed))
		removed += int(n)
		return err
	})
	return removed, err
}
