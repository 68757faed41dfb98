//go:build !windows

package cli

// enableColours reports whether a terminal understands ANSI codes.
func enableColours(int) bool { return true }
