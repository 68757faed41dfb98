package postgrestest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/keygate/keygate/internal/keygatetest/porttest"
)

const replicaName = "replica"

// Replica starts a streaming replica of the server, which is stopped when the test ends, and makes it
// synchronous: from now on a transaction that asks for this commits on both.
func (s *Server) Replica(t testing.TB) *Server {
	t.Helper()
	r, err := s.replica()
	if err != nil {
		t.Fatal("start a replica: ", err)
	}
	t.Cleanup(func() {
		if err := r.end(); err != nil {
			t.Error(err)
		}
	})
	if err := s.Admin(t.Context(), `ALTER SYSTEM SET synchronous_standby_names = '`+replicaName+`'`, `SELECT pg_reload_conf()`); err != nil {
		t.Fatal(err)
	}
	if err := s.awaitReplica(t.Context()); err != nil {
		t.Fatal("wait for the replica: ", err)
	}
	return r
}

// replica starts a server with a copy of the files of s.
func (s *Server) replica() (_ *Server, err error) {
	r := &Server{cfg: s.cfg, bin: s.bin, Password: s.Password, version: s.version}
	if r.dir, err = os.MkdirTemp("", "keygate-postgres-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = r.end()
		}
	}()
	if err := ownDirectory(r.dir); err != nil {
		return nil, err
	}
	if r.Addr, r.release, err = porttest.Hold(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTime)
	defer cancel()
	c := exec.CommandContext(ctx, filepath.Join(s.bin, "pg_basebackup"), "-D", filepath.Join(r.dir, "data"), "--write-recovery-conf",
		"--checkpoint=fast", "--no-sync", "-d", s.url("postgres", "postgres")+"&application_name="+replicaName)
	c.Dir, c.SysProcAttr = r.dir, attributes()
	if out, err := c.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("pg_basebackup: %w: %s", err, out)
	}
	return r, r.run()
}

// awaitReplica waits until the replica is synchronous.
func (s *Server) awaitReplica(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	c, err := pgx.Connect(ctx, s.url("postgres", "postgres"))
	if err != nil {
		return err
	}
	defer c.Close(ctx)
	for synchronous := false; !synchronous; {
		const query = `SELECT EXISTS (SELECT FROM pg_stat_replication WHERE application_name = $1 AND state = 'streaming' AND sync_state = 'sync'), pg_sleep(0.01)`
		if err := c.QueryRow(ctx, query, replicaName).Scan(&synchronous, nil); err != nil {
			return err
		}
	}
	return nil
}

// Promote makes a replica a primary, and returns when it accepts writes.
func (s *Server) Promote(t testing.TB) {
	t.Helper()
	if err := s.Admin(t.Context(), `SELECT pg_promote()`); err != nil {
		t.Fatal(err)
	}
}

// FailoverURL returns the URL of a database that names the server and a replica of it. url names the
// server alone.
func (s *Server) FailoverURL(replica *Server, url string) string {
	return strings.Replace(url, s.Addr, s.Addr+","+replica.Addr, 1) + "&target_session_attrs=read-write"
}
