package wire

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/keygate/keygate/internal/keygatetest/leaktest"
)

// TestMain runs many tests in parallel, because most of them wait for connections to
// close, and checks for leaks at the end.
func TestMain(m *testing.M) {
	flag.Parse()
	if fuzz := flag.Lookup("test.fuzz"); fuzz.Value.String() != "" {
		os.Exit(m.Run()) // its workers are separate processes without parallel tests
	}
	if err := flag.Set("test.parallel", "24"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	leaktest.Main(m)
}
