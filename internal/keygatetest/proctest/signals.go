package proctest

import (
	"os"
	"os/signal"
	"syscall"
)

// RestoreSignals gives the processes that the tests start the default action of each signal. A process inherits
// what its parent ignores: SIGHUP from nohup, SIGINT and SIGQUIT from a shell's background job. The tests
// themselves still ignore what they ignored. TestMain calls it.
func RestoreSignals() {
	unheard := make(chan os.Signal, 1) // a signal that is received here does nothing else
	for _, sig := range []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGPIPE} {
		if signal.Ignored(sig) {
			signal.Notify(unheard, sig)
		}
	}
}
