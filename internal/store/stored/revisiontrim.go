package stored

import (
	"context"
	"math"

	"github.com/keygate/keygate/internal/control"
)

// History is the revisions of a gateway.
type History struct {
	GatewayID  string // "" for none
	Newest     int64  // number of the newest
	OlderBytes int64  // of all but the newest
}

// OldRevision is a revision that may be removed.
type OldRevision struct {
	Number, CreatedAt, Bytes int64
}

// Histories is what TrimRevisions needs of a transaction.
type Histories interface {
	// GoneHistory returns the history of a deleted gateway.
	GoneHistory(ctx context.Context) (History, error)
	// LongHistory returns a history of more than newest revisions whose oldest was created before a
	// time, in microseconds.
	LongHistory(ctx context.Context, newest int, before int64) (History, error)
	// FullAccount returns an account whose revisions take more than most bytes, and how many they
	// take. At least one of them must not be the newest of its gateway. It returns "" if there is
	// none.
	FullAccount(ctx context.Context, most int64) (accountID string, bytes int64, err error)
	// LargestHistories returns the two histories of an account whose older revisions take the most
	// bytes. Histories without older revisions are left out.
	LargestHistories(ctx context.Context, accountID string) ([]History, error)
	// OldestRevisions returns the oldest revisions of a gateway with numbers up to last.
	OldestRevisions(ctx context.Context, gatewayID string, last int64, limit int) ([]OldRevision, error)
	// DeleteRevisions removes the revisions of a gateway with numbers up to last.
	DeleteRevisions(ctx context.Context, gatewayID string, last int64) error
}

// TrimRevisions removes up to limit revisions that are not to be kept. more says that there may be
// others.
func TrimRevisions(ctx context.Context, h Histories, k control.KeptRevisions, limit int) (more bool, err error) {
	t := revisionTrimmer{h, k}
	for _, step := range []func(ctx context.Context, limit int) (removed int, err error){t.gone, t.long, t.full} {
		for {
			n, err := step(ctx, limit)
			if err != nil {
				return false, err
			}
			if n == 0 {
				break
			}
			if limit -= n; limit <= 0 {
				return true, nil
			}
		}
	}
	return false, nil
}

type revisionTrimmer struct {
	Histories
	keep control.KeptRevisions
}

// gone removes revisions of a deleted gateway.
func (t *revisionTrimmer) gone(ctx context.Context, limit int) (int, error) {
	h, err := t.GoneHistory(ctx)
	if err != nil || h.GatewayID == "" {
		return 0, err
	}
	return t.oldest(ctx, h.GatewayID, h.Newest, limit, func(OldRevision) bool { return true })
}

// long removes revisions of one gateway that are not among the newest and are older than revisions
// must be kept.
func (t *revisionTrimmer) long(ctx context.Context, limit int) (int, error) {
	before := t.keep.Since.UnixMicro()
	h, err := t.LongHistory(ctx, t.keep.Newest, before)
	if err != nil || h.GatewayID == "" {
		return 0, err
	}
	return t.oldest(ctx, h.GatewayID, h.Newest-int64(t.keep.Newest), limit, func(r OldRevision) bool { return r.CreatedAt < before })
}

// full removes revisions of an account that has too many bytes of them: the oldest of the gateway
// whose older revisions take the most, until the older revisions of another gateway take as much.
func (t *revisionTrimmer) full(ctx context.Context, limit int) (int, error) {
	accountID, bytes, err := t.FullAccount(ctx, t.keep.AccountBytes)
	if err != nil || accountID == "" {
		return 0, err
	}
	largest, err := t.LargestHistories(ctx, accountID)
	if err != nil || len(largest) == 0 {
		return 0, err
	}
	excess, lead := bytes-t.keep.AccountBytes, int64(math.MaxInt64)
	if len(largest) > 1 {
		lead = largest[0].OlderBytes - largest[1].OlderBytes
	}
	removed := int64(0)
	return t.oldest(ctx, largest[0].GatewayID, largest[0].Newest-1, limit, func(r OldRevision) bool {
		if removed > 0 && (removed >= excess || removed >= lead) {
			return false
		}
		removed += r.Bytes
		return true
	})
}

// oldest removes revisions of a gateway with numbers up to last, the oldest first, as long as remove
// says so, and at most limit of them.
func (t *revisionTrimmer) oldest(ctx context.Context, gatewayID string, last int64, limit int, remove func(OldRevision) bool) (int, error) {
	list, err := t.OldestRevisions(ctx, gatewayID, last, limit)
	if err != nil {
		return 0, err
	}
	n := 0
	for n < len(list) && remove(list[n]) {
		n++
	}
	if n == 0 {
		return 0, nil
	}
	return n, t.DeleteRevisions(ctx, gatewayID, list[n-1].Number)
}
