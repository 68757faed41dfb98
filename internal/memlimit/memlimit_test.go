package memlimit_test

import (
	"runtime/debug"
	"testing"
	"testing/fstest"

	"github.com/keygate/keygate/internal/memlimit"
)

// Guarantee: the limit is nine tenths of the lowest limit of the process's cgroup and the cgroups above it, in both
// versions of cgroups, within a container and outside. Without a limit there is none.
func TestLimitOfCgroup(t *testing.T) {
	for name, test := range map[string]struct {
		files map[string]string
		want  int64
	}{
		"no cgroups":              {nil, 0},
		"version 2, no limit":     {map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "max\n"}, 0},
		"version 2, container":    {map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "134217728\n"}, 120795948},
		"version 2, path of host": {map[string]string{"proc/self/cgroup": "0::/../kubepods/pod1\n", "sys/fs/cgroup/memory.max": "1000\n"}, 900},
		"version 2, a unit": {map[string]string{
			"proc/self/cgroup": "0::/system.slice/keygate.service\n", "sys/fs/cgroup/system.slice/keygate.service/memory.max": "2000\n",
		}, 1800},
		"version 2, the slice has less": {map[string]string{
			"proc/self/cgroup": "0::/system.slice/keygate.service\n", "sys/fs/cgroup/system.slice/keygate.service/memory.max": "2000\n",
			"sys/fs/cgroup/system.slice/memory.max": "1000\n",
		}, 900},
		"version 1": {map[string]string{
			"proc/self/cgroup": "12:cpu,cpuacct:/a\n5:memory:/docker/1\n0::/\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "3000\n",
		}, 2700},
		"version 1, no limit": {map[string]string{
			"proc/self/cgroup": "5:memory:/\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
		}, 0},
		"nonsense": {map[string]string{"proc/self/cgroup": "0::/\nx\n", "sys/fs/cgroup/memory.max": "much\n"}, 0},
	} {
		root := fstest.MapFS{}
		for path, content := range test.files {
			root[path] = &fstest.MapFile{Data: []byte(content)}
		}
		if got, ok := memlimit.Of(root); got != test.want || ok != (test.want > 0) {
			t.Errorf("%s: got %d, %v; want %d", name, got, ok, test.want)
		}
	}
}

// Guarantee: the runtime gets the limit of the cgroup, unless GOMEMLIMIT is set or there is none.
func TestApply(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	t.Cleanup(func() { debug.SetMemoryLimit(before) })
	limited := fstest.MapFS{
		"proc/self/cgroup":         &fstest.MapFile{Data: []byte("0::/\n")},
		"sys/fs/cgroup/memory.max": &fstest.MapFile{Data: []byte("10000000000\n")},
	}
	for name, test := range map[string]struct {
		root fstest.MapFS
		set  bool
		want int64 // 0 if the limit stays
	}{
		"a limit":             {limited, false, 9_000_000_000},
		"a limit, GOMEMLIMIT": {limited, true, 0},
		"no limit":            {fstest.MapFS{}, false, 0},
	} {
		debug.SetMemoryLimit(before)
		limit, ok := memlimit.Apply(test.root, func(name string) (string, bool) { return "1GiB", test.set && name == "GOMEMLIMIT" })
		if limit != test.want || ok != (test.want > 0) {
			t.Errorf("%s: got %d, %v; want %d", name, limit, ok, test.want)
		}
		want := test.want
		if want == 0 {
			want = before
		}
		if got := debug.SetMemoryLimit(-1); got != want {
			t.Errorf("%s: the limit of the runtime is %d, want %d", name, got, want)
		}
	}
}
