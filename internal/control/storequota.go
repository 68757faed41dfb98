package control

import (
	"context"
	"time"

	"github.com/keygate/keygate/internal/calendar"
	"github.com/keygate/keygate/internal/plan"
	"github.com/keygate/keygate/internal/ratelimit"
)

// StoredQuota is a window of a quota, as the store has it.
type StoredQuota struct {
	ratelimit.QuotaKey
	ratelimit.QuotaWindow
}

// QuotaReader reads what quotas have counted.
type QuotaReader interface {
	// QuotaWindows returns the windows of the quotas of a subject that the store has, those of one quota in their order. There
	// is none in which it was not used, and those that have ended are kept for a time.
	QuotaWindows(ctx context.Context, accountID, subject string) ([]StoredQuota, error)
	// QuotaGrants lists the grants of a subject that the store still has, newest first.
	QuotaGrants(ctx context.Context, accountID, subject string, p Page) ([]plan.Grant, error)
	// StrayQuotas looks at up to limit quotas behind a number, and returns the numbers of those whose subject does not
	// exist. next is where to go on, or 0 at the end.
	StrayQuotas(ctx context.Context, after int64, limit int) (stray []int64, next int64, err error)
}

// QuotaGranter reads what quotas have counted, and adds to it.
type QuotaGranter interface {
	QuotaReader
	// GrantQuota adds g to the window of the quota that has the time now, which it makes by the calendar if there is none,
	// and sets the edges in g. More than plan.MaxGrants of a window are fault.Conflict.
	GrantQuota(ctx context.Context, key ratelimit.QuotaKey, c calendar.Calendar, now time.Time, g *plan.Grant) error
}
