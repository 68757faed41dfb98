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
