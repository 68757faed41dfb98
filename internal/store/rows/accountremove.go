package rows

import (
	"context"
	"fmt"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/snapshot"
)

// The weights of
const (
	revisionWeight = 4 // including rows that triggers write
	partWeight     = 20
	pageWeight     = 4
	trafficWeight  = 20
	deliveryWeight = 8
	keyWeight      = 4 // with its entries in the search index
	ownerWeight    = 2
)

// removal removes some of the records of a deleted account.
type removal struct {
	*Writer
	*Budget
	accountID string
	some      bool // something was removed
}

// Removed counts rows of a weight.
func (r *removal) Removed(rows, weight int) {
	r.some = r.some || rows > 0
	r.Budget.Removed(rows, weight)
}

// RemoveAccount implements control.AccountStore. Rows are removed before those that they
// refer to, and hostnames early, so that other gateways can have them.
func (t *Writer) RemoveAccount(ctx context.Context, accountID string, limit int) (more bool, err error) {
	a, err := t.read.Account(ctx, accountID)
	if err != nil {
		return false, err
	}
	if a.State != account.Deleted {
		return false, fmt.Errorf("remove account %s: it is %s", accountID, a.State)
	}
	r := removal{Writer: t, Budget: newBudget(limit), accountID: accountID}
	for _, step := range []func(context.Context) error{
		r.rowsOf("routes", pageWeight, `DELETE FROM route_pages WHERE n IN
			(SELECT p.n FROM gateways g INDEXED BY gateways_list CROSS JOIN route_pages p ON p.table_id = g.table_id WHERE g.account_id = $1 LIMIT $2)`),
		r.rowsOf("parts of revisions", partWeight, `DELETE FROM revision_parts WHERE rowid = ANY (ARRAY(
			SELECT p.rowid FROM gateways g INDEXED BY gateways_list CROSS JOIN revisions r ON r.gateway_id = g.id CROSS JOIN revision_parts p ON p.revision_id = r.id
			WHERE g.account_id = $1 LIMIT $2))`),
		r.rowsOf("revisions", revisionWeight, `DELETE FROM revisions WHERE id IN
			(SELECT r.id FROM gateways g INDEXED BY gateways_list CROSS JOIN revisions r ON r.gateway_id = g.id WHERE g.account_id = $1 LIMIT $2)`),
		r.rowsOf("repositories", 1, `DELETE FROM repositories WHERE gateway_id IN
			(SELECT gateway_id FROM repositories INDEXED BY repositories_account WHERE account_id = $1 LIMIT $2)`),
		r.gateways,
		r.rowsOf("fan-outs", 1, `DELETE FROM fan_outs WHERE n IN (SELECT n FROM fan_outs INDEXED BY fan_outs_account WHERE account_id = $1 LIMIT $2)`),
		r.rowsOf("webhooks", 2, `DELETE FROM webhooks WHERE id IN (SELECT id FROM webhooks INDEXED BY webhooks_list WHERE account_id = $1 LIMIT $2)`),
		r.rowsOf("former subscriptions", 1, `DELETE FROM former_subscriptions WHERE n IN (SELECT n FROM former_subscriptions INDEXED BY former_subscriptions_list WHERE account_id = $1 LIMIT $2)`),
		r.deliveries,
		r.rowsOf("events", 1, `DELETE FROM events WHERE id IN (SELECT id FROM events INDEXED BY events_list WHERE listed = true AND account_id = $1 LIMIT $2)`),
		r.rowsOf("sessions", 1, `DELETE FROM sessions WHERE digest IN (SELECT digest FROM sessions INDEXED BY sessions_account WHERE account_id = $1 LIMIT $2)`),
		r.keys,
		r.rowsOf("owners", ownerWeight, `DELETE FROM owners WHERE id IN (SELECT id FROM owners INDEXED BY owners_list WHERE account_id = $1 ORDER BY id LIMIT $2)`),
		r.rowsOf("plans", 1, `DELETE FROM plans WHERE id IN (SELECT id FROM plans INDEXED BY plans_list WHERE account_id = $1 LIMIT $2)`),
		r.rowsOf("traffic", trafficWeight, `DELETE FROM traffic WHERE seq IN (SELECT seq FROM traffic INDEXED BY traffic_read WHERE account_id = $1 LIMIT $2)`),
		r.rowsOf("requests", 1, `DELETE FROM requests WHERE (account_id, id) IN (SELECT account_id, id FROM requests WHERE account_id = $1 LIMIT $2)`),
		r.rowsOf("omitted requests", 1, `DELETE FROM requests_left_out WHERE (account_id, second) IN
			(SELECT account_id, second FROM requests_left_out WHERE account_id = $1 LIMIT $2)`),
	} {
		if r.Spent() || r.some && r.Held() { // each step takes a round trip
			return true, nil
		}
		if err := step(ctx); err != nil {
			return false, err
		}
	}
	if r.Spent() || r.some && r.Held() {
		return true, nil
	}
	if err := t.Queue(ctx, "remove the counts of an account", `DELETE FROM account_counts WHERE account_id = $1`, accountID); err != nil {
		return false, err
	}
	err = t.Queue(ctx, "end the removal of an account", `UPDATE accounts SET state = $1 WHERE id = $2`, AccountRemoved, accountID)
	return false, err
}

