package cluster

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	// Imported so that a change of the binary's code invalidates cached test results.
	_ "github.com/keygate/keygate/internal/cli"
)

var (
	duration = flag.Duration("duration", 0, "how long TestFaults repeats its faults; 0 means that it has each of them once")
	seed     = flag.Uint64("seed", 0, "seed of the faults of TestFaults; 0 means a random one")
)

// binary is the path of the keygate that TestMain built.
var binary string

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "keygate-cluster-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		binary = filepath.Join(dir, "keygate")
		build := exec.Command("go", "build", "-o", binary, "github.com/keygate/keygate/cmd/keygate")
		build.Stderr = os.Stderr
		if err := build.Run(); err != nil {
			fmt.Fprintln(os.Stderr, "build keygate:", err)
			return 1
		}
		return m.Run()
	}())
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
