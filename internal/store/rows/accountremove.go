package rows

import (
	"context"
	"fmt"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/snapshot"
)

// The weights of rows.
const (
	revisionWeight = 4 // including rows that triggers write
	trafficWeight  = 20
	deliveryWeight = 8
	responseWeight = 2 // including what triggers count
	keyWeight      = 4 // with its entries in the search index
	ownerWeight    = 2
	userWeight     = 1
	denialWeight   = 2
	quotaWeight    = 8 // with its windows, their shares and grants

	certificateWeight = 2 // with its change
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
// refer to, and hostnames early, so that other gateways can have them. Pages of routes and parts of revisions, which are
// large, are left to TrimTables.
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
		r.rowsOf("revisions", revisionWeight, `DELETE FROM revisions WHERE id = ANY (ARRAY(SELECT id FROM revisions WHERE gateway_id = ANY (ARRAY(
			SELECT gateway_id FROM revision_counts INDEXED BY revision_counts_older WHERE account_id = $1 LIMIT $2)) LIMIT $2))`),
		r.rowsOf("repositories", 1, `DELETE FROM repositories WHERE gateway_id IN
			(SELECT gateway_id FROM repositories INDEXED BY repositories_account WHERE account_id = $1 LIMIT $2)`),
		r.rowsOf("canaries", 1, `DELETE FROM canaries WHERE id IN (SELECT id FROM canaries INDEXED BY canaries_account WHERE account_id = $1 LIMIT $2)`),
		r.certificates,
		r.rowsOf("hostnames", 1, `DELETE FROM certificate_names WHERE (account_id, hostname, renewal, at) IN
			(SELECT account_id, hostname, renewal, at FROM certificate_names WHERE account_id = $1 LIMIT $2)`),
		r.rowsOf("reports of documents", 1, `DELETE FROM validation_reports WHERE gateway_id IN
			(SELECT gateway_id FROM validation_reports INDEXED BY validation_reports_account WHERE account_id = $1 LIMIT $2)`),
		r.gateways,
		r.rowsOf("pieces of imports", 1, `DELETE FROM key_import_pieces WHERE (import_id, number) IN
			(SELECT import_id, number FROM key_import_pieces INDEXED BY key_import_pieces_account WHERE account_id = $1 LIMIT $2)`),
		r.rowsOf("imports", 1, `DELETE FROM key_imports WHERE id IN (SELECT id FROM key_imports INDEXED BY key_imports_account WHERE account_id = $1 LIMIT $2)`),
		r.rowsOf("fan-outs", 1, `DELETE FROM fan_outs WHERE n IN (SELECT n FROM fan_outs INDEXED BY fan_outs_account WHERE account_id = $1 LIMIT $2)`),
		r.rowsOf("webhooks", 2, `DELETE FROM webhooks WHERE id IN (SELECT id FROM webhooks INDEXED BY webhooks_list WHERE account_id = $1 LIMIT $2)`),
		r.rowsOf("former subscriptions", 1, `DELETE FROM former_subscriptions WHERE n IN (SELECT n FROM former_subscriptions INDEXED BY former_subscriptions_list WHERE account_id = $1 LIMIT $2)`),
		r.deliveries,
		r.rowsOf("events", 1, `DELETE FROM events WHERE id IN (SELECT id FROM events INDEXED BY events_list WHERE listed = true AND account_id = $1 LIMIT $2)`),
		r.rowsOf("sessions", 1, `DELETE FROM sessions WHERE digest IN (SELECT digest FROM sessions INDEXED BY sessions_account WHERE account_id = $1 LIMIT $2)`),
		r.rowsOf("sessions of users", 1, `DELETE FROM user_sessions WHERE digest IN (SELECT digest FROM user_sessions INDEXED BY user_sessions_account WHERE account_id = $1 LIMIT $2)`),
		r.rowsOf("tokens of users", 1, `DELETE FROM user_tokens WHERE id IN (SELECT id FROM user_tokens INDEXED BY user_tokens_account WHERE account_id = $1 LIMIT $2)`),
		r.rowsOf("sign-ins of command lines", 1, `DELETE FROM logins WHERE digest IN (SELECT digest FROM logins INDEXED BY logins_account WHERE account_id = $1 LIMIT $2)`),
		r.rowsOf("invitations", 1, `DELETE FROM invitations WHERE id IN (SELECT id FROM invitations INDEXED BY invitations_list WHERE account_id = $1 LIMIT $2)`),
		r.callers("users", "id", "users_list", userWeight),
		r.callers("keys", "n", "keys_list", keyWeight),
		r.quotas,
		r.rowsOf("owners", ownerWeight, `DELETE FROM owners WHERE id IN (SELECT id FROM owners INDEXED BY owners_list WHERE account_id = $1 ORDER BY id LIMIT $2)`),
		r.rowsOf("plans", 1, `DELETE FROM plans WHERE id IN (SELECT id FROM plans INDEXED BY plans_list WHERE account_id = $1 LIMIT $2)`),
		r.rowsOf("denials", denialWeight, `DELETE FROM denials WHERE id IN (SELECT id FROM denials INDEXED BY denials_account WHERE account_id = $1 LIMIT $2)`),
		r.rowsOf("issuers", 1, `DELETE FROM issuers WHERE id IN (SELECT id FROM issuers INDEXED BY issuers_list WHERE account_id = $1 LIMIT $2)`),
		r.rowsOf("traffic", trafficWeight, `DELETE FROM traffic WHERE seq IN (SELECT seq FROM traffic INDEXED BY traffic_read WHERE account_id = $1 LIMIT $2)`),
		r.rowsOf("usage", trafficWeight, `DELETE FROM usage_blocks WHERE (account_id, tier, number) IN (SELECT account_id, tier, number FROM usage_blocks WHERE account_id = $1 LIMIT $2)`),
		r.rowsOf("numbers of usage", 1, `DELETE FROM usage_numbers WHERE (account_id, tier) IN (SELECT account_id, tier FROM usage_numbers WHERE account_id = $1 LIMIT $2)`),
		r.rowsOf("requests", 1, `DELETE FROM requests WHERE (account_id, id) IN (SELECT account_id, id FROM requests WHERE account_id = $1 LIMIT $2)`),
		r.rowsOf("omitted requests", 1, `DELETE FROM requests_left_out WHERE (account_id, second) IN
			(SELECT account_id, second FROM requests_left_out WHERE account_id = $1 LIMIT $2)`),
		r.rowsOf("bytes of requests", 1, `DELETE FROM request_bytes WHERE (account_id, day) IN (SELECT account_id, day FROM request_bytes WHERE account_id = $1 LIMIT $2)`),
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

func (r *removal) gateways(ctx context.Context) error {
	ids, err := r.removeWithTables(ctx, "remove gateways of a deleted account", `DELETE FROM gateways WHERE id IN
		(SELECT id FROM gateways INDEXED BY gateways_list WHERE account_id = $1 LIMIT $2) RETURNING id, table_id`)
	if err != nil {
		return err
	}
	for _, id := range ids {
		if _, err := r.AppendChange(ctx, snapshot.GatewayChange, id); err != nil {
			return err
		}
	}
	// Gateways that were deleted before the account.
	_, err = r.removeWithTables(ctx, "remove deleted gateways of a deleted account", `DELETE FROM ended_gateways WHERE id IN
		(SELECT id FROM ended_gateways INDEXED BY ended_gateways_account WHERE account_id = $1 LIMIT $2) RETURNING id, table_id`)
	return err
}

// removeWithTables runs a DELETE, with the account and a limit, that returns identifiers of gateways and the numbers of their
// route tables, which it drops. A gateway may have very many others, which are dropped already.
func (r *removal) removeWithTables(ctx context.Context, what, query string) (ids []string, err error) {
	if found, err := r.MayDelete(ctx, what, query, r.accountID, r.Most(1)); err != nil || !found {
		return nil, err
	}
	var tables []int64
	err = r.Query(ctx, what, query, []any{r.accountID, r.Most(1)}, func(row *Row) error {
		var id string
		var table int64
		err := row.Scan(&id, &table)
		ids, tables = append(ids, id), append(tables, table)
		return err
	})
	if err != nil || len(ids) == 0 {
		return nil, err
	}
	r.Removed(len(ids), 1)
	return ids, r.Queue(ctx, "drop the route tables of a deleted account", `UPDATE route_tables SET state = $1 WHERE id = ANY ($2)`, tableDropped, tables)
}

func (r *removal) deliveries(ctx context.Context) error {
	n, err := r.removeDeliveries(ctx, `SELECT n FROM deliveries INDEXED BY deliveries_account WHERE account_id = $1 LIMIT $2`,
		r.accountID, r.Most(deliveryWeight))
	r.Removed(n, deliveryWeight)
	return err
}

// callers removes keys or users, and before them the responses that are stored for them.
func (r *removal) callers(table, column, index string, weight int) func(context.Context) error {
	return func(ctx context.Context) error {
		found, err := r.Delete(ctx, "remove stored responses of a deleted account", someResponses(
			`FROM answers a WHERE a.key_id = ANY (ARRAY(SELECT id FROM `+table+` INDEXED BY `+index+` WHERE account_id = $1 ORDER BY id LIMIT $2))`, `$3`),
			r.accountID, r.Most(weight), r.Most(responseWeight))
		if err != nil {
			return err
		}
		if found > 0 { // there may be others
			r.Removed(r.Most(1), 1)
			return nil
		}
		n, err := r.Delete(ctx, "remove "+table+" of a deleted account", `DELETE FROM `+table+` WHERE `+column+` IN
			(SELECT `+column+` FROM `+table+` INDEXED BY `+index+` WHERE account_id = $1 ORDER BY id LIMIT $2)`, r.accountID, r.Most(weight))
		r.Removed(int(n), weight)
		return err
	}
}
