package cli

import (
	"strings"
	"testing"
	"time"
)

// Guarantee: --expires takes hours, days and weeks from now. A date or time goes to the server as it is, and the refusal
// of anything else names the forms.
func TestExpiryFromNow(t *testing.T) {
	t.Parallel()
	now := time.Date(2027, 1, 30, 12, 0, 0, 0, time.FixedZone("", 3600))
	for v, want := range map[string]string{
		"30d": "2027-03-01T11:00:00Z", "1d": "2027-01-31T11:00:00Z", "4w": "2027-02-27T11:00:00Z", "36600d": "2127-04-16T11:00:00Z",
		"12h": "2027-01-30T23:00:00Z", "": "", "2027-01-31": "2027-01-31", "2027-01-31T12:00:00Z": "2027-01-31T12:00:00Z", "2020-01-01": "2020-01-01",
	} {
		if got, err := expiry(v, now); err != nil || got != want {
			t.Errorf("%q: got %q, %v; want %q", v, got, err, want)
		}
	}
	for _, v := range []string{"30x", "d", "30", "-3d", "1.5d", "3 d", "2027-13-01", "30é"} {
		if _, err := expiry(v, now); exitCode(err) != exitUsage || !strings.Contains(err.Error(), "such as 12h, 30d or 4w, a date such as 2027-01-31") {
			t.Errorf("%q: got %v, want a usage error that names the forms", v, err)
		}
	}
	for _, v := range []string{"0d", "0h", "0w", "36601d", "5229w", "99999999999999999999d"} {
		if _, err := expiry(v, now); exitCode(err) != exitUsage {
			t.Errorf("%q: got %v, want a usage error", v, err)
		}
	}
}
