package repository_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/repository"
)

// Guarantee: a repository whose objects or references are symbolic links, or alternates, that lead out
// of the allowed directory gives no content from there.
func TestLinksOutOfARepository(t *testing.T) {
	t.Parallel()
	outside := newRepo(t, filepath.Join(t.TempDir(), "out"))
	outside.write("api/openapi.yaml", "secret")
	commit := outside.commit("x")
	at := filepath.Join(outside.dir, ".git")
	root := t.TempDir()
	c := client(t, repository.Config{AllowFile: root})
	for name, lead := range map[string]func(dir string) error{
		"objects": func(dir string) error {
			return errors.Join(os.RemoveAll(dir+"/objects"), os.Symlink(at+"/objects", dir+"/objects"))
		},
		"refs": func(dir string) error {
			return errors.Join(os.RemoveAll(dir+"/refs"), os.Symlink(at+"/refs", dir+"/refs"), os.RemoveAll(dir+"/objects"), os.Symlink(at+"/objects", dir+"/objects"))
		},
		"alternates": func(dir string) error {
			return os.WriteFile(dir+"/objects/info/alternates", []byte(at+"/objects\n"), 0o600)
		},
		"relative": func(dir string) error {
			to, err := filepath.Rel(dir+"/objects", at+"/objects")
			return errors.Join(err, os.WriteFile(dir+"/objects/info/alternates", []byte(to+"\n"), 0o600))
		},
	} {
		r := newRepo(t, filepath.Join(root, name))
		if err := lead(filepath.Join(r.dir, ".git")); err != nil {
			t.Fatal(err)
		}
		s := source(repository.Source{URL: "file://" + r.dir})
		if name == "refs" {
			if got, _, err := c.Head(context.Background(), s); err == nil {
				t.Errorf("%s: got the commit %s", name, got)
			}
		}
		if f, err := c.Read(context.Background(), s, commit); err == nil {
			t.Errorf("%s: got %q", name, f.Content)
		}
	}
}

// Guarantee: a file system that does not answer holds no call for longer than its context, however many
// hang, and calls that were given up end with the file system's answer.
func TestFileSystemThatHangs(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	r := newRepo(t, filepath.Join(root, "r"))
	fifo := filepath.Join(r.dir, ".git", "refs", "heads", "main")
	run(t, "mkfifo", fifo)
	c := client(t, repository.Config{AllowFile: root})
	for range 12 {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
		_, _, err := c.Head(ctx, source(repository.Source{URL: "file://" + r.dir}))
		cancel()
		wantKind(t, err, repository.TooSlow, "took too long")
	}
	for tick := time.NewTicker(time.Millisecond); repository.LocalCalls(c) > 0; <-tick.C {
		if f, err := os.OpenFile(fifo, os.O_RDWR, 0); err == nil {
			_ = f.Close()
		}
	}
}
