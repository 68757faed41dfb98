package cluster

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// resources watches what the nodes use, at times when each of them serves.
type resources struct {
	f       *fleet
	samples []usage
}

// usage is the most that any node uses, and the state of the load at that time.
type usage struct {
	revoked     int64
	memory      int64 // resident, in bytes
	goroutines  int64
	descriptors int64
	disk        int64 // in the data directory, in bytes
}

func newResources(f *fleet) *resources {
	r := &resources{f: f}
	r.measure(0)
	return r
}

func (r *resources) measure(revoked int64) {
	r.f.Helper()
	most := usage{revoked: revoked}
	for _, n := range r.f.nodes {
		u, err := n.usage()
		if err != nil {
			r.f.Fatalf("measure %s: %v", n.name, err)
		}
		most.memory, most.goroutines = max(most.memory, u.memory), max(most.goroutines, u.goroutines)
		most.descriptors, most.disk = max(most.descriptors, u.descriptors), max(most.disk, u.disk)
	}
	r.samples = append(r.samples, most)
	r.f.Logf("after %d revocations a node has at most %d MB of memory, %d goroutines, %d descriptors, %d KB on disk",
		revoked, most.memory>>20, most.goroutines, most.descriptors, most.disk>>10)
}

// usage returns what the node uses.
func (n *node) usage() (u usage, err error) {
	process := fmt.Sprintf("/proc/%d/", n.cmd.Process.Pid)
	status, err := os.ReadFile(process + "status")
	if err != nil {
		return u, err
	}
	_, rss, _ := strings.Cut(string(status), "VmRSS:")
	if _, err := fmt.Sscan(rss, &u.memory); err != nil {
		return u, err
	}
	u.memory <<= 10
	open, err := os.ReadDir(process + "fd")
	if err != nil {
		return u, err
	}
	u.descriptors = int64(len(open))
	profile, err := n.fetch("/debug/pprof/goroutine?debug=1")
	if err != nil {
		return u, err
	}
	if _, err := fmt.Sscanf(profile, "goroutine profile: total %d", &u.goroutines); err != nil {
		return u, err
	}
	err = filepath.WalkDir(n.dataDir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			u.disk += info.Size()
		}
		return err
	})
	return u, err
}

// samplePeriod is the number of faults after which the use is measured. Two rounds of faults are enough for
// growth.
const samplePeriod = 7

// How much more a node may use in the second half of a run than in the first.
const (
	memorySlack      = 64 << 20
	memoryPerKey     = 2 << 10 // a revoked key stays in the database and in each node's list
	goroutineSlack   = 300
	descriptorsSlack = 200
	diskSlack        = 16 << 20
)

// check fails the test if use grows with time.
func (r *resources) check() {
	for _, problem := range growth(r.samples) {
		r.f.Error(problem)
	}
}

// growth returns what grows with time. It needs four samples; a shorter run only prints its figures.
func growth(samples []usage) (problems []string) {
	if len(samples) < 4 {
		return nil
	}
	half := len(samples) / 2
	first, second := maximum(samples[:half]), maximum(samples[half:])
	keys := second.revoked - first.revoked
	for _, c := range []struct {
		what  string
		grown int64
	}{
		{"bytes of memory", second.memory - first.memory*3/2 - memorySlack - keys*memoryPerKey},
		{"goroutines", second.goroutines - first.goroutines - goroutineSlack},
		{"descriptors", second.descriptors - first.descriptors - descriptorsSlack},
		{"bytes on disk", second.disk - first.disk - diskSlack},
	} {
		if c.grown > 0 {
			problems = append(problems, fmt.Sprintf("a node uses %d %s more in the second half of the run than is allowed: %+v, and in the first %+v", c.grown, c.what, second, first))
		}
	}
	return problems
}

// Guarantee: a run whose nodes use more and more of any resource fails. A run with steady use, or whose memory
// grows only with the keys that it revoked, passes.
func TestGrowth(t *testing.T) {
	t.Parallel()
	steady := usage{memory: 60 << 20, goroutines: 80, descriptors: 50, disk: 1 << 20}
	for name, c := range map[string]struct {
		step usage // between two samples
		want int
	}{
		"steady":      {usage{revoked: 1000}, 0},
		"keys":        {usage{revoked: 100_000, memory: 100_000 * memoryPerKey}, 0},
		"memory":      {usage{memory: 64 << 20}, 1},
		"goroutines":  {usage{goroutines: 200}, 1},
		"descriptors": {usage{descriptors: 200}, 1},
		"disk":        {usage{disk: 16 << 20}, 1},
	} {
		samples := []usage{steady}
		for range 5 {
			u := samples[len(samples)-1]
			samples = append(samples, usage{
				u.revoked + c.step.revoked, u.memory + c.step.memory, u.goroutines + c.step.goroutines,
				u.descriptors + c.step.descriptors, u.disk + c.step.disk,
			})
		}
		if got := growth(samples); len(got) != c.want {
			t.Errorf("%s: got %q, want %d problems", name, got, c.want)
		}
		if got := growth(samples[:3]); got != nil {
			t.Errorf("%s: got %q from three samples, want nothing", name, got)
		}
	}
}

// maximum returns the highest figure of each kind.
func maximum(samples []usage) usage {
	by := func(figure func(usage) int64) int64 {
		return figure(slices.MaxFunc(samples, func(a, b usage) int { return int(figure(a) - figure(b)) }))
	}
	return usage{
		by(func(u usage) int64 { return u.revoked }), by(func(u usage) int64 { return u.memory }), by(func(u usage) int64 { return u.goroutines }),
		by(func(u usage) int64 { return u.descriptors }), by(func(u usage) int64 { return u.disk }),
	}
}
