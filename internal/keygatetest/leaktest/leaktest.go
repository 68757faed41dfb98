// Package leaktest looks for goroutines that a test leaves behind, with more
// patience than goleak: on a machine with other work, one that ends may take
// longer for it than the half second that goleak gives.
package leaktest

import (
	"time"

	"go.uber.org/goleak"
)

// patience is how long goroutines may take to end.
const patience = time.Minute

// Main is goleak.VerifyTestMain for a TestMain.
func Main(m goleak.TestingM) { goleak.VerifyTestMain(patient{m}) }

type patient struct{ goleak.TestingM }

// Run runs the tests and waits.
func (p patient) Run() int {
	code := p.TestingM.Run()
	if code == 0 {
		_ = Find() // VerifyTestMain looks again, and tells
	}
	return code
}

// Find returns what goroutines are left, beside those that the options allow.
func Find(options ...goleak.Option) error {
	for deadline := time.Now().Add(patience); ; {
		if err := goleak.Find(options...); err == nil || time.Now().After(deadline) {
			return err
		}
	}
}
