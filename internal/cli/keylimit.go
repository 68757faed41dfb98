package cli

import (
	"strconv"
	"strings"

	"github.com/keygate/keygate/client"
)

// keyLimitHelp describes the value of --rate-limit for a key.
const keyLimitHelp = "`limit` of the key: a rate such as 100/min, or parts such as sustained=100/min,burst=20/s,daily=5000/day"

// keyConcurrencyHelp describes the value of --concurrency for a key.
const keyConcurrencyHelp = "`number` of requests with the key that may be in flight at once, at most"

// keyConcurrency parses the value of --concurrency for a key. It returns nil for "".
func keyConcurrency(text string) (*int64, error) {
	if text == "" {
		return nil, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return nil, usagef("--concurrency %q must be a whole number, such as 5", text)
	}
	return &n, nil
}

// keyLimit parses the value of --rate-limit for a key. It returns nil for "".
func keyLimit(text string) (*client.KeyRateLimit, error) {
	if text == "" {
		return nil, nil
	}
	if !strings.Contains(text, "=") {
		return &client.KeyRateLimit{Rate: text}, nil
	}
	l := &client.KeyRateLimit{}
	parts := map[string]*string{"sustained": &l.Sustained, "burst": &l.Burst, "daily": &l.Daily}
	for part := range strings.SplitSeq(text, ",") {
		name, rate, _ := strings.Cut(part, "=")
		to := parts[strings.TrimSpace(name)]
		if to == nil || *to != "" || rate == "" {
			return nil, usagef("--rate-limit must be a rate such as 100/min, or parts such as sustained=100/min,burst=20/s,daily=5000/day, each once")
		}
		*to = strings.TrimSpace(rate)
	}
	return l, nil
}

// keyLimitText returns the form of a key's limit that --rate-limit takes.
func keyLimitText(l *client.KeyRateLimit) string {
	if l == nil {
		return ""
	}
	return l.String()
}
