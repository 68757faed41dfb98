//go:build linux

package process

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// CPU returns the CPU time, user and system, that all processes of the program have used
// so far. It reads the kernel's CPU clock of each process, which has a resolution of
// nanoseconds; /proc/PID/stat has hundredths of a second.
func (p *Process) CPU() (time.Duration, error) {
	tree, err := p.IDs()
	if err != nil {
		return 0, err
	}
	var sum time.Duration
	for _, id := range tree {
		d, err := cpu(id)
		if err != nil && id == p.ID() {
			return 0, err
		}
		sum += d // 0 for a child that has exited
	}
	return sum, nil
}

// cpuClock is the kernel's CPUCLOCK_SCHED: exact user and system time.
const cpuClock = 2

func cpu(id int) (time.Duration, error) {
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^id<<3|cpuClock), &t); err != nil {
		return 0, fmt.Errorf("read the CPU time of process %d: %w", id, err)
	}
	return time.Duration(t.Nano()), nil
}

// Memory returns the resident memory of all processes of the program in bytes. Shared
// pages count for each process.
func (p *Process) Memory() (int64, error) { return p.status("VmRSS:") }

// PeakMemory returns the sum of the peak resident memory of the program's processes in
// bytes.
func (p *Process) PeakMemory() (int64, error) { return p.status("VmHWM:") }

func (p *Process) status(field string) (int64, error) {
	tree, err := p.IDs()
	if err != nil {
		return 0, err
	}
	var sum int64
	for _, id := range tree {
		n, err := memory(id, field)
		if err != nil && id == p.ID() {
			return 0, err
		}
		sum += n // 0 for a child that has exited
	}
	return sum, nil
}

// memory reads one field of /proc/PID/status and returns it in bytes.
func memory(id int, field string) (int64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", id))
	if err != nil {
		return 0, err
	}
	_, rest, found := strings.Cut(string(status), field)
	if !found {
		return 0, fmt.Errorf("process %d has no %s", id, field)
	}
	number, _, _ := strings.Cut(rest, "kB")
	n, err := strconv.ParseInt(strings.TrimSpace(number), 10, 64)
	return n << 10, err
}

// IDs returns the identifiers of the program's first process and all of its descendants.
func (p *Process) IDs() ([]int, error) {
	all := []int{p.ID()}
	for i := 0; i < len(all); i++ { // all grows
		next, err := children(all[i])
		if err != nil {
			return nil, err
		}
		all = append(all, next...)
	}
	return all, nil
}

// children returns the child processes of all threads of process id. A process that has
// exited has none.
func children(id int) ([]int, error) {
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", id))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []int
	for _, t := range threads {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", id, t.Name()))
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for text := range strings.FieldsSeq(string(b)) {
			child, err := strconv.Atoi(text)
			if err != nil {
				return nil, err
			}
			all = append(all, child)
		}
	}
	return all, nil
}
