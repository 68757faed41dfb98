package command

import (
	"os"
	"strings"
)

// LoadAverage returns the load averages of the machine of 1, 5 and 15 minutes, or "unknown".
func LoadAverage() string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Join(strings.Fields(string(b))[:3], " ")
}
