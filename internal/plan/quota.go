package plan

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/keygate/keygate/internal/calendar"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/ratelimit"
)

// Requests is the meter that counts each request as one unit.
const Requests = "requests"

// Overage is what happens to requests beyond the count of a quota.
type Overage string

// The values of Overage.
const (
	OverageRefuse Overage = "refuse"
	OverageAllow  Overage = "allow" // they are counted, and not refused
)

// The bounds of a quota's warnings (plans.md, section 3).
const (
	maxWarnings = 5
	maxPercent  = 200
)

// DefaultWarnAt is the percentages of a quota that sets none.
func DefaultWarnAt() []int { return []int{80, 100} }

// Quota is a count of units for each calendar window. The zero value is none.
type Quota struct {
	Count int64 // 1 to ratelimit.MaxUnits
	Unit  calendar.Unit
}

// IsZero reports whether q is none.
func (q Quota) IsZero() bool { return q == Quota{} }

// String returns the form <count>/<unit>, or "" for none.
func (q Quota) String() string {
	if q.IsZero() {
		return ""
	}
	return strconv.FormatInt(q.Count, 10) + "/" + q.Unit.String()
}

// MarshalText returns what String does.
func (q Quota) MarshalText() ([]byte, error) { return []byte(q.String()), nil }

// UnmarshalText parses what String returns. The error is a validation error without a field.
func (q *Quota) UnmarshalText(text []byte) error {
	*q = Quota{}
	if len(text) == 0 {
		return nil
	}
	count, unit, _ := strings.Cut(string(text), "/")
	n, err := strconv.ParseInt(count, 10, 64)
	if err != nil || n < 1 || n > ratelimit.MaxUnits || count[0] == '+' || count[0] == '0' {
		return badQuota()
	}
	u, err := calendar.ParseUnit(unit)
	if err != nil {
		return badQuota()
	}
	*q = Quota{n, u}
	return nil
}

func badQuota() error {
	return fault.Invalid("", "must be a count and a window, such as 100000/month: a whole number from 1 to %d, and day, week, month or total", int64(ratelimit.MaxUnits))
}

// Warnings returns the percentages at which events tell of the quota.
func (l *Limit) Warnings() []int {
	if l.WarnAt == nil {
		return DefaultWarnAt()
	}
	return l.WarnAt
}

// QuotaName returns what the quota of the limit counts under, in an account. The limit must have a quota.
func (l *Limit) QuotaName(accountID string) ratelimit.QuotaName {
	return ratelimit.QuotaName{AccountID: accountID, Limit: l.Name, Meter: cmp.Or(l.Meter, Requests), Unit: l.Quota.Unit}
}
