package server_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/config"
	"github.com/keygate/keygate/internal/keygatetest"
	"github.com/keygate/keygate/internal/keygatetest/awaittest"
	"github.com/keygate/keygate/internal/server"
)

// changing creates and revokes keys with several clients, until it is stopped.
type changing struct {
	mu      sync.Mutex
	created map[string]string // secrets of answered keys by identifier
	revoked []string          // secrets of keys whose revocation was answered
	stop    func()
}

func startChanging(t *testing.T, f *serving) *changing {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	c := &changing{created: map[string]string{}}
	var clients sync.WaitGroup
	for n := range 3 {
		clients.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				k, err := f.Admin.CreateKey(ctx, client.CreateKeyRequest{Name: fmt.Sprintf("load %d %d", n, i), Scope: "read:orders"})
				if err != nil {
					continue
				}
				if i%2 == 0 {
					_, err = f.Admin.RevokeKey(ctx, k.KeyID)
				}
				f.Through("", "GET", "/orders", f.key, "")
				c.mu.Lock()
				c.created[k.KeyID] = k.Secret
				if i%2 == 0 && err == nil {
					c.revoked = append(c.revoked, k.Secret)
				}
				c.mu.Unlock()
			}
		})
	}
	c.stop = func() { cancel(); clients.Wait() }
	t.Cleanup(c.stop)
	return c
}

// answered returns the changes that were answered until now.
func (c *changing) answered() (created map[string]string, revoked []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	created = map[string]string{}
	for id, secret := range c.created {
		created[id] = secret
	}
	return created, append(revoked, c.revoked...)
}

// Guarantee: a backup that is made while a server works and changes has everything that was answered
// before it began. Restored, its audit chains verify, keys that were revoked stay revoked, and a server
// starts and serves on it.
func TestBackupUnderLoad(t *testing.T) {
	f, revokedBefore := rich(t)
	f.Restart()
	load := startChanging(t, f)
	awaittest.True(t, "keys were created and revoked", func() bool { _, revoked := load.answered(); return len(revoked) >= 5 })
	created, revoked := load.answered()
	file := filepath.Join(t.TempDir(), "copy.db")
	done, err := server.Backup(t.Context(), settings(t, f.DataDir), file, server.BackupOptions{SecretKey: true})
	if err != nil {
		t.Fatal(err)
	}
	load.stop()
	for _, path := range []string{file, *done.SecretKey} {
		if info := must(os.Stat(path)); info.Mode().Perm() != 0o600 && runtime.GOOS != "windows" {
			t.Errorf("%s has the mode %o, want 600", path, info.Mode().Perm())
		}
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "admin.key"), []byte(f.AdminKey+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := settings(t, dir)
	restored, err := server.Restore(t.Context(), c, file)
	if err != nil || restored.SecretKey != server.KeyChecked {
		t.Fatalf("restoring: got %+v, %v; want that the secret key was checked", restored, err)
	}
	for _, name := range []string{"default", "acme"} {
		report, err := server.VerifyAudit(t.Context(), c, quiet, name, nil)
		if err != nil || name == "default" && report.Blocks == 0 {
			t.Errorf("verifying the audit log of %s: %+v, %v", name, report, err)
		}
	}
	second := keygatetest.StartWith(t, keygatetest.Options{From: dir, Args: []string{"--webhook-allow-network", "127.0.0.0/8"}})
	for id := range created {
		if _, err := second.Admin.Key(t.Context(), id); err != nil {
			t.Errorf("the key %s was answered before the backup began, and is missing: %v", id, err)
		}
	}
	for _, secret := range append(revoked, revokedBefore) {
		if got := second.Through("", "GET", "/orders", secret, "").Status; got != http.StatusUnauthorized {
			t.Errorf("a key that was revoked before the backup got %d, want 401", got)
		}
	}
	if got := second.Through("", "GET", "/orders", f.key, "").Status; got != http.StatusOK {
		t.Errorf("a key got %d, want 200", got)
	}
}

// backedUp returns the settings of a server that was stopped, and a backup of its store without the secret key.
func backedUp(t *testing.T) (f *serving, file string) {
	t.Helper()
	f = startServing(t, "--webhook-allow-network", "127.0.0.0/8")
	must(f.Admin.CreateWebhook(t.Context(), client.CreateWebhookRequest{URL: "https://127.0.0.1:1/", Events: []string{"key.created"}}))
	f.Stop()
	file = filepath.Join(t.TempDir(), "copy.db")
	must(server.Backup(t.Context(), settings(t, f.DataDir), file, server.BackupOptions{}))
	return f, file
}

// Guarantee: a backup replaces nothing without being told to, and never a file of the server.
func TestBackupRefuses(t *testing.T) {
	f, file := backedUp(t)
	c := settings(t, f.DataDir)
	for want, one := range map[string]struct {
		c       *config.Config
		file    string
		options server.BackupOptions
	}{
		"exists: name another file": {c, file, server.BackupOptions{}},
		"is used by the server":     {c, filepath.Join(f.DataDir, "keygate.db"), server.BackupOptions{Force: true}},
		"is not a regular file":     {c, t.TempDir(), server.BackupOptions{Force: true}},
		"the directory of":          {c, filepath.Join(t.TempDir(), "none", "copy.db"), server.BackupOptions{}},
		"no store in":               {settings(t, t.TempDir()), file + "2", server.BackupOptions{}},
		"use pg_dump":               {settings(t, t.TempDir(), "--database-url", "postgres://k:hidden@127.0.0.1:1/k"), file + "2", server.BackupOptions{}},
		"open secret key file":      {settings(t, f.DataDir, "--secret-key-file", file+"none"), file + "2", server.BackupOptions{SecretKey: true}},
		"is not a Keygate database": {notOurs(t), file + "2", server.BackupOptions{}},
	} {
		_, err := server.Backup(t.Context(), one.c, one.file, one.options)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hidden") {
			t.Errorf("got the error %v, want one that says %q", err, want)
		}
	}
	if _, err := os.Stat(file + "2"); err == nil {
		t.Error("a backup that was refused has left a file")
	}
	if _, err := server.Backup(t.Context(), c, file, server.BackupOptions{Force: true}); err != nil {
		t.Errorf("with force: %v", err)
	}
	if left := must(os.ReadDir(filepath.Dir(file))); len(left) != 1 {
		t.Errorf("got %d files, want the backup alone", len(left))
	}
}

