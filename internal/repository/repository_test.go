package repository_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/repository"
)

// Guarantee: the file of the newest commit of the branch is read byte for byte, with the commit, its
// author, its time and the first line of its message, from a directory and over https, whether the
// server filters objects or not, and with an old version of the protocol.
func TestRead(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	r := newRepo(t, filepath.Join(root, "orders"))
	const first, second = "openapi: 3.1.0\r\n# CRLF stays\r\n", "openapi: 3.1.0\n"
	r.write("api/openapi.yaml", strings.Repeat("# a comment that makes deltas worth while\n", 200)+first)
	r.write("other.txt", "x")
	r.commit("first")
	r.write("api/openapi.yaml", strings.Repeat("# a comment that makes deltas worth while\n", 200)+second)
	r.write("api/copy.yaml", strings.Repeat("# a comment that makes deltas worth while\n", 200)+"copy")
	r.git("branch", "mainly")
	want := r.commit("second\n\nwith a body")
	r.git("gc", "-q")
	filtering := serveGit(t, root, "", "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=uploadpack.allowFilter", "GIT_CONFIG_VALUE_0=true")
	plain := serveGit(t, root, "")
	old := serveGit(t, root, "", "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=protocol.version", "GIT_CONFIG_VALUE_0=0")
	old.Config.Handler = withoutVersion(old.Config.Handler)
	for _, c := range []struct {
		name   string
		cfg    repository.Config
		source repository.Source
	}{
		{"a directory", repository.Config{AllowFile: root}, repository.Source{URL: "file://" + r.dir}},
		{"a bare directory", repository.Config{AllowFile: root}, repository.Source{URL: "file://" + r.dir + "/.git"}},
		{"https with a filter", repository.Config{Roots: filtering.roots}, repository.Source{URL: filtering.URL + "/orders/.git"}},
		{"https", repository.Config{Roots: plain.roots}, repository.Source{URL: plain.URL + "/orders/.git/"}},
		{"https with version 0", repository.Config{Roots: old.roots}, repository.Source{URL: old.URL + "/orders/.git"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			client := client(t, c.cfg)
			for range 2 {
				f, err := read(t, client, c.source)
				if err != nil {
					t.Fatal(err)
				}
				if f.Commit != want || f.Author != "Ann <ann@example.com>" || f.Message != "second" || !f.Time.Equal(time.Date(2027, 3, 1, 11, 30, 0, 0, time.UTC)) ||
					!strings.HasSuffix(string(f.Content), "while\n"+second) {
					t.Errorf("got %+v", f)
				}
			}
			s := c.source
			s.Branch = "mainly"
			if f, err := read(t, client, s); err != nil || !strings.HasSuffix(string(f.Content), first) || f.Message != "first" {
				t.Errorf("got %+v, %v, want the file of the other branch", f, err)
			}
			s.Branch = "none"
			_, err := head(t, client, s)
			wantKind(t, err, repository.NoBranch, "no branch none")
		})
	}
	t.Run("a poll is one request", func(t *testing.T) {
		client := client(t, repository.Config{Roots: plain.roots})
		s := repository.Source{URL: plain.URL + "/orders/.git"}
		for range 2 {
			if _, err := head(t, client, s); err != nil {
				t.Fatal(err)
			}
		}
		plain.calls = nil
		if _, err := head(t, client, s); err != nil {
			t.Fatal(err)
		}
		if len(plain.calls) != 1 {
			t.Errorf("got the requests %q, want one", plain.calls)
		}
	})
}

// Guarantee: a server that no longer filters is asked once more for its capabilities, and read
// without a filter.
func TestServerThatStopsFiltering(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	r := newRepo(t, filepath.Join(root, "r"))
	r.write("api/openapi.yaml", "openapi: 3.1.0")
	r.commit("x")
	r.git("config", "uploadpack.allowFilter", "true")
	server := serveGit(t, root, "")
	c := client(t, repository.Config{Roots: server.roots})
	s := repository.Source{URL: server.URL + "/r/.git"}
	if _, err := read(t, c, s); err != nil {
		t.Fatal(err)
	}
	r.git("config", "uploadpack.allowFilter", "false")
	if f, err := read(t, c, s); err != nil || string(f.Content) != "openapi: 3.1.0" {
		t.Errorf("got %v, %v, want the file", f, err)
	}
	server.calls = nil
	if _, err := read(t, c, s); err != nil || len(server.calls) != 2 {
		t.Errorf("got %v after %q, want two requests", err, server.calls)
	}
}

