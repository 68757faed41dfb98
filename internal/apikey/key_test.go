package apikey_test

import (
	"testing"
	"time"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/fault"
)

// Guarantee: the year 9999 is taken to its last microsecond, and nothing after it.
func TestParseExpiryTakesTheYear9999(t *testing.T) {
	now := time.Date(2026, 11, 27, 0, 0, 0, 0, time.UTC)
	for in, want := range map[string]string{
		"2027-01-31":                       "2027-02-01T00:00:00Z",
		"9999-12-30":                       "9999-12-31T00:00:00Z",
		"9999-12-31":                       "9999-12-31T23:59:59.999999Z",
		"9999-12-31T23:59:59Z":             "9999-12-31T23:59:59Z",
		"9999-12-31T23:59:59.999999Z":      "9999-12-31T23:59:59.999999Z",
		"9999-12-31T23:59:59.999999999Z":   "9999-12-31T23:59:59.999999Z",
		"9999-12-31T22:59:59.999999-01:00": "9999-12-31T23:59:59.999999Z",
	} {
		if got, err := apikey.ParseExpiry(in, now); err != nil || got.Format(time.RFC3339Nano) != want {
			t.Errorf("%s: got %s, %v; want %s", in, got.Format(time.RFC3339Nano), err, want)
		}
	}
	for _, in := range []string{"9999-12-31T23:59:59-00:01", "10000-01-01", "2026-11-26", "2026-11-27T00:00:00Z", "tomorrow"} {
		if got, err := apikey.ParseExpiry(in, now); fault.CodeOf(err) != fault.ValidationFailed {
			t.Errorf("%s: got %s, %v; want a validation error", in, got, err)
		}
	}
}
