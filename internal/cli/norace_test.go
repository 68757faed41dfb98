//go:build !race || !unix

package cli_test

import "testing"

// scriptPrograms returns no directory: all commands of the scripts run as the test binary.
func scriptPrograms(*testing.T) string { return "" }
