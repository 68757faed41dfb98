package server

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/keygate/keygate/internal/config"
)

// accounts plays a store that is empty until FirstStart.
type accounts struct {
	made   int
	remade int
	die    bool // before the key is told
}

func (a *accounts) FirstStart(context.Context) (string, error) {
	if a.made > 0 {
		return "", nil
	}
	a.made++
	if a.die {
		return "", errors.New("killed")
	}
	return "kga_first", nil
}

func (a *accounts) remake(context.Context, string) (string, error) {
	a.remade++
	return "kga_again", nil
}

func start(t *testing.T, dir string, a *accounts, terminal bool) (string, error) {
	t.Helper()
	var out bytes.Buffer
	err := firstStart(t.Context(), &config.Config{DataDir: dir}, a, a.remake, &out, terminal)
	return out.String(), err
}

func keyIn(t *testing.T, dir string) string {
	t.Helper()
	path := filepath.Join(dir, "admin.key")
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, error %v; want 0600", info.Mode(), err)
	}
	return string(content)
}

// Guarantee: the first start writes the key for its owner alone, prints it only
// to a terminal, and a later start tells and writes nothing (contract,
// section 1).
func TestFirstStart(t *testing.T) {
	for _, terminal := range []bool{false, true} {
		dir, a := t.TempDir(), &accounts{}
		out, err := start(t, dir, a, terminal)
		if err != nil {
			t.Fatal(err)
		}
		if got := keyIn(t, dir); got != "kga_first\n" {
			t.Errorf("admin.key holds %q", got)
		}
		if strings.Contains(out, "kga_first") != terminal || !strings.Contains(out, filepath.Join(dir, "admin.key")) {
			t.Errorf("terminal %v: told %q", terminal, out)
		}
		if err := os.Remove(filepath.Join(dir, "admin.key")); err != nil {
			t.Fatal(err)
		}
		if out, err = start(t, dir, a, terminal); err != nil || out != "" {
			t.Errorf("a later start told %q, error %v", out, err)
		}
		left, err := os.ReadDir(dir)
		if err != nil || len(left) != 0 || a.remade != 0 {
			t.Errorf("a later start left %v, made %d keys", left, a.remade)
		}
	}
}

// Guarantee: a first start that dies after the account is made and before the
// key is written leaves nobody without a key: the next one makes another.
func TestInterruptedFirstStart(t *testing.T) {
	dir, a := t.TempDir(), &accounts{die: true}
	if _, err := start(t, dir, a, false); err == nil {
		t.Fatal("did not die")
	}
	a.die = false
	if _, err := start(t, dir, a, false); err != nil {
		t.Fatal(err)
	}
	if got := keyIn(t, dir); got != "kga_again\n" {
		t.Errorf("admin.key holds %q", got)
	}
	if _, err := start(t, dir, a, false); err != nil || a.remade != 1 {
		t.Errorf("made again %d times, error %v; want once", a.remade, err)
	}
}

// Guarantee: one server holds a data directory; the other is told which.
func TestLock(t *testing.T) { synctest.Test(t, testLock) }

func testLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keygate.lock")
	first, err := takeLock(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := takeLock(t.Context(), path); err == nil || !strings.Contains(err.Error(), "another server (process ") {
		t.Errorf("second: error %v", err)
	}
	// A server that is started while the one before is still dying waits a
	// moment for it.
	next := make(chan error, 1)
	go func() {
		again, err := takeLock(t.Context(), path)
		if err == nil {
			again.release()
		}
		next <- err
	}()
	synctest.Wait() // for the first of its looks
	first.release()
	if err := <-next; err != nil {
		t.Fatalf("after the release: %v", err)
	}
}

// Guarantee: the data directory is made for its owner alone, and a file in its
// place is refused.
func TestPrepareDataDir(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	if err := prepareDataDir(dir); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("mode %v, error %v; want 0700", info.Mode(), err)
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := prepareDataDir(file); err == nil {
		t.Error("a file was taken for a directory")
	}
}
