package conformance

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/licensecheck"
)

// allowed are the licences under which the binary may contain code of others. They ask that their text and
// the names of the authors are passed on. MPL-2.0 also asks that its files stay under it, and these are
// not changed.
var allowed = []string{"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT", "MPL-2.0"}

// Guarantee: docs/dependencies.md names every module whose code is in the binary, on any system, with its
// licence, and all of them are allowed.
func TestLicences(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/dependencies.md")
	if err != nil {
		t.Fatal(err)
	}
	stated := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\| ([^|]+) \\|").FindAllStringSubmatch(string(text), -1) {
		stated[row[1]] = strings.TrimSpace(row[2])
	}
	found := map[string]string{}
	for _, system := range []string{"linux", "darwin", "windows", "freebsd"} {
		for path, dir := range modulesOf(t, system, "..", "./cmd/keygate") {
			if found[path] == "" {
				found[path] = licenceOf(t, path, dir)
			}
		}
	}
	for path, licence := range found {
		checkAllowed(t, path, licence)
		if stated[path] != licence {
			t.Errorf("docs/dependencies.md: %s has the licence %q there, want %q", path, stated[path], licence)
		}
	}
	for path := range maps.Keys(stated) {
		if found[path] == "" {
			t.Errorf("docs/dependencies.md names %s, which is not in the binary", path)
		}
	}
}

// Guarantee: the licences of the provider for OpenTofu and Terraform are allowed, too.
func TestLicencesOfProvider(t *testing.T) {
	t.Parallel()
	for path, dir := range modulesOf(t, "linux", "../terraform", ".") {
		if path != "github.com/keygate/keygate" {
			checkAllowed(t, path, licenceOf(t, path, dir))
		}
	}
}

func checkAllowed(t *testing.T, path, licence string) {
	t.Helper()
	for _, one := range strings.Split(licence, ", ") {
		if !slices.Contains(allowed, one) {
			t.Errorf("%s has the licence %s, want one of %s", path, one, strings.Join(allowed, ", "))
		}
	}
}

// modulesOf returns the modules of the binary of a package for a system, and their directories.
func modulesOf(t *testing.T, system, module, program string) map[string]string {
	t.Helper()
	cmd := exec.Command("go", "list", "-deps", "-json=Module", program)
	cmd.Dir = module
	cmd.Env = append(os.Environ(), "GOOS="+system, "CGO_ENABLED=0", "GOWORK=off") // without the modules of these tests
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	modules := map[string]string{}
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var one struct {
			Module *struct {
				Path, Dir string
				Main      bool
			}
		}
		if err := decoder.Decode(&one); errors.Is(err, io.EOF) {
			return modules
		} else if err != nil {
			t.Fatal(err)
		}
		if one.Module != nil && !one.Module.Main {
			modules[one.Module.Path] = one.Module.Dir
		}
	}
}

// licenceOf returns the identifiers of the licences in the root of a module.
func licenceOf(t *testing.T, path, dir string) string {
	t.Helper()
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	licences := map[string]bool{}
	for _, file := range files {
		name := strings.ToUpper(file.Name())
		if file.IsDir() || !strings.HasPrefix(name, "LICEN") && !strings.HasPrefix(name, "COPYING") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, file.Name()))
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range licensecheck.Scan(text).Match {
			if !match.IsURL {
				licences[match.ID] = true
			}
		}
	}
	if len(licences) == 0 {
		t.Errorf("%s has no licence that could be read", path)
	}
	return strings.Join(slices.Sorted(maps.Keys(licences)), ", ")
}
