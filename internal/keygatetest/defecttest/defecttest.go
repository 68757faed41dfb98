// Package defecttest shows that tests find defects which others shipped, or which a model found. Each
// defect is a patch of one file of a package; the package's tests are built with it, and must fail.
//
//	Test: TestName/subtest              what to run: a pattern of go test -run
//	Output: at most 5 passed            a text that the failing test prints
//	Arguments: -seeds=1000              of the test binary; optional
//	--- a/file.go
//	+++ b/file.go
//	@@ …
package defecttest

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Run applies each patch in testdata/defects by itself and checks that the tests of the present
// package then fail as the patch says. They run without the race detector, which no defect needs to be found, and are
// built as everything else that is not tested with it: the go command shares its build cache, so only this package is
// built anew. Run skips in short mode.
func Run(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("builds this package once for each defect")
	}
	patches, err := filepath.Glob("testdata/defects/*.patch")
	if err != nil || len(patches) == 0 {
		t.Fatalf("no patches found: %v", err)
	}
	for _, patch := range patches {
		t.Run(strings.TrimSuffix(filepath.Base(patch), ".patch"), func(t *testing.T) {
			t.Parallel()
			d, err := read(patch)
			if err != nil {
				t.Fatalf("%s: %v", patch, err)
			}
			out, err := d.test(t)
			var failed *exec.ExitError
			switch {
			case err == nil:
				t.Errorf("the tests pass with the defect")
			case !errors.As(err, &failed) || !strings.Contains(out, d.output):
				t.Errorf("the tests did not find the defect, but failed: %v\n%s", err, out)
			}
		})
	}
}

// defect is a patch that was applied.
type defect struct {
	run, output string
	arguments   []string
	file        string // of the package
	content     string // of the file with the defect
}

// read reads a patch and applies it.
func read(patch string) (d defect, err error) {
	content, err := os.ReadFile(patch)
	if err != nil {
		return d, err
	}
	head, body, found := strings.Cut(string(content), "\n--- ")
	if !found {
		return d, errors.New("it changes no file")
	}
	for line := range strings.SplitSeq(head, "\n") {
		name, value, _ := strings.Cut(line, ": ")
		switch name {
		case "Test":
			d.run = value
		case "Output":
			d.output = value
		case "Arguments":
			d.arguments = strings.Fields(value)
		default:
			return d, fmt.Errorf("%q is not a line of a defect: use Test, Output and Arguments", line)
		}
	}
	if d.run == "" || d.output == "" {
		return d, errors.New("the lines Test and Output are required")
	}
	d.file, d.content, err = apply(body)
	return d, err
}

// test runs the package's tests with the defect.
func (d *defect) test(t *testing.T) (output string, err error) {
	t.Helper()
	dir := t.TempDir()
	replacement, overlayFile := filepath.Join(dir, d.file), filepath.Join(dir, "overlay.json")
	original, err := filepath.Abs(d.file)
	if err != nil {
		t.Fatal(err)
	}
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{original: replacement}})
	if err != nil {
		t.Fatal(err)
	}
	for path, content := range map[string][]byte{replacement: []byte(d.content), overlayFile: overlay} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pattern := "^" + strings.ReplaceAll(strings.ReplaceAll(d.run, " ", "_"), "/", "$/^") + "$"
	args := []string{"test", "-trimpath", "-vet=off", "-count=1", "-overlay=" + overlayFile, "-run=" + pattern, "."}
	c := exec.CommandContext(t.Context(), "go", append(args, d.arguments...)...)
	c.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := c.CombinedOutput()
	return string(out), err
}

// apply applies a patch of one file of the present package. Unlike patch(1), it requires exactly the
// patch's text around a change, so that an outdated patch is noticed.
func apply(patch string) (file, patched string, err error) {
	head, hunks, _ := strings.Cut(patch, "\n@@")
	_, file, found := strings.Cut(head, "+++ b/")
	if !found {
		return "", "", errors.New("it names no file")
	}
	file = strings.TrimSpace(file)
	content, err := os.ReadFile(file)
	if err != nil {
		return "", "", err
	}
	patched = string(content)
	for hunk := range strings.SplitSeq(hunks, "\n@@") {
		var before, after strings.Builder
		_, lines, _ := strings.Cut(hunk, "\n")
		for line := range strings.Lines(lines) {
			if line[0] != '+' {
				before.WriteString(line[1:])
			}
			if line[0] != '-' {
				after.WriteString(line[1:])
			}
		}
		from, to := strings.TrimSuffix(before.String(), "\n"), strings.TrimSuffix(after.String(), "\n")
		if n := strings.Count(patched, from); n != 1 {
			return "", "", fmt.Errorf("the text that it changes in %s is there %d times, want once:\n%s", file, n, from)
		}
		patched = strings.Replace(patched, from, to, 1)
	}
	return file, patched, nil
}
