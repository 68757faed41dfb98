package proctest

import (
	"time"

	"golang.org/x/sys/windows"
)

func cpuTime() (time.Duration, error) {
	var created, exited, kernel, user windows.Filetime
	err := windows.GetProcessTimes(windows.CurrentProcess(), &created, &exited, &kernel, &user)
	return since(kernel) + since(user), err
}

// since returns the duration that a Filetime, in units of 100 ns, stands for.
func since(t windows.Filetime) time.Duration {
	return time.Duration(uint64(t.HighDateTime)<<32|uint64(t.LowDateTime)) * 100
}
