package server

import (
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/keygate/keygate/internal/store/postgres"
)

// Guarantee: doctor says whether a failover may lose changes, and counts replicas that are synchronous alone: others
// confirm nothing.
func TestDoctorCountsSynchronousReplicas(t *testing.T) {
	for _, c := range []struct {
		server postgres.Inspection
		status FindingStatus
		text   string
	}{
		{postgres.Inspection{}, FindingProblem, "fsync is off"},
		{postgres.Inspection{Fsync: true, Replicas: 2}, FindingWarning, "no replica is synchronous (2 replicas are connected)"},
		{postgres.Inspection{Fsync: true, SyncNames: "a", Replicas: 2}, FindingProblem, "no synchronous replica confirms what is written (2 replicas are connected)"},
		{postgres.Inspection{Fsync: true, SyncNames: "a", Replicas: 2, SyncReplicas: 1, Unconfirmed: true}, FindingProblem, "no change can be answered with success"},
		{postgres.Inspection{Fsync: true, SyncNames: "a", Replicas: 2, SyncReplicas: -1, Unconfirmed: true}, FindingProblem, "no change can be answered with success"},
		{postgres.Inspection{Fsync: true, SyncNames: "a", Replicas: 2, SyncReplicas: -1}, FindingOK, "confirms what is written (2 replicas are connected)"},
		{postgres.Inspection{Fsync: true, SyncNames: "a", Replicas: 2, SyncReplicas: 1}, FindingOK, "(1 synchronous replica is connected)"},
	} {
		var f findings
		f.examineDurability(&c.server)
		if len(f.list) != 1 || f.list[0].Status != c.status || !strings.Contains(f.list[0].Message, c.text) || (f.list[0].Remedy == "") != (c.status == FindingOK) {
			t.Errorf("%+v: got %+v, want %s with %q", c.server, f.list, c.status, c.text)
		}
	}
}

// Guarantee: doctor warns of a transaction that has kept dead rows for five minutes, as a dump or a forgotten session does,
// and says how to end it.
func TestDoctorFindsOldTransactions(t *testing.T) {
	for age, want := range map[time.Duration]FindingStatus{0: FindingOK, 5*time.Minute - time.Second: FindingOK, 5 * time.Minute: FindingWarning, 100 * time.Hour: FindingWarning} {
		var f findings
		f.examineSnapshots(&postgres.Inspection{OldestSnapshot: age})
		if len(f.list) != 1 || f.list[0].Status != want || want == FindingWarning && !strings.Contains(f.list[0].Remedy, "pg_terminate_backend") {
			t.Errorf("%s: got %+v, want %s", age, f.list, want)
		}
	}
}

// Guarantee: in a container with a memory limit, doctor says which limit the Go runtime will have, and warns of a GOMEMLIMIT
// that lets the kernel end the process first.
func TestDoctorComparesMemoryLimits(t *testing.T) {
	const mega = 1_000_000
	for name, c := range map[string]struct {
		cgroup string
		limit  int64
		set    bool
		status FindingStatus // "" if there is no finding
		text   string
	}{
		"no limit":              {"max", 0, false, "", ""},
		"no limit, and one set": {"max", 100 * mega, true, "", ""},
		"taken from the cgroup": {"100000000", 0, false, FindingOK, "to 90 MB"},
		"set within it":         {"100000000", 80 * mega, true, FindingOK, "GOMEMLIMIT is 80 MB"},
		"set to all of it":      {"100000000", 100 * mega, true, FindingWarning, "leave GOMEMLIMIT out"},
	} {
		var f findings
		f.examineMemoryLimit(fstest.MapFS{
			"proc/self/cgroup": &fstest.MapFile{Data: []byte("0::/\n")}, "sys/fs/cgroup/memory.max": &fstest.MapFile{Data: []byte(c.cgroup + "\n")},
		}, c.limit, c.set)
		switch {
		case c.status == "" && len(f.list) == 0:
		case len(f.list) != 1 || f.list[0].Status != c.status || !strings.Contains(f.list[0].Message+f.list[0].Remedy, c.text):
			t.Errorf("%s: got %+v, want %s with %q", name, f.list, c.status, c.text)
		}
	}
}
