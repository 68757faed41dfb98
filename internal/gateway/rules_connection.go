package gateway

import (
	"time"

	"github.com/keygate/keygate/internal/fault"
)

// MaxUpstreamConnections is the greatest bound that a gateway can set on its
// connections.
const MaxUpstreamConnections = 100_000

// CheckUpstreamConnectTimeout checks the time to connect to an upstream as users
// write it: a Go duration from 100 milliseconds to a minute. The error is a
// validation error of the field "upstream_connect_timeout".
func CheckUpstreamConnectTimeout(s string) error {
	d, err := time.ParseDuration(s)
	if err != nil || d < 100*time.Millisecond || d > time.Minute {
		return fault.Invalid("upstream_connect_timeout", "must be a duration from 100ms to 1m, as in 500ms or 5s")
	}
	return nil
}

// CheckUpstreamIdleTimeout checks how long a connection to an upstream may be
// idle: a Go duration from a second to an hour. The error is a validation error
// of the field "upstream_idle_timeout".
func CheckUpstreamIdleTimeout(s string) error {
	d, err := time.ParseDuration(s)
	if err != nil || d < time.Second || d > time.Hour {
		return fault.Invalid("upstream_idle_timeout", "must be a duration from 1s to 1h, as in 30s or 1m30s")
	}
	return nil
}

// CheckMaxBodyBytes checks the size of the largest request body that is forwarded.
// The error is a validation error of the field "max_body_bytes".
func CheckMaxBodyBytes(n int64) error {
	if n < 1 {
		return fault.Invalid("max_body_bytes", "must be at least 1, or null for no limit")
	}
	return nil
}

// CheckUpstreamMaxConnections checks a bound on connections to an upstream. The
// error is a validation error of the field "upstream_max_connections".
func CheckUpstreamMaxConnections(n int64) error {
	if n < 1 || n > MaxUpstreamConnections {
		return fault.Invalid("upstream_max_connections", "must be a number from 1 to %d: leave it out, or set it to null, for no bound", MaxUpstreamConnections)
	}
	return nil
}
