package requestlog

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
)

// ExplainAttempt says how the number-th attempt of a request ended, as in "attempt 1 → 10.0.0.1:8443: connection refused (ejected
// 12:00:03 after 5 failures, for 10 s)" or "attempt 2 → 10.0.0.2:8443: 200 in 4 ms". Times of day are in UTC.
func ExplainAttempt(number int, a *accesslog.Attempt) string {
	text := fmt.Sprintf("attempt %d → %s: %s", number, a.Target, attemptWords(a))
	if a.Ejected == 0 {
		return text
	}
	return text + " (" + ejection(a.Ejected, a.EjectedUntil, a.Failures) + ")"
}

// ejection says when a target was ejected, after how many failures and for how long.
func ejection(since, until int64, failures int) string {
	noun := "failures"
	if failures == 1 {
		noun = "failure"
	}
	return fmt.Sprintf("ejected %s after %d %s, for %s", timeOfDay(since), failures, noun, spell(time.Duration(until-since)*time.Millisecond))
}

// timeOfDay returns the time of day in UTC of a time in milliseconds since 1970.
func timeOfDay(ms int64) string { return time.UnixMilli(ms).UTC().Format(time.TimeOnly) }

// ExplainUntried says why a request was not sent to a target, as in "10.0.0.3:8443 (ejected 12:00:03 after 5 failures, for 10 s)".
func ExplainUntried(t *accesslog.UntriedTarget) string {
	why := strings.ReplaceAll(t.State, "_", " ")
	switch t.State {
	case accesslog.StateUnhealthy:
		why = "unhealthy since " + timeOfDay(t.Since)
		if t.Reason != "" {
			why += ": " + strings.ReplaceAll(t.Reason, "_", " ")
		}
	case accesslog.StateEjected:
		why = ejection(t.Since, t.Until, t.Failures)
	case accesslog.StateHalfOpen:
		why = ejection(t.Since, t.Until, t.Failures) + "; that is over, and one request at a time tries it"
	case accesslog.StateWaits:
		why = "waits for its first check"
	}
	return t.Target + " (" + why + ")"
}

// attemptWords says how an attempt ended. The results are those of package balance.
func attemptWords(a *accesslog.Attempt) string {
	took := spell(a.Took)
	switch a.Result {
	case "ok", "502", "503", "504":
		return fmt.Sprintf("%d in %s", a.Status, took)
	case "grpc_unavailable":
		return fmt.Sprintf("%d with grpc-status 14 in %s", a.Status, took)
	case "canceled":
		if a.Reason != accesslog.NoReason {
			return "not processed by the target"
		}
		return "ended by the client or by Keygate after " + took
	case "timeout":
		if a.Status != 0 {
			return fmt.Sprintf("%d, and no end of it within %s", a.Status, took)
		}
		return "no response within " + took
	case "reset":
		if a.Status != 0 {
			return fmt.Sprintf("%d, and the connection ended after %s", a.Status, took)
		}
	}
	if words := shortReason(a.Reason); words != "" {
		return words
	}
	switch a.Result {
	case "connect":
		return "no connection within " + took
	case "reset":
		return "the connection ended before the response"
	case "unusable":
		return "the request was declined, or the response cannot be used"
	case "address_not_allowed":
		return "the address is not allowed for this account"
	}
	return strings.ReplaceAll(a.Result, "_", " ")
}

// shortReason says in a few words why an attempt failed, or returns "".
func shortReason(r accesslog.Reason) string {
	switch r {
	case accesslog.NameNotFound:
		return "the name does not exist"
	case accesslog.NameLookupFailed:
		return "the name could not be looked up"
	case accesslog.AddressNotAllowed:
		return "the address is not allowed for this account"
	case accesslog.ConnectTimeout:
		return "connecting took too long"
	case accesslog.TLSFailed:
		return "the TLS handshake failed"
	case accesslog.CertificateRejected:
		return "the certificate was not accepted"
	case accesslog.ClosedEarly:
		return "the connection ended before the response"
	default:
		return strings.ReplaceAll(r.String(), "_", " ")
	}
}

// spell returns a duration in words, such as 0.31 ms, 4 ms or 10 s.
func spell(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return strconv.FormatFloat(float64(d.Round(10*time.Microsecond))/float64(time.Millisecond), 'f', -1, 64) + " ms"
	case d < time.Second:
		return strconv.FormatInt(d.Round(time.Millisecond).Milliseconds(), 10) + " ms"
	default:
		return strconv.FormatFloat(d.Round(100*time.Millisecond).Seconds(), 'f', -1, 64) + " s"
	}
}
