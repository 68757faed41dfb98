package postgres

import (
	"context"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/store/rows"
)

// AccountRoom implements control.AccountReader. An account without a row has no records.
func (t *readTx) AccountRoom(ctx context.Context, accountID string, most control.AccountCounts) (room control.AccountRoom, err error) {
	err = t.QueryRow(ctx, "counts of the account", `SELECT coalesce(c.keys, 0) < $2, coalesce(c.live_keys, 0) < $3, coalesce(c.owners, 0) < $4, coalesce(c.plans, 0) < $5,
			coalesce(c.responses, 0) < $6, coalesce(c.response_bytes, 0) < $7, coalesce(c.revision_bytes, 0) < $8, coalesce(`+configurationBytes+`, 0) < $9, coalesce(c.targets, 0) < $10
		FROM (SELECT $1::text AS id) a LEFT JOIN account_counts c ON c.account_id = a.id`,
		[]any{accountID, most.Keys, most.LiveKeys, most.Owners, most.Plans, most.Responses, most.ResponseBytes, most.RevisionBytes, most.ConfigurationBytes(), most.Targets}, func(r *rows.Row) error {
			return r.Scan(&room.Keys, &room.LiveKeys, &room.Owners, &room.Plans, &room.Responses, &room.ResponseBytes, &room.RevisionBytes, &room.Configuration, &room.Targets)
		})
	return room, err
}

// RequireRoomForResponse implements control.AccountStore.
func (t *tx) RequireRoomForResponse(ctx context.Context, accountID string, most, mostBytes int64, refusal error) error {
	return t.enqueue(ctx, statement{what: "look for room for a response", fails: refusal, args: []any{accountID, most, mostBytes},
		query: `SELECT 1 / (NOT EXISTS (SELECT FROM account_counts WHERE account_id = $1 AND (responses >= $2 OR response_bytes >= $3)))::int`})
}

// NoteConfiguration implements control.AccountStore.
func (t *tx) NoteConfiguration(ctx context.Context, accountID string) error {
	return t.Queue(ctx, "note the size of the configuration", `SELECT set_config('keygate.configuration',
		coalesce((SELECT `+configurationBytes+` FROM account_counts WHERE account_id = $1), 0)::text, true)`, accountID)
}

// ConfigurationFits implements control.AccountStore.
func (t *tx) ConfigurationFits(ctx context.Context, accountID string, most int64) (fits bool, err error) {
	const what, condition = "look at the size of the configuration", `NOT EXISTS (SELECT FROM account_counts
		WHERE account_id = $1 AND ` + configurationBytes + ` > greatest($2, current_setting('keygate.configuration', true)::bigint))`
	if t.ahead && !t.sure {
		return true, t.enqueue(ctx, statement{what: what, fails: errAssumed, query: `SELECT 1 / (` + condition + `)::int`, args: []any{accountID, most}})
	}
	err = t.QueryRow(ctx, what, `SELECT `+condition, []any{accountID, most}, func(r *rows.Row) error { return r.Scan(&fits) })
	return fits, err
}

const configurationBytes = `gateway_bytes + route_bytes + key_bytes + webhook_bytes + owner_bytes + plan_bytes`
