package server_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/keygatetest/awaittest"
	"github.com/keygate/keygate/internal/keygatetest/cabletest"
	"github.com/keygate/keygate/internal/keygatetest/postgrestest"
	"github.com/keygate/keygate/internal/server"
)

// spooled returns the size of a node's spool in bytes.
func (f *serving) spooled(t *testing.T) int {
	t.Helper()
	found := regexp.MustCompile(`(?m)^keygate_spool_bytes (\S+)$`).FindStringSubmatch(f.ops(t, "/metrics"))
	if found == nil {
		t.Fatal("/metrics has no keygate_spool_bytes")
	}
	n, err := strconv.ParseFloat(found[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	return int(n)
}

// Guarantee: while PostgreSQL is stopped requests are served and their records go to the node's disk. They are in
// the reports and in the audit log when it runs again, also if the node was stopped meanwhile and started again,
// and the chain of the audit log is intact.
func TestNothingIsLostWhilePostgresIsStopped(t *testing.T) {
	db := postgrestest.Start(t, postgrestest.Config{})
	url := db.Database(t, "")
	f := startServing(t, "--database-url", url, "--secret-key-file", secretKey(t, 1), "--on-database-loss", "serve", "--lease-ttl", "2s")
	sent := 0
	request := func(n int) {
		t.Helper()
		for range n {
			f.request(t)
			sent++
		}
	}
	// complete reports whether all requests are in the traffic report and in the audit log.
	complete := func() bool {
		audited := 0
		for _, err := range f.Admin.AuditLog(t.Context(), client.AuditFilter{Kind: "authentication", KeyID: f.keyID}) {
			if err != nil {
				return false
			}
			audited++
		}
		if audited > sent {
			t.Fatalf("the audit log has %d requests, want %d", audited, sent)
		}
		return audited == sent && f.counted(t) == int64(sent)
	}
	request(3)
	awaittest.True(t, "the records of a healthy node are complete", complete)

	db.Stop(t)
	request(4)
	awaittest.True(t, "the records are in the spool", func() bool { return f.spooled(t) > 0 })
	request(5)
	if got := f.ops(t, "/readyz"); !strings.Contains(got, "degraded: store_unavailable") {
		t.Errorf("/readyz: got %q, want it to say that the store is away", got)
	}
	db.Start(t)
	awaittest.True(t, "the records are complete after an outage", complete)
	awaittest.True(t, "the spool is empty", func() bool { return f.spooled(t) == 0 })

	db.Stop(t)
	request(6)
	awaittest.True(t, "the records are in the spool", func() bool { return f.spooled(t) > 0 })
	_ = f.Running().Stop(t.Context()) // a part of the work needs the database
	if files, _ := filepath.Glob(filepath.Join(f.DataDir, "spool", "*", "audit-*")); len(files) == 0 {
		t.Error("the stopped node has left no audit records in its spool")
	}
	db.Start(t)
	f.Restart()
	awaittest.True(t, "the records are complete after a restart of the node", complete)
	f.Stop()
	if _, err := os.Stat(filepath.Join(f.DataDir, "spool")); !os.IsNotExist(err) {
		t.Errorf("the directory of the empty spool is there: %v", err)
	}
	c := settings(t, t.TempDir(), "--database-url", url, "--secret-key-file", secretKey(t, 1))
	if _, err := server.VerifyAudit(context.Background(), c, slog.New(slog.DiscardHandler), "default", nil); err != nil {
		t.Errorf("the audit log is not intact: %v", err)
	}
}

// Guarantee: a node that is stopped while PostgreSQL does not respond has put its records in memory into its spool
// when it ends, which it does soon after --drain-timeout. The next start stores them.
func TestStopWhilePostgresHangs(t *testing.T) {
	cable, url := cabletest.ForURL(t, postgrestest.Start(t, postgrestest.Config{}).Database(t, ""))
	f := startServing(t, "--database-url", url, "--secret-key-file", secretKey(t, 1), "--on-database-loss", "serve", "--lease-ttl", "2s")
	f.request(t)
	awaittest.True(t, "the record of a healthy node is stored", func() bool { return f.counted(t) == 1 })
	cable.Sever()
	const sent = 500
	for range sent {
		f.request(t)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second) // --drain-timeout
	defer cancel()
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		_ = f.Running().Stop(ctx) // a part of the work needs the database
	}()
	// Time is counted by ticks: none arrive while the machine has no time for this process, and late ones count once.
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for ticks := 0; ; ticks++ {
		select {
		case <-stopped:
		case <-tick.C:
			if ticks == 150 { // 6 s are due: --drain-timeout + 5 s
				t.Fatal("the node did not stop within 15 s")
			}
			continue
		}
		break
	}
	// The process would end here: what the node writes later does not count.
	spool, left := filepath.Join(f.DataDir, "spool"), filepath.Join(t.TempDir(), "spool")
	if err := os.CopyFS(left, os.DirFS(spool)); err != nil {
		t.Fatalf("the stopped node has left no spool: %v", err)
	}
	cable.Mend()
	f.Stop()
	if err := errors.Join(os.RemoveAll(spool), os.CopyFS(spool, os.DirFS(left))); err != nil {
		t.Fatal(err)
	}
	f.Restart()
	counted, audited := int64(0), 0
	if !awaittest.Holds(func() bool {
		counted, audited = f.counted(t), 0
		for _, err := range f.Admin.AuditLog(t.Context(), client.AuditFilter{Kind: "authentication", KeyID: f.keyID}) {
			if err != nil {
				return false
			}
			audited++
		}
		return counted == 1+sent && audited == 1+sent
	}) {
		t.Errorf("the traffic report has %d requests and the audit log %d, want %d", counted, audited, 1+sent)
	}
}
