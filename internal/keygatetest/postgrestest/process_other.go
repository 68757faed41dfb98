//go:build !linux

package postgrestest

import (
	"os"
	"syscall"
)

//nolint:gochecknoglobals // os.Interrupt is a variable
var (
	stopFast   = os.Interrupt
	stopAtOnce = os.Kill
)

func attributes() *syscall.SysProcAttr { return nil }

func ownDirectory(string) error { return nil }

// family returns a process. Its children end by themselves.
func family(parent int) ([]*os.Process, error) {
	p, err := os.FindProcess(parent)
	return []*os.Process{p}, err
}
