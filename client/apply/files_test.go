package apply

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Guarantee: a directory with too many files, or with a file that is too large, is refused.
func TestDirectoriesAreBounded(t *testing.T) {
	large := t.TempDir()
	f, err := os.Create(filepath.Join(large, "large.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(maxFile + 1); err != nil { // takes no space
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := readDir(large); err == nil || !strings.Contains(err.Error(), "larger than 16 MiB") {
		t.Errorf("got error %v, want that the file is too large", err)
	}
	many := t.TempDir()
	for i := range maxFiles {
		if err := os.Link(emptyFile(t, many), filepath.Join(many, fmt.Sprintf("%05d.yaml", i))); err != nil {
			t.Fatal(err)
		}
	}
	if files, err := readDir(many); err != nil || len(files) != maxFiles {
		t.Errorf("got %d files and error %v, want %d", len(files), err, maxFiles)
	}
	if err := os.Link(emptyFile(t, many), filepath.Join(many, "one-more.yaml")); err != nil {
		t.Fatal(err)
	}
	if _, err := readDir(many); err == nil || !strings.Contains(err.Error(), "more than 10000 files") {
		t.Errorf("got error %v, want that there are too many files", err)
	}
}

// emptyFile returns the path of an empty file, which is not a configuration file.
func emptyFile(t *testing.T, dir string) string {
	t.Helper()
	path := filepath.Join(dir, "empty")
	if _, err := os.Stat(path); err == nil {
		return path
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Guarantee: the values of variables are replaced in messages whatever their case, the longest
// value first; short values stay.
func TestValuesOfVariablesAreHidden(t *testing.T) {
	d := &File{}
	lookup := d.remember(func(name string) (string, bool) {
		value, ok := map[string]string{"TOKEN": "S3cret", "LONG": "s3cret-and-more", "ON": "on"}[name]
		return value, ok
	})
	for _, name := range []string{"TOKEN", "LONG", "ON", "MISSING"} {
		lookup(name)
	}
	got := d.Secrets.Hide("on s3cret S3CRET-and-more s3cre")
	if want := "on ${env:TOKEN} ${env:LONG} s3cre"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Guarantee: every system takes the file name of a gateway, which is in the directory and not
// hidden.
func TestFileNamesOfGateways(t *testing.T) {
	for name, want := range map[string]string{
		"orders": "orders", "Orders_v1.2": "Orders_v1.2", "a / b": "a-b", "../../etc/passwd": "etc-passwd", ".hidden": "hidden",
		"日本": "gateway", "": "gateway", "nul": "gateway-nul", "COM1.x": "gateway-COM1.x", "company": "company", "a\x00b": "a-b",
		strings.Repeat("x", 255): strings.Repeat("x", longestFileName),
	} {
		if got := fileNameOf(name); got != want || !filepath.IsLocal(got) {
			t.Errorf("%q: got %q, want %q", name, got, want)
		}
	}
}
