//go:build !linux

package upstream

import "time"

// Other systems have no such options, or others for each.

func setVanishTime(uintptr) {}

func setProbes(uintptr, time.Duration, time.Duration) {}
