package sqlite

import (
	"context"

	"github.com/keygate/keygate/internal/control"
)

// AccountRoom implements control.AccountReader.
func (t *readTx) AccountRoom(ctx context.Context, accountID string, most control.AccountCounts) (control.AccountRoom, error) {
	n, err := t.AccountCounts(ctx, accountID)
	return control.AccountRoom{
		Keys: n.Keys < most.Keys, LiveKeys: n.LiveKeys < most.LiveKeys, Owners: n.Owners < most.Owners, Plans: n.Plans < most.Plans,
		Responses: n.Responses < most.Responses, ResponseBytes: n.ResponseBytes < most.ResponseBytes, RevisionBytes: n.RevisionBytes < most.RevisionBytes,
		Targets: n.Targets < most.Targets, Configuration: n.ConfigurationBytes() < most.ConfigurationBytes(),
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
