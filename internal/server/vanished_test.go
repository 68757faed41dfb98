package server_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/keygatetest"
	"github.com/keygate/keygate/internal/server"
	"github.com/keygate/keygate/internal/store/sqlite"
)

// refused starts a server in dir, which must fail, and returns the error.
func refused(t *testing.T, dir string, flags ...string) string {
	t.Helper()
	s, err := server.Start(t.Context(), server.Config{Settings: settings(t, dir, flags...)})
	if err == nil {
		_ = s.Stop(t.Context())
		t.Fatal("the server started, want an error")
	}
	return err.Error()
}

// Guarantee: if files of an earlier start are left and the database is missing or empty, the server
// does not start, says what to restore or remove, and changes nothing. With the database restored
// it starts (contract, section 1).
func TestVanishedDatabaseStopsTheStart(t *testing.T) {
	s := keygatetest.Start(t)
	s.Stop()
	database, adminKey, secretKey := filepath.Join(s.DataDir, "keygate.db"), filepath.Join(s.DataDir, "admin.key"), filepath.Join(s.DataDir, "secret.key")
	content := map[string][]byte{}
	for _, path := range []string{database, adminKey, secretKey} {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		content[path] = b
	}
	for name, left := range map[string][]string{
		"missing":                       {adminKey, secretKey},
		"missing, only with admin.key":  {adminKey},
		"missing, only with secret.key": {secretKey},
		"empty":                         {adminKey, secretKey, database},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for _, path := range left {
				b := content[path]
				if path == database {
					b = nil
				}
				if err := os.WriteFile(filepath.Join(dir, filepath.Base(path)), b, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			message := refused(t, dir)
			for _, want := range []string{filepath.Join(dir, "keygate.db"), filepath.Join(dir, filepath.Base(left[0])), "restore", "move"} {
				if !strings.Contains(message, want) {
					t.Errorf("got the error %q, want it to contain %q", message, want)
				}
			}
			files, err := os.ReadDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			if len(files) != len(left)+1 { // and the lock
				t.Errorf("the directory holds %v after the start, want what was left and the lock", files)
			}
			for _, path := range left {
				if got, err := os.ReadFile(filepath.Join(dir, filepath.Base(path))); err != nil || path != database && !bytes.Equal(got, content[path]) {
					t.Errorf("%s has changed (%v)", filepath.Base(path), err)
				}
			}
		})
	}
	s.Restart()
	if _, err := s.Admin.Account(t.Context()); err != nil {
		t.Errorf("with the database restored the key returned %v, want none", err)
	}
}

// Guarantee: a database without accounts beside an admin.key is no first start either: nothing
// overwrites admin.key.
func TestDatabaseWithoutAccountsStopsTheStart(t *testing.T) {
	dir := t.TempDir()
	interruptAt(t, dir, "the tables")
	path := filepath.Join(dir, "admin.key")
	if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if message := refused(t, dir); !strings.Contains(message, "restore the database") {
			t.Errorf("got the error %q, want one that says to restore the database", message)
		}
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "mine" {
		t.Errorf("admin.key holds %q (%v), want it unchanged", got, err)
	}
}

// Guarantee: a secret key that was put elsewhere before the first start does not hinder it.
func TestSecretKeyElsewhereAllowsTheFirstStart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "provided.key")
	if err := os.WriteFile(path, []byte(strings.Repeat("k", 32)), 0o600); err != nil {
		t.Fatal(err)
	}
	s := keygatetest.Start(t, "--secret-key-file", path)
	if _, err := os.Stat(filepath.Join(s.DataDir, "secret.key")); err == nil {
		t.Error("a secret key was created in the data directory, want only the provided one")
	}
}

// Guarantee: an admin.key or secret.key that others may read stops the start with an error that
// names chmod 600 (contract, section 1).
func TestReadableKeyFilesStopTheStart(t *testing.T) {
	s := keygatetest.Start(t)
	s.Stop()
	for _, name := range []string{"admin.key", "secret.key"} {
		path := filepath.Join(s.DataDir, name)
		if err := os.Chmod(path, 0o640); err != nil {
			t.Fatal(err)
		}
		if message := refused(t, s.DataDir); !strings.Contains(message, "chmod 600 "+path) {
			t.Errorf("got the error %q, want one that names chmod 600 %s", message, path)
		}
		if err := os.Chmod(path, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s.Restart()
}

// interruptions are the points at which a first start may be interrupted, in their order.
var interruptions = []string{"the marker", "the secret key", "an empty database", "the tables", "the account", "admin.key"}

// interruptAt writes to dir the files that a first start leaves if it is interrupted after the given point.
func interruptAt(t *testing.T, dir, point string) {
	t.Helper()
	write := func(name string, content []byte) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	at := slices.Index(interruptions, point)
	write("admin.key.pending", nil)
	if at >= 1 && at <= 3 {
		write("secret.key", bytes.Repeat([]byte("k"), 32))
	}
	switch {
	case at == 2:
		write("keygate.db", nil)
	case at == 3:
		db, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(dir, "keygate.db")})
		if err != nil {
			t.Fatal(err)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	case at >= 4:
		s, err := server.Start(t.Context(), server.Config{Settings: settings(t, dir)})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		write("admin.key.pending", nil)
		if at == 4 {
			if err := os.Remove(filepath.Join(dir, "admin.key")); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// Guarantee: a first start that was interrupted at any point is completed by the next one, with
// an admin.key that works and that no later start changes.
func TestFirstStartInterruptedAnywhereIsCompleted(t *testing.T) {
	for _, point := range interruptions {
		t.Run(point, func(t *testing.T) {
			dir := t.TempDir()
			interruptAt(t, dir, point)
			path := filepath.Join(dir, "admin.key")
			before, _ := os.ReadFile(path)
			for range 2 {
				_, api, signals, ended := run(t, settings(t, dir))
				if _, err := api.Account(t.Context()); err != nil {
					t.Errorf("the key in admin.key returned %v, want none", err)
				}
				signals <- os.Interrupt
				if err := <-ended; err != nil {
					t.Error(err)
				}
				after, err := os.ReadFile(path)
				if err != nil || before != nil && !bytes.Equal(after, before) {
					t.Errorf("admin.key has changed (%v)", err)
				}
				before = after
			}
			if _, err := os.Stat(path + ".pending"); err == nil {
				t.Error("the marker exists after the start, want it removed")
			}
		})
	}
}
