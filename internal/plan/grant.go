package plan

import (
	"time"

	"github.com/keygate/keygate/internal/calendar"
)

// The bounds of grants (docs/limits.md).
const (
	MaxGrants = 1000 // of a quota in one window
	MaxReason = 255  // bytes
)

// Grant is the stored record of units that were added to one window of a quota by hand.
type Grant struct {
	ID        string
	AccountID string
	Subject   string // an owner, or the bucket of a key
	Limit     string // name of the limit
	Plan      string // name of the plan that had the limit
	Meter     string
	Unit      calendar.Unit
	Units     int64  // 1 to ratelimit.MaxUnits
	Reason    string // "" for none

	// The window, to which the store sets these.
	WindowStart, WindowEnd time.Time

	CreatedAt time.Time
}
