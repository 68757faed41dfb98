//go:build !linux

package upstream

import "time"

// Other systems have no such options, or others for each.

func setProbes(uintptr, time.Duration, time.Duration, time.Duration) {}

func hasVanished(uintptr) bool { return false }

func breakOff(uintptr) {}