// rowsOf returns a step that runs a DELETE with the account and a limit.
func (r *removal) rowsOf(what string, weight int, query string) func(context.Context) error {
	return func(ctx context.Context) error {
		n, err := r.Delete(ctx, "remove "+what+" of a deleted account", query, r.accountID, r.Most(weight))
		r.Removed(int(n), weight)
		return err
	}
}

// removeIDs runs a DELETE, with the account and a limit, that returns the identifiers.
func (r *removal) removeIDs(ctx context.Context, what, query string) ([]string, error) {
	if found, err := r.MayDelete(ctx, what, query, r.accountID, r.Most(1)); err != nil || !found {
		return nil, err
	}
	return r.read.Texts(ctx, what, query, r.accountID, r.Most(1))
}

func (r *removal) gateways(ctx context.Context) error {
	ids, err := r.removeIDs(ctx, "remove gateways of a deleted account", `DELETE FROM gateways WHERE id IN
		(SELECT id FROM gateways INDEXED BY gateways_list WHERE account_id = $1 LIMIT $2) RETURNING id`)
	if err != nil {
		return err
	}
	for _, id := range ids {
		if err := r.Queue(ctx, "drop the route tables of a deleted account", `UPDATE route_tables SET state = 2 WHERE gateway_id = $1`, id); err != nil {
			return err
		}
		if _, err := r.AppendChange(ctx, snapshot.GatewayChange, id); err != nil {
			return err
		}
	}
	r.Removed(len(ids), 1)
	return r.endedGateways(ctx)
}

// endedGateways removes gateways that were deleted before the account.
func (r *removal) endedGateways(ctx context.Context) error {
	ids, err := r.removeIDs(ctx, "remove deleted gateways of a deleted account", `DELETE FROM ended_gateways WHERE id IN
		(SELECT id FROM ended_gateways INDEXED BY ended_gateways_account WHERE account_id = $1 LIMIT $2) RETURNING id`)
	if err != nil {
		return err
	}
	for _, id := range ids {
		if err := r.Queue(ctx, "drop the route tables of a deleted account", `UPDATE route_tables SET state = 2 WHERE gateway_id = $1`, id); err != nil {
			return err
		}
	}
	r.Removed(len(ids), 1)
	return nil
}

func (r *removal) deliveries(ctx context.Context) error {
	n, err := r.removeDeliveries(ctx, `SELECT n FROM deliveries INDEXED BY deliveries_account WHERE account_id = $1 LIMIT $2`,
		r.accountID, r.Most(deliveryWeight))
	r.Removed(n, deliveryWeight)
	return err
}

// keys removes keys, and before them the responses that are stored for them.
func (r *removal) keys(ctx context.Context) error {
	const large = `DELETE FROM answers WHERE rowid = ANY (ARRAY(SELECT a.rowid
		FROM (SELECT id FROM keys INDEXED BY keys_list WHERE account_id = $1 ORDER BY id LIMIT $2) k CROSS JOIN answers a ON a.key_id = k.id
		WHERE length(a.body) > 16384 LIMIT $3))`
	n, err := r.Delete(ctx, "remove large stored responses of a deleted account", large, r.accountID, r.Most(keyWeight), r.Most(partWeight))
	if err != nil {
		return err
	}
	if r.Removed(int(n), partWeight); r.Spent() {
		return nil
	}
	const responses = `DELETE FROM answers WHERE rowid = ANY (ARRAY(SELECT a.rowid
		FROM (SELECT id FROM keys INDEXED BY keys_list WHERE account_id = $1 ORDER BY id LIMIT $2) k CROSS JOIN answers a ON a.key_id = k.id LIMIT $3))`
	done, err := r.Delete(ctx, "remove stored responses of a deleted account", responses, r.accountID, r.Most(keyWeight), r.Most(1))
	if err != nil {
		return err
	}
	if r.Removed(int(done), 1); r.Spent() {
		return nil
	}
	n, err = r.Delete(ctx, "remove keys of a deleted account", `DELETE FROM keys WHERE n IN
		(SELECT n FROM keys INDEXED BY keys_list WHERE account_id = $1 ORDER BY id LIMIT $2)`, r.accountID, r.Most(keyWeight))
	r.Removed(int(n), keyWeight)
	return err
}
