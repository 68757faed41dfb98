package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/keygate/keygate/internal/calendar"
	"github.com/keygate/keygate/internal/cost"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/ratelimit"
)

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
	MaxPercent  = 200
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

// IsQuota reports whether the limit is a quota, and not a rate.
func (l *Limit) IsQuota() bool { return !l.Quota.IsZero() }

// MeterOrDefault returns what the limit counts.
func (l *Limit) MeterOrDefault() string { return cmp.Or(l.Meter, ratelimit.Requests) }

// OverageOrDefault returns what happens to requests beyond the count of a quota.
func (l *Limit) OverageOrDefault() Overage { return cmp.Or(l.Overage, OverageRefuse) }

// Warnings returns the percentages at which events tell of the quota. There are none if the limit sets an empty list.
func (l *Limit) Warnings() []int {
	if l.WarnAt == nil {
		return DefaultWarnAt()
	}
	return l.WarnAt
}

// QuotaName returns what the quota of the limit counts under, in an account. The limit must have a quota.
func (l *Limit) QuotaName(accountID string) ratelimit.QuotaName {
	return ratelimit.QuotaName{AccountID: accountID, Limit: l.Name, Meter: l.MeterOrDefault(), Unit: l.Quota.Unit}
}

// sameQuota reports whether l and o are equal in the fields of quotas.
func (l *Limit) sameQuota(o *Limit) bool {
	return l.Quota == o.Quota && l.OverageOrDefault() == o.OverageOrDefault() &&
		slices.Equal(l.Warnings(), o.Warnings())
}

// Calendar returns how the plan divides time for quotas with the unit. zone and anchor are those of the owner, which go
// before those of the plan; "" and 0 if it has none, or if there is no owner.
func (p *Plan) Calendar(u calendar.Unit, zone string, anchor int) (calendar.Calendar, error) {
	location, err := calendar.Zone(cmp.Or(zone, p.TimeZone))
	if err != nil {
		return calendar.Calendar{}, fmt.Errorf("time zone of the plan %s: %w", p.Name, err)
	}
	return calendar.Calendar{Unit: u, Zone: location, Anchor: cmp.Or(anchor, p.AnchorDay)}, nil
}

// parseQuota sets the fields of quotas of l. Defaults that are written are stored as if they were absent.
func (in *LimitInput) parseQuota(l *Limit) error {
	var badMeter, badOverage, badWarnAt error
	badCount := fault.Prefixed("quota", l.Quota.UnmarshalText([]byte(in.Quota)))
	switch {
	case in.Meter != "" && in.Meter != ratelimit.Requests && in.onlyConcurrency():
		badMeter = fault.Invalid("meter", "must be absent for concurrency, which counts requests in flight: leave it out, or use sustained or quota")
	case in.Meter != "" && !cost.IsMeter(in.Meter):
		badMeter = fault.Invalid("meter", "must be requests, bytes_in, bytes_out or the meter of a route's cost, such as tokens: 1 to 32 characters of a-z, 0-9 and _")
	case in.Meter != ratelimit.Requests:
		l.Meter = in.Meter
	}
	if l.Meter == "" && badMeter == nil {
		badCount = fault.Join(badCount, checkRequests("sustained", l.Sustained), checkRequests("burst", l.Burst))
	}
	switch Overage(in.Overage) {
	case "":
	case OverageRefuse, OverageAllow:
		if badOverage = in.onlyOfQuotas("overage"); in.Overage != string(OverageRefuse) {
			l.Overage = Overage(in.Overage)
		}
	default:
		badOverage = fault.Invalid("overage", "must be refuse or allow")
	}
	if in.WarnAt != nil {
		badWarnAt = cmp.Or(checkPercentages(in.WarnAt), in.onlyOfQuotas("warn_at"))
		if l.WarnAt = slices.Sorted(slices.Values(in.WarnAt)); l.WarnAt == nil {
			l.WarnAt = []int{}
		}
		if slices.Equal(l.WarnAt, DefaultWarnAt()) {
			l.WarnAt = nil
		}
	}
	return fault.Join(badCount, badMeter, badOverage, badWarnAt)
}

// checkRequests checks a rate of requests, whose count is smaller than that of other meters.
func checkRequests(field string, r ratelimit.UnitRate) error {
	_, err := ratelimit.ParseRate(r.String())
	if r.IsZero() {
		return nil
	}
	return fault.Prefixed(field, err)
}

// onlyOfQuotas returns an error of a field that was given, unless the limit is a quota.
func (in *LimitInput) onlyOfQuotas(field string) error {
	switch {
	case in.Quota != "":
		return nil
	case in.onlyConcurrency():
		return fault.Invalid(field, "must be absent for concurrency, which refuses whatever is above it: leave it out, or use quota")
	}
	return fault.Invalid(field, "needs quota: leave it out for a rate, which refuses whatever is above it")
}

func checkPercentages(list []int) error {
	if len(list) > maxWarnings {
		return fault.Invalid("warn_at", "must have at most %d percentages", maxWarnings)
	}
	var errs []error
	for i, percent := range list {
		field := fmt.Sprintf("warn_at[%d]", i)
		switch {
		case percent < 1 || percent > MaxPercent:
			errs = append(errs, fault.Invalid(field, "must be a percentage between 1 and %d", MaxPercent))
		case slices.Contains(list[:i], percent):
			errs = append(errs, fault.Invalid(field, "is in the list twice"))
		}
	}
	return fault.Join(errs...)
}
