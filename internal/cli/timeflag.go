package cli

import (
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// spanFlags are the flags --since and --until.
type spanFlags struct{ since, until string }

func (o *spanFlags) add(f *pflag.FlagSet, what string) {
	f.StringVar(&o.since, "since", "", "only "+what+" from this `time` on: 2026-03-01T12:00:00Z, 2026-03-01, or how long ago, as in 90s, 15m, 24h or 7d")
	f.StringVar(&o.until, "until", "", "only "+what+" before this `time`: as --since")
}

// span reads the flags; the zero time is a flag that was not given.
func (o *spanFlags) span(now time.Time) (since, until time.Time, err error) {
	if since, err = parseTime("since", o.since, now); err != nil {
		return since, until, err
	}
	until, err = parseTime("until", o.until, now)
	return since, until, err
}

// parseTime reads a time, a date, which is its midnight in UTC, or how long
// before now.
func parseTime(flag, v string, now time.Time) (time.Time, error) {
	if v == "" {
		return time.Time{}, nil
	}
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if t, err := time.Parse(layout, v); err == nil {
			return t.UTC(), nil
		}
	}
	ago, err := time.ParseDuration(v)
	if days, isDays := strings.CutSuffix(v, "d"); isDays {
		var n int
		n, err = strconv.Atoi(days)
		ago = time.Duration(n) * 24 * time.Hour
	}
	if err != nil || ago < 0 || ago > 10*365*24*time.Hour {
		return time.Time{}, usagef("--%s %q is no time: write 2026-03-01T12:00:00Z, 2026-03-01, or how long ago, as in 15m, 24h or 7d", flag, v)
	}
	return now.Add(-ago).UTC(), nil
}
