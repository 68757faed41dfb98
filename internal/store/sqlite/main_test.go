package sqlite_test

import (
	"os"
	"testing"
)

// crashFile is the environment variable that turns the test binary into the writer of the crash
// test.
const crashFile = "KEYGATE_TEST_CRASH_FILE"

func TestMain(m *testing.M) {
	if path := os.Getenv(crashFile); path != "" {
		os.Exit(writeUntilKilled(path))
	}
	if path := os.Getenv(crashPushes); path != "" {
		os.Exit(pushUntilKilled(path))
	}
	os.Exit(m.Run())
}
