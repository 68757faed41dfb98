// Package leaktest detects goroutines that a test leaves running. It waits longer than
// goleak, because on a busy machine a goroutine may take longer to end than the half
// second that goleak allows.
package leaktest

import (
	"time"

	"go.uber.org/goleak"
)

// timeout is how long goroutines may take to end.
const timeout = time.Minute

// Main runs the tests like goleak.VerifyTestMain. Call it in TestMain.
func Main(m goleak.TestingM) { goleak.VerifyTestMain(waiting{m}) }

type waiting struct{ goleak.TestingM }

// Run runs the tests and waits until their goroutines have ended.
func (w waiting) Run() int {
	code := w.TestingM.Run()
	if code == 0 {
		_ = Find() // VerifyTestMain checks again and reports the error
	}
	return code
}

// Find waits until no goroutines are left, except those that the options allow, and
// returns an error that names them if some are left after a minute.
func Find(options ...goleak.Option) error {
	for deadline := time.Now().Add(timeout); ; {
		if err := goleak.Find(options...); err == nil || time.Now().After(deadline) {
			return err
		}
	}
}
