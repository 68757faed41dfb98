package cli

import (
	"cmp"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// spanFlags are the flags --since and --until.
type spanFlags struct{ since, until string }

func (o *spanFlags) add(f *pflag.FlagSet, what string) {
	f.StringVar(&o.since, "since", "", "only "+what+" at or after this `time`: 2026-03-01T12:00:00Z, 2026-03-01, or how long ago, such as 90s, 15m, 24h or 7d")
	f.StringVar(&o.until, "until", "", "only "+what+" before this `time`, in the same forms")
}

// span parses the flags. A flag that was not given is the zero time.
func (o *spanFlags) span(now time.Time) (since, until time.Time, err error) {
	if since, err = parseTime("since", o.since, now); err != nil {
		return since, until, err
	}
	until, err = parseTime("until", o.until, now)
	return since, until, err
}

// check returns the check of a list with these flags, which also sets the times.
func (o *spanFlags) check(since, until *time.Time) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, _ []string) (err error) {
		if err := noneEmpty(c); err != nil {
			return err
		}
		*since, *until, err = o.span(time.Now())
		return err
	}
}

// parseTime parses the value of a flag: a time, a date (midnight UTC), or a duration
// before now.
func parseTime(flag, v string, now time.Time) (time.Time, error) {
	if v == "" {
		return time.Time{}, nil
	}
	if t, ok := exactTime(v); ok {
		return t, nil
	}
	ago, err := time.ParseDuration(v)
	if days, isDays := strings.CutSuffix(v, "d"); isDays {
		var n int
		n, err = strconv.Atoi(days)
		ago = time.Duration(n) * 24 * time.Hour
	}
	if err != nil || ago < 0 || ago > 10*365*24*time.Hour {
		return time.Time{}, usagef("--%s %q is not a valid time: give 2026-03-01T12:00:00Z, 2026-03-01, or how long ago, such as 15m, 24h or 7d", flag, v)
	}
	return now.Add(-ago).UTC(), nil
}

// exactTime parses a time or a date (midnight UTC).
func exactTime(v string) (t time.Time, ok bool) {
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if t, err := time.Parse(layout, v); err == nil {
			return t.UTC(), true
		}
	}
	return time.Time{}, false
}

// expiresUsage is the end of the help for a flag --expires.
const expiresUsage = ", a time such as 2027-01-31T12:00:00Z, or how long from now, such as 12h, 30d or 4w"

// expiry returns the value of a flag --expires as the API takes it: hours, days and weeks become the time that is so
// much later than now. A date or time, which the server checks, stays as it is, and so does "".
func expiry(v string, now time.Time) (string, error) {
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if _, err := time.Parse(layout, v); err == nil || v == "" {
			return v, nil
		}
	}
	number, unit := v[:len(v)-1], v[len(v)-1:]
	hours := map[string]int{"h": 1, "d": 24, "w": 7 * 24}[unit]
	if hours == 0 || strings.Trim(cmp.Or(number, "-"), "0123456789") != "" {
		return "", usagef("--expires %q is not a valid time: give how long from now, such as 12h, 30d or 4w, a date such as 2027-01-31, or a time such as 2027-01-31T12:00:00Z", v)
	}
	n, err := strconv.Atoi(number)
	if most := 100 * 366 * 24 / hours; err != nil || n < 1 || n > most {
		return "", usagef("--expires %q is not a valid time: the number must be from 1 to %d", v, most)
	}
	return now.UTC().Add(time.Duration(n*hours) * time.Hour).Format(time.RFC3339), nil
}
