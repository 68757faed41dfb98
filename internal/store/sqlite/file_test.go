package sqlite_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/keygate/keygate/internal/store/sqlite"
)

// The database and its companions are the owner's alone, also where the file
// stood before with wider rights.
func TestFileModes(t *testing.T) {
	path := made(t)
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	db := open(t, path)
	insertAccount(t, db, "a")
	for _, name := range []string{path, path + "-wal", path + "-shm"} {
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		if mode := info.Mode(); mode != fs.FileMode(0o600) {
			t.Errorf("%s has the mode %v", filepath.Base(name), mode)
		}
	}
}

// A path may hold any character.
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

// Several that open a new file at once all get the same store, and each sees
// what the others commit.
func TestOpenedBySeveral(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keygate.db")
	dbs := make([]*sqlite.DB, 6)
	var wg sync.WaitGroup
	for i := range dbs {
		wg.Go(func() {
			db, err := sqlite.Open(t.Context(), sqlite.Config{Path: path})
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
			t.Errorf("one sees %d accounts", got)
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}
}

// The write-ahead log stays within a bound however much is written.
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
		t.Errorf("the log has %d bytes", info.Size())
	}
}
