package wire

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/keygate/keygate/internal/keygatetest/leaktest"
)

// TestMain runs many tests at once, since most of them wait for others to close,
// and looks for what is left behind.
func TestMain(m *testing.M) {
	flag.Parse()
	if fuzz := flag.Lookup("test.fuzz"); fuzz.Value.String() != "" {
		os.Exit(m.Run()) // its workers are processes
	}
	if err := flag.Set("test.parallel", "24"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	leaktest.Main(m)
}
