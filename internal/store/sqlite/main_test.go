package sqlite_test

import (
	"os"
	"testing"
)

// crashFile names the variable that makes the test binary the writer of the
// crash test.
const crashFile = "KEYGATE_TEST_CRASH_FILE"

func TestMain(m *testing.M) {
	if path := os.Getenv(crashFile); path != "" {
		os.Exit(writeUntilKilled(path))
	}
	os.Exit(m.Run())
}