// Guarantee: anything that is not a regular file of the commit is refused with an error that says
// what to do: missing files and directories, symbolic links, submodules, pointers of LFS, large
// files. A renamed file is a missing file. A branch that was moved to a commit without a common
// history is followed.
func TestFilesThatCannotBeRead(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	r := newRepo(t, filepath.Join(root, "r"))
	r.write("api/openapi.yaml", "openapi: 3.1.0")
	r.write("lfs.yaml", "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n")
	if err := os.Symlink("../../etc/passwd", filepath.Join(r.dir, "link.yaml")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("api", filepath.Join(r.dir, "linked")); err != nil {
		t.Fatal(err)
	}
	r.commit("one")
	r.git("update-index", "--add", "--cacheinfo", "160000,"+strings.Repeat("1", 40)+",sub")
	r.git("commit", "-qm", "two")
	server := serveGit(t, root, "")
	client := client(t, repository.Config{AllowFile: root, Roots: server.roots})
	for _, url := range []string{"file://" + r.dir, server.URL + "/r/.git"} {
		for _, c := range []struct {
			path string
			kind repository.Kind
			text string
		}{
			{"none.yaml", repository.NoFile, "has no file none.yaml"},
			{"api/none/openapi.yaml", repository.NoFile, "there is no api/none"},
			{"lfs.yaml/x", repository.NoFile, "lfs.yaml is no directory"},
			{"api", repository.BadFile, "is a directory"},
			{"link.yaml", repository.BadFile, "is a symbolic link"},
			{"linked/openapi.yaml", repository.BadFile, "linked is a symbolic link"},
			{"sub", repository.BadFile, "is a submodule"},
			{"sub/openapi.yaml", repository.BadFile, "sub is a submodule"},
			{"lfs.yaml", repository.BadFile, "stored with Git LFS"},
		} {
			_, err := read(t, client, repository.Source{URL: url, Path: c.path})
			wantKind(t, err, c.kind, c.text)
		}
	}
	r.git("checkout", "-q", "--orphan", "new")
	r.git("mv", "-f", "api/openapi.yaml", "api/renamed.yaml")
	r.commit("anew")
	r.git("branch", "-qM", "main")
	for _, url := range []string{"file://" + r.dir, server.URL + "/r/.git"} {
		_, err := read(t, client, repository.Source{URL: url})
		wantKind(t, err, repository.NoFile, "there is no api/openapi.yaml")
		if _, err := read(t, client, repository.Source{URL: url, Path: "api/renamed.yaml"}); err != nil {
			t.Error(err)
		}
	}
}

// Guarantee: a file of 16 MiB is read, and a larger one is refused.
func TestLargeFiles(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	r := newRepo(t, filepath.Join(root, "r"))
	r.write("largest.yaml", strings.Repeat("a", 16<<20))
	r.write("large.yaml", strings.Repeat("a", 16<<20+1))
	r.commit("one")
	client := client(t, repository.Config{AllowFile: root})
	s := repository.Source{URL: "file://" + r.dir, Path: "large.yaml"}
	_, err := read(t, client, s)
	wantKind(t, err, repository.TooLarge, "at most 16 MiB")
	s.Path = "largest.yaml"
	if f, err := read(t, client, s); err != nil || len(f.Content) != 16<<20 {
		t.Errorf("got %v, want a file of 16 MiB", err)
	}
}

// Guarantee: an empty repository, a directory that is not a repository, and a directory outside of
// the allowed directory, even by symbolic links, are refused. The error does not reveal whether
// something outside exists. Accounts with public addresses only have no file URLs.
func TestDirectories(t *testing.T) {
	t.Parallel()
	root, outside := t.TempDir(), newRepo(t, filepath.Join(t.TempDir(), "out"))
	outside.write("api/openapi.yaml", "x")
	outside.commit("x")
	empty := newRepo(t, filepath.Join(root, "empty"))
	if err := os.Symlink(outside.dir, filepath.Join(root, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(root, "none"), 0o700); err != nil {
		t.Fatal(err)
	}
	c := client(t, repository.Config{AllowFile: root})
	for url, want := range map[string]repository.Kind{
		"file://" + empty.dir: repository.NoBranch, "file://" + root + "/none": repository.NoRepository,
		"file://" + outside.dir: repository.Invalid, "file://" + root + "/link": repository.Invalid, "file://" + root + "/../x": repository.Invalid,
		"file://" + root + "x": repository.Invalid, "file:///": repository.Invalid, "file://" + root + "/absent": repository.Invalid,
	} {
		_, err := head(t, c, repository.Source{URL: url})
		wantKind(t, err, want, "")
		if want == repository.Invalid && err.Error() != "the URL must name a directory in that of the server's --repository-allow-file" {
			t.Errorf("%s: %v tells what is outside", url, err)
		}
	}
	_, err := head(t, c, repository.Source{URL: "file://" + empty.dir, Public: true})
	wantKind(t, err, repository.Invalid, "must begin with https:// or ssh://")
	_, err = head(t, client(t, repository.Config{}), repository.Source{URL: "file://" + empty.dir})
	wantKind(t, err, repository.Invalid, "must begin with https:// or ssh://")
}

// Guarantee: a commit of many files is read, and its pack is removed.
func TestManyFiles(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	r := newRepo(t, filepath.Join(root, "r"))
	for i := range 300 {
		r.write(fmt.Sprintf("d%d/f%d.txt", i%7, i), strings.Repeat("shared line\n", 50)+fmt.Sprint(i))
	}
	r.write("api/openapi.yaml", strings.Repeat("shared line\n", 50)+"this")
	r.commit("many")
	r.git("gc", "-q", "--aggressive")
	server := serveGit(t, root, "")
	c := client(t, repository.Config{Roots: server.roots})
	f, err := read(t, c, repository.Source{URL: server.URL + "/r/.git"})
	if err != nil || !strings.HasSuffix(string(f.Content), "line\nthis") {
		t.Errorf("got %v, %v", f, err)
	}
}
