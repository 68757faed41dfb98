package terminal

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// Clean makes text from a server safe to print on a terminal: it replaces characters
// that are not printable, such as escape sequences and line ends. An empty string
// becomes a dash.
func Clean(s string) string {
	if s == "" {
		return "-"
	}
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '\uFFFD'
		}
		return r
	}, s)
}

// Moment formats *p in UTC; nil is "".
func Moment(p *time.Time) string {
	if p == nil {
		return ""
	}
	return p.UTC().Format(time.RFC3339)
}

// Relative formats a time from now as people say it, such as "3m ago" or "in 6d".
func Relative(d time.Duration) string {
	const day = 24 * time.Hour
	past := d < 0
	var text string
	switch d = d.Abs(); {
	case d < 2*time.Second:
		return "now"
	case d < 2*time.Minute:
		text = fmt.Sprintf("%ds", d/time.Second)
	case d < 2*time.Hour:
		text = fmt.Sprintf("%dm", d/time.Minute)
	case d < 2*day:
		text = fmt.Sprintf("%dh", d/time.Hour)
	case d < 2*365*day:
		text = fmt.Sprintf("%dd", d/day)
	default:
		text = fmt.Sprintf("%dy", d/(365*day))
	}
	if past {
		return text + " ago"
	}
	return "in " + text
}

// NumberOf returns n with its noun.
func NumberOf(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// Gauge draws n out of most as a bar of up to width cells. Any n above zero is
// visible.
func Gauge(n, most int64, width int) string {
	if n <= 0 || most <= 0 {
		return " " // an empty cell would be printed as a dash
	}
	eighths := max(1, int(float64(min(n, most))/float64(most)*float64(width*8)))
	bar := strings.Repeat("█", eighths/8)
	if rest := eighths % 8; rest > 0 {
		bar += string([]rune("▏▎▍▌▋▊▉")[rest-1])
	}
	return bar
}

// Size formats a number of bytes.
func Size(n int64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	case n >= 1<<10:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	default:
		return strconv.FormatInt(n, 10) + " B"
	}
}

// Milliseconds formats a duration in milliseconds; 0, which is not measured, is "".
func Milliseconds(ms float64) string {
	switch {
	case ms == 0:
		return ""
	case ms >= 1000:
		return strconv.FormatFloat(ms/1000, 'f', 2, 64) + " s"
	case ms >= 100:
		return strconv.FormatFloat(ms, 'f', 0, 64) + " ms"
	default:
		return strconv.FormatFloat(ms, 'f', 2, 64) + " ms"
	}
}

// Thousands formats n with a comma between groups of three digits.
func Thousands(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
