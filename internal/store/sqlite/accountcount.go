package sqlite

import (
	"context"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/store/rows"
)

// AccountCounts implements control.AccountReader. Triggers keep the counts.
func (t *readTx) AccountCounts(ctx context.Context, accountID string) (n control.AccountCounts, err error) {
	err = t.Query(ctx, "read the counts of an account", `SELECT keys, live_keys, responses, response_bytes, revision_bytes,
		gateway_bytes, route_bytes, key_bytes, webhook_bytes FROM account_counts WHERE account_id = ?`,
		[]any{accountID}, func(r rows.Row) error {
			return r.Scan(&n.Keys, &n.LiveKeys, &n.Responses, &n.ResponseBytes, &n.RevisionBytes, &n.GatewayBytes, &n.RouteBytes, &n.KeyBytes, &n.WebhookBytes)
		})
	return n, err
}

// AccountRoom implements control.AccountReader.
func (t *readTx) AccountRoom(ctx context.Context, accountID string, most control.AccountCounts) (control.AccountRoom, error) {
	n, err := t.AccountCounts(ctx, accountID)
	return control.AccountRoom{
		Keys: n.Keys < most.Keys, LiveKeys: n.LiveKeys < most.LiveKeys, Responses: n.Responses < most.Responses,
		ResponseBytes: n.ResponseBytes < most.ResponseBytes, RevisionBytes: n.RevisionBytes < most.RevisionBytes,
		Configuration: n.ConfigurationBytes() < most.ConfigurationBytes(),
	}, err
}

// RequireRoomForResponse implements control.AccountStore.
func (t *tx) RequireRoomForResponse(ctx context.Context, accountID string, most, mostBytes int64, refusal error) error {
	n, err := t.AccountCounts(ctx, accountID)
	if err == nil && (n.Responses >= most || n.ResponseBytes >= mostBytes) {
		return refusal
	}
	return err
}

// NoteConfiguration implements control.AccountStore.
func (t *tx) NoteConfiguration(ctx context.Context, accountID string) error {
	n, err := t.AccountCounts(ctx, accountID)
	t.configuration = n.ConfigurationBytes()
	return err
}

// ConfigurationFits implements control.AccountStore.
func (t *tx) ConfigurationFits(ctx context.Context, accountID string, most int64) (bool, error) {
	n, err := t.AccountCounts(ctx, accountID)
	return n.ConfigurationBytes() <= max(most, t.configuration), err
}
