package postgrestest

import (
	"fmt"
	"os"
	"os/user"
	"strconv"
	"strings"
	"syscall"
)

const (
	stopFast   = syscall.SIGINT
	stopAtOnce = syscall.SIGQUIT
)

// attributes makes a process end with the tests, and run as the user postgres if the tests run as
// root: PostgreSQL refuses root.
func attributes() *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Pdeathsig: stopAtOnce, Setpgid: true}
	if uid, gid, ok := postgres(); ok {
		a.Credential = &syscall.Credential{Uid: uid, Gid: gid}
	}
	return a
}

// ownDirectory gives a directory to the user of attributes.
func ownDirectory(dir string) error {
	if uid, gid, ok := postgres(); ok {
		return os.Chown(dir, int(uid), int(gid))
	}
	return nil
}

// postgres returns the user and group postgres if the tests run as root.
func postgres() (uid, gid uint32, ok bool) {
	if os.Getuid() != 0 {
		return 0, 0, false
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		return 0, 0, false
	}
	uid64, uidErr := strconv.ParseUint(u.Uid, 10, 32)
	gid64, gidErr := strconv.ParseUint(u.Gid, 10, 32)
	return uint32(uid64), uint32(gid64), uidErr == nil && gidErr == nil
}

// family returns a process and its children.
func family(parent int) ([]*os.Process, error) {
	all := []int{parent}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", parent, parent))
	if err != nil {
		return nil, err
	}
	for field := range strings.FieldsSeq(string(text)) {
		id, err := strconv.Atoi(field)
		if err != nil {
			return nil, err
		}
		all = append(all, id)
	}
	processes := make([]*os.Process, len(all))
	for i, id := range all {
		if processes[i], err = os.FindProcess(id); err != nil {
			return nil, err
		}
	}
	return processes, nil
}
