package sqlite_test

import (
	"bufio"
	"context"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/store/sqlite"
)

// crashPushes is the environment variable that turns the test binary into a writer of large pushes.
const crashPushes = "KEYGATE_TEST_CRASH_PUSHES"

const crashRoutes = 8000

// pushUntilKilled pushes tables to the only gateway. All paths of a table begin with its number. It
// prints a line before and after each transaction.
func pushUntilKilled(path string) int {
	ctx := context.Background()
	fail := func(err error) int {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	db, err := sqlite.Open(ctx, sqlite.Config{Path: path})
	if err != nil {
		return fail(err)
	}
	g, _, err := onlyGateway(ctx, db)
	if err != nil {
		return fail(err)
	}
	for {
		g.Revision++
		r := &gateway.Revision{ID: id.New(id.Revision), GatewayID: g.ID, Number: g.Revision, Kind: gateway.SpecDocument, Content: []byte("x"), CreatedAt: time.Now()}
		for i := range crashRoutes {
			r.Routes = append(r.Routes, gateway.Route{
				ID: id.New(id.Route), GatewayID: g.ID, Path: fmt.Sprintf("/%d/%d", g.Revision, i), Methods: []string{"GET"}, Auth: gateway.AuthKey, Source: gateway.Spec, Version: 1,
			})
		}
		fmt.Println("preparing", g.Revision)
		p, err := db.Prepare(ctx, r)
		if err != nil {
			return fail(err)
		}
		err = db.Update(ctx, func(tx control.Tx) error {
			if err := tx.UpdateGateway(ctx, g); err != nil {
				return err
			}
			return tx.InsertPrepared(ctx, p)
		})
		if err != nil {
			return fail(err)
		}
		fmt.Println("committed", g.Revision)
	}
}

func onlyGateway(ctx context.Context, db *sqlite.DB) (g *gateway.Gateway, routes []gateway.Route, err error) {
	err = db.EachGateway(ctx, func(one *gateway.Gateway, table []gateway.Route) error {
		g, routes = one, table
		return nil
	})
	return g, routes, err
}

// Guarantee: a process that is killed in the middle of a large push leaves the table of that push or the
// previous table, as a whole and with its revision, never a mix; and what the push had prepared is removed.
func TestKilledPushLeavesOneTable(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keygate.db")
	db := openStore(t, path)
	a := account.Account{ID: id.New(id.Account), Name: "crash", Tier: account.Scale, CreatedAt: time.Now()}
	g := gateway.Gateway{ID: id.New(id.Gateway), AccountID: a.ID, Name: "g", Hostname: "g.example", Timeout: "5s", CreatedAt: time.Now(), Version: 1}
	err := db.Update(t.Context(), func(tx control.Tx) error {
		if err := tx.InsertAccount(t.Context(), &a); err != nil {
			return err
		}
		return tx.InsertGateway(t.Context(), &g)
	})
	if err != nil {
		t.Fatal(err)
	}
	closeStore(t, db)
	for round := range 5 {
		committed := pushAndKill(t, path, round)
		db := openStore(t, path)
		now, routes, err := onlyGateway(t.Context(), db)
		if err != nil {
			t.Fatal(err)
		}
		if now.Revision < committed {
			t.Fatalf("revision %d is in force, but %d was committed", now.Revision, committed)
		}
		for i := range routes {
			if prefix := fmt.Sprintf("/%d/", now.Revision); !strings.HasPrefix(routes[i].Path, prefix) {
				t.Fatalf("the table of revision %d has the route %s", now.Revision, routes[i].Path)
			}
		}
		if now.Revision > 0 && len(routes) != crashRoutes {
			t.Fatalf("got %d routes, want %d", len(routes), crashRoutes)
		}
		trimAll(t, db)
		closeStore(t, db)
		checkRest(t, path, now.Revision)
	}
}

func openStore(t *testing.T, path string) *sqlite.DB {
	t.Helper()
	db, err := sqlite.Open(t.Context(), sqlite.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	return db
}

func closeStore(t *testing.T, db *sqlite.DB) {
	t.Helper()
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// trimAll removes what was left behind.
func trimAll(t *testing.T, db *sqlite.DB) {
	t.Helper()
	for more := true; more; {
		err := db.Update(t.Context(), func(tx control.Tx) (err error) {
			more, err = tx.TrimTables(t.Context(), time.Now().Add(time.Hour), 50)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// pushAndKill starts a writer, kills it while it prepares a push, and returns the last revision that it
// had committed.
func pushAndKill(t *testing.T, path string, round int) (committed int64) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	child := exec.CommandContext(t.Context(), self)
	child.Env = append(os.Environ(), crashPushes+"="+path)
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for n := 0; lines.Scan(); {
		var what string
		var revision int64
		if _, err := fmt.Sscan(lines.Text(), &what, &revision); err != nil {
			t.Fatal(err)
		}
		if what == "committed" {
			committed = revision
			continue
		}
		if n++; n == 2 { // preparing takes about 100 ms
			time.AfterFunc(time.Duration(round)*25*time.Millisecond, func() { _ = child.Process.Kill() })
		}
	}
	if err := child.Wait(); err == nil || child.ProcessState.Exited() {
		t.Fatalf("the writer ended before it was killed: %v", child.ProcessState)
	}
	return committed
}

// checkRest fails unless the database has the pages of one table and the parts of the revisions.
func checkRest(t *testing.T, path string, revisions int64) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	var tables, pages, parts int64
	err = db.QueryRowContext(t.Context(), `SELECT (SELECT count(*) FROM route_tables), (SELECT count(DISTINCT table_id) FROM route_pages), (SELECT count(DISTINCT revision_id) FROM revision_parts)`).
		Scan(&tables, &pages, &parts)
	if err != nil {
		t.Fatal(err)
	}
	if tables != 1 || pages != 1 || parts != revisions {
		t.Errorf("got %d tables, pages of %d tables and parts of %d revisions, want 1, 1 and %d", tables, pages, parts, revisions)
	}
}
