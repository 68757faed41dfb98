package rows

import (
	"context"

	"github.com/keygate/keygate/internal/control"
)

// AccountCounts implements control.AccountReader. Triggers keep the counts.
func (t *Reader) AccountCounts(ctx context.Context, accountID string) (n control.AccountCounts, err error) {
	err = t.Query(ctx, "read the counts of an account", `SELECT keys, live_keys, owners, plans, quotas, responses, response_bytes, revision_bytes,
		targets, gateway_bytes, route_bytes, key_bytes, webhook_bytes, owner_bytes, plan_bytes FROM account_counts WHERE account_id = $1`,
		[]any{accountID}, func(r *Row) error {
			return r.Scan(&n.Keys, &n.LiveKeys, &n.Owners, &n.Plans, &n.Quotas, &n.Responses, &n.ResponseBytes, &n.RevisionBytes,
				&n.Targets, &n.GatewayBytes, &n.RouteBytes, &n.KeyBytes, &n.WebhookBytes, &n.OwnerBytes, &n.PlanBytes)
		})
	return n, err
}
