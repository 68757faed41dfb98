package lease

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Guarantee: the simulation finds defects of leases that others shipped, or that were found by a model.
// Each patch in testdata/defects makes one, and names a scenario that must fail in the patched package.
func TestSimulationFindsDefects(t *testing.T) {
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
			out, err := testWith(t, patch)
			var failed *exec.ExitError
			switch {
			case err == nil:
				t.Errorf("the simulation passes with the defect")
			case !errors.As(err, &failed) || !strings.Contains(out, "promise 1 is broken"):
				t.Errorf("the simulation did not run: %v\n%s", err, out)
			}
		})
	}
}

// testWith runs the simulation of this package with a patch applied.
func testWith(t *testing.T, patch string) (output string, err error) {
	content, err := os.ReadFile(patch)
	if err != nil {
		t.Fatal(err)
	}
	first, content, _ := bytes.Cut(content, []byte("\n"))
	scenario, ok := bytes.CutPrefix(first, []byte("Scenario: "))
	if !ok {
		t.Fatalf("%s names no scenario in its first line", patch)
	}
	name, patched, err := applyPatch(string(content))
	if err != nil {
		t.Fatalf("%s does not apply: %v", patch, err)
	}
	dir := t.TempDir()
	replacement := filepath.Join(dir, name)
	original, err := filepath.Abs(name)
	if err != nil {
		t.Fatal(err)
	}
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{original: replacement}})
	if err != nil {
		t.Fatal(err)
	}
	overlayFile := filepath.Join(dir, "overlay.json")
	for path, content := range map[string][]byte{replacement: []byte(patched), overlayFile: overlay} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "go", "test", "-vet=off", "-count=1", "-overlay="+overlayFile,
		"-run=^TestSimulatedNodesAdmit/^"+strings.ReplaceAll(string(scenario), " ", "_")+"$", ".", "-seeds=1000")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// applyPatch applies a patch of one file of this package. Unlike patch(1), it accepts no text around a
// change but the one in the patch, so that a patch that has become wrong is noticed.
func applyPatch(patch string) (name, patched string, err error) {
	head, hunks, _ := strings.Cut(patch, "\n@@")
	_, name, found := strings.Cut(head, "+++ b/")
	if !found {
		return "", "", errors.New("it names no file")
	}
	name = strings.TrimSpace(name)
	content, err := os.ReadFile(name)
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
			return "", "", fmt.Errorf("the text that it changes in %s is there %d times, want once:\n%s", name, n, from)
		}
		patched = strings.Replace(patched, from, to, 1)
	}
	return name, patched, nil
}
