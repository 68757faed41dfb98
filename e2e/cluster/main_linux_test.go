package cluster

import (
	"flag"
	"os"
	"testing"

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