// notOurs returns the settings of a data directory whose database is a text.
func notOurs(t *testing.T) *config.Config {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "keygate.db"), []byte(strings.Repeat("no database\n", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	return settings(t, dir)
}

// Guarantee: a restore is refused, and adds no database, if there is one already, if a server runs, if the
// file is damaged or not a backup, or if the secret key is another. A restore without a secret key says so.
func TestRestoreRefuses(t *testing.T) {
	f, file := backedUp(t)
	damaged := filepath.Join(t.TempDir(), "damaged.db")
	content := must(os.ReadFile(file))
	if err := os.WriteFile(damaged, content[:len(content)/2], 0o600); err != nil {
		t.Fatal(err)
	}
	foreign := t.TempDir()
	for path, text := range map[string]string{filepath.Join(foreign, "letter.txt"): "", file + "other": strings.Repeat("k", 32)} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	running := startServing(t)
	empty := t.TempDir()
	for want, one := range map[string]struct {
		c    *config.Config
		file string
	}{
		"a backup is restored only where there is no database": {settings(t, f.DataDir), file},
		"uses the data directory":                              {settings(t, running.DataDir), file},
		"letter.txt exists":                                    {settings(t, foreign), file},
		"damaged":                                              {settings(t, empty), damaged},
		"is not a Keygate database":                            {settings(t, empty), filepath.Join(f.DataDir, "secret.key")},
		"is not a regular file":                                {settings(t, empty), foreign},
		"is not the one that the backup was made with":         {settings(t, empty, "--secret-key-file", file+"other"), file},
		"point-in-time recovery":                               {settings(t, empty, "--database-url", "postgres://k:hidden@127.0.0.1:1/k"), file},
	} {
		_, err := server.Restore(t.Context(), one.c, one.file)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hidden") {
			t.Errorf("got the error %v, want one that says %q", err, want)
		}
	}
	for _, e := range must(os.ReadDir(empty)) {
		if e.Name() != "keygate.lock" {
			t.Errorf("a restore that was refused has left %s", e.Name())
		}
	}
	done, err := server.Restore(t.Context(), settings(t, empty), file)
	if err != nil || done.SecretKey != server.KeyMissing {
		t.Errorf("without a secret key: got %+v, %v", done, err)
	}
	if got := startErrorWith(t, settings(t, empty)); !strings.Contains(got, "secret key file") {
		t.Errorf("a start without the secret key: got the error %q", got)
	}
}
