// Package memlimit sets the memory limit of the Go runtime (GOMEMLIMIT) from the limit of the process's cgroup, as a
// container or a unit of systemd has one.
package memlimit

import (
	"io/fs"
	"math"
	"path"
	"runtime/debug"
	"strconv"
	"strings"
)

// Tenths is the part of the cgroup's limit that the runtime gets, in tenths. The rest is for memory outside of the
// runtime: SQLite, the stacks of the system, and the kernel's buffers.
const Tenths = 9

// Apply sets the memory limit of the runtime to Of(root) and returns it, in bytes. env returns a variable of the
// environment and whether it is set. With GOMEMLIMIT, which the runtime has read itself, and without a limit of the cgroup,
// Apply changes nothing, and ok is false.
func Apply(root fs.FS, env func(name string) (value string, ok bool)) (limit int64, ok bool) {
	if _, set := env("GOMEMLIMIT"); set {
		return 0, false
	}
	if limit, ok = Of(root); ok {
		debug.SetMemoryLimit(limit)
	}
	return limit, ok
}

// Of returns the memory limit in bytes for a process whose cgroup is described below root, which is the root of the
// file system. ok is false if the process has no limit, or none can be found. Both versions of cgroups are read,
// and the lowest limit from the process's cgroup to the topmost one counts.
func Of(root fs.FS) (limit int64, ok bool) {
	text, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return 0, false
	}
	lowest := int64(math.MaxInt64)
	for line := range strings.Lines(string(text)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3) // number:controllers:path
		switch {
		case len(parts) != 3:
		case parts[0] == "0" && parts[1] == "":
			lowest = min(lowest, lowestOf(root, "sys/fs/cgroup", parts[2], "memory.max"))
		case hasMemory(parts[1]):
			lowest = min(lowest, lowestOf(root, "sys/fs/cgroup/memory", parts[2], "memory.limit_in_bytes"))
		}
	}
	if lowest > math.MaxInt64/2 { // version 1 says "none" by a number close to it
		return 0, false
	}
	return lowest / 10 * Tenths, true
}

func hasMemory(controllers string) bool {
	for one := range strings.SplitSeq(controllers, ",") {
		if one == "memory" {
			return true
		}
	}
	return false
}

// lowestOf returns the lowest limit in the files called name from a cgroup up to the mount point. In a container the
// cgroup's path may be a path of the host, which does not exist there; the mount point is then the container's
// cgroup.
func lowestOf(root fs.FS, mount, cgroup, name string) int64 {
	lowest := int64(math.MaxInt64)
	for at := path.Clean("/" + cgroup); ; at = path.Dir(at) {
		if text, err := fs.ReadFile(root, path.Join(mount, at, name)); err == nil {
			if n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && n > 0 { // not "max"
				lowest = min(lowest, n)
			}
		}
		if at == "/" {
			return lowest
		}
	}
}
