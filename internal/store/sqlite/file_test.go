package sqlite_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/ratelimit"
	"github.com/keygate/keygate/internal/store/sqlite"
)

// Guarantee: only the owner can read the database and the files beside it, even if the file
// existed with wider permissions.
func TestOnlyTheOwnerCanReadTheFiles(t *testing.T) {
	ownersAlone := func(names ...string) {
		t.Helper()
		for _, name := range names {
			info, err := os.Stat(name)
			if err != nil {
				t.Fatal(err)
			}
			if mode := info.Mode(); mode != fs.FileMode(0o600) {
				t.Errorf("%s has the mode %v, want 0600", filepath.Base(name), mode)
			}
		}
	}
	path := made(t)
	ownersAlone(path)
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	insertAccount(t, open(t, path), "a")
	ownersAlone(path, path+"-wal", path+"-shm")
	for _, name := range []string{path, path + "-wal", path + "-shm"} {
		if err := os.Chmod(name, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	insertAccount(t, open(t, path), "b")
	ownersAlone(path, path+"-wal", path+"-shm")
}

// Guarantee: a path may contain any character.
func TestPathWithSpecialCharacters(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a?b=c#d %41 ü&mode=memory")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "key gate.db")
	insertAccount(t, open(t, path), "a")
	if _, err := os.Stat(path); err != nil {
		t.Fatal(err)
	}
}

// Guarantee: several processes can open a new file at the same time, and each sees what the others
// commit.
func TestNewFileOpenedSeveralTimes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keygate.db")
	dbs := make([]*sqlite.DB, 6)
	var wg sync.WaitGroup
	for i := range dbs {
		wg.Go(func() {
			db, err := sqlite.Open(t.Context(), sqlite.Config{Path: path, BusyTimeout: longTimeout})
			if err != nil {
				t.Error(err)
				return
			}
			dbs[i] = db
			if err := tryAccount(t.Context(), db, string(rune('a'+i))); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, db := range dbs {
		if db == nil {
			continue
		}
		if got := len(strings.Fields(accountNames(t, db))); got != len(dbs) {
			t.Errorf("one of the stores has %d accounts, want 6", got)
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Guarantee: transactions of two processes are serializable: no increment is lost and none fails
// because it has to wait. Each process sees the other's changes at once.
func TestTwoProcessesAreSerializable(t *testing.T) {
	const workers, rounds = 3, 20
	path := made(t)
	dbs := []*sqlite.DB{openWithLongTimeout(t, path), openWithLongTimeout(t, path)}
	increment := func(tx control.Tx) error {
		counts, err := tx.DailyCounts(t.Context(), "node", 1)
		if err != nil {
			return err
		}
		next := ratelimit.DailyClaim{LimitID: "rt", Cap: ratelimit.MaxCount, Used: 1}
		if len(counts) == 1 {
			next.Used += counts[0].Own
		}
		return tx.ReserveDaily(t.Context(), "node", 1, []ratelimit.DailyClaim{next})
	}
	var wg sync.WaitGroup
	for i := range workers * len(dbs) {
		wg.Go(func() {
			for range rounds {
				if err := dbs[i%len(dbs)].Update(t.Context(), increment); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for _, db := range dbs {
		counts, err := db.LoadDailyCounts(t.Context(), "node", 1)
		if err != nil {
			t.Fatal(err)
		}
		if want := int64(workers * rounds * len(dbs)); len(counts) != 1 || counts[0].Used != want {
			t.Errorf("got the counts %v, want %d", counts, want)
		}
	}
}

// Guarantee: the size of the write-ahead log is bounded, however much is written.
func TestLogIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keygate.db")
	db := open(t, path)
	s := &stock{db: db}
	s.fill(t, 5000, 100)
	info, err := os.Stat(path + "-wal")
	if err != nil {
		t.Fatal(err)
	}
	if info.Size() > 16<<20 {
		t.Errorf("the log has %d bytes, want at most 16 MiB", info.Size())
	}
}
