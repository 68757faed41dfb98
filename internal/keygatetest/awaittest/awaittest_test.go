package awaittest_test

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keygate/keygate/internal/keygatetest/awaittest"
)

// Guarantee: a test that proves less adds a line with its name and the reason to the file, and does not fail.
func TestLate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "late")
	t.Setenv(awaittest.LateFile, path)
	awaittest.Late(t, "%d of 3 came late", 2)
	awaittest.Late(t, "so did another")
	const want = "TestLate proves less: 2 of 3 came late\nTestLate proves less: so did another\n"
	if got, err := os.ReadFile(path); string(got) != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
}

// Guarantee: a wait for what never happens ends after Timeout.
func TestHoldsHasABound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if awaittest.Holds(func() bool { return false }) {
			t.Error("got true, want false")
		}
		if took := time.Since(began); took < awaittest.Timeout || took > awaittest.Timeout+time.Second {
			t.Errorf("got %v, want %v", took, awaittest.Timeout)
		}
	})
}

// Guarantee: what Left leaves of a period of UTC is as much as was asked for.
func TestLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		midnight := time.Now().Truncate(24 * time.Hour).Add(24 * time.Hour)
		awaittest.Left(24*time.Hour, time.Minute)
		if now := time.Now(); now.After(midnight.Add(-time.Minute)) {
			t.Errorf("got %v early in a day, want no wait", now)
		}
		<-time.After(time.Until(midnight.Add(-time.Second)))
		awaittest.Left(24*time.Hour, time.Minute)
		if now := time.Now(); !now.Equal(midnight) {
			t.Errorf("got %v, want %v", now, midnight)
		}
	})
}
