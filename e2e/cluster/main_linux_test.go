package cluster

import (
	"flag"
	"os"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/keygatetest/binarytest"
)

var (
	duration = flag.Duration("duration", 0, "how long TestFaults repeats its faults; 0 means that it has each of them once")
	seed     = flag.Uint64("seed", 0, "seed of the faults of TestFaults; 0 means a random one")
)

// binary is the path of the keygate that TestMain built.
var binary string

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(binarytest.Run(m, &binary))
}

// testTimeout is how long a test waits for something that must happen. It only limits how long a
// failing test takes.
const testTimeout = 2 * time.Minute

// eventually calls cond every 5 ms until it returns true or testTimeout is over, and reports whether it
// returned true.
func eventually(cond func() bool) bool {
	deadline := time.Now().Add(testTimeout)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		if time.Now().After(deadline) {
			return false
		}
		<-tick.C
	}
	return true
}
