package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/keygate/keygate/internal/control"
)

// AccountCounts implements control.AccountReader. Triggers keep the counts.
func (t *readTx) AccountCounts(ctx context.Context, accountID string) (n control.AccountCounts, err error) {
	err = t.rows(ctx, "read the counts of an account", `SELECT keys, live_keys, responses, response_bytes, revision_bytes,
		gateway_bytes, route_bytes, key_bytes, webhook_bytes FROM account_counts WHERE account_id = $1`,
		[]any{accountID}, func(r pgx.Rows) error {
			return r.Scan(&n.Keys, &n.LiveKeys, &n.Responses, &n.ResponseBytes, &n.RevisionBytes, &n.GatewayBytes, &n.RouteBytes, &n.KeyBytes, &n.WebhookBytes)
		})
	return n, err
}

// AccountRoom implements control.AccountReader. An account without a row has none of anything.
func (t *readTx) AccountRoom(ctx context.Context, accountID string, most control.AccountCounts) (room control.AccountRoom, err error) {
	err = t.row(ctx, "counts of the account", `SELECT coalesce(c.keys, 0) < $2, coalesce(c.live_keys, 0) < $3, coalesce(c.responses, 0) < $4,
			coalesce(c.response_bytes, 0) < $5, coalesce(c.revision_bytes, 0) < $6,
			coalesce(c.gateway_bytes + c.route_bytes + c.key_bytes + c.webhook_bytes, 0) < $7
		FROM (SELECT $1::text AS id) a LEFT JOIN account_counts c ON c.account_id = a.id`,
		[]any{accountID, most.Keys, most.LiveKeys, most.Responses, most.ResponseBytes, most.RevisionBytes, most.ConfigurationBytes()}, func(r pgx.Rows) error {
			return r.Scan(&room.Keys, &room.LiveKeys, &room.Responses, &room.ResponseBytes, &room.RevisionBytes, &room.Configuration)
		})
	return room, err
}
