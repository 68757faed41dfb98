package cli

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Guarantee: docs/cli.md names every command.
func TestGuideNamesEveryCommand(t *testing.T) {
	guide := strings.ReplaceAll(readDoc(t, "cli.md"), `\|`, "|")
	for _, noun := range newRoot(&System{}).Commands() {
		if !strings.Contains(guide, "`"+noun.Name()) {
			t.Errorf("docs/cli.md lacks %s", noun.Name())
		}
		for _, verb := range noun.Commands() {
			found := false
			for line := range strings.Lines(guide) {
				if strings.HasPrefix(line, "|") && strings.Contains(line, noun.Name()+" ") && strings.Contains(line, verb.Name()) {
					found = true
				}
			}
			if !found {
				t.Errorf("docs/cli.md lacks %s %s", noun.Name(), verb.Name())
			}
		}
	}
}

// Guarantee: every package has a line in docs/architecture.md.
func TestArchitectureListsEveryPackage(t *testing.T) {
	page := readDoc(t, "architecture.md")
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() || strings.HasSuffix(path, "testdata") {
			return err
		}
		sources, err := filepath.Glob(filepath.Join(path, "*.go"))
		if err != nil || len(sources) == 0 {
			return err
		}
		// Packages that help the tests of another one need no line, nor do programs.
		if content, err := os.ReadFile(sources[0]); err != nil || strings.Contains(string(content), "\npackage main\n") ||
			strings.HasSuffix(path, "test") && path != "../keygatetest" && path != "../store/storetest" {
			return err
		}
		if name := "internal/" + strings.TrimPrefix(filepath.ToSlash(path), "../"); !strings.Contains(page, "| `"+name+"` |") {
			t.Errorf("docs/architecture.md has no line for %s", name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Guarantee: every path in docs/architecture.md exists, and every function that follows
// the path of a file is in that file.
func TestArchitectureNamesOnlyWhatExists(t *testing.T) {
	page := readDoc(t, "architecture.md")
	paths, functions := 0, 0
	for line := range strings.Lines(page) {
		source := "" // of the last file named in the line
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(line, -1) {
			switch name := m[1]; {
			case regexp.MustCompile(`^(internal|cmd|client|e2e|wire|bench|tools|api|docs)(/[\w./]+)?$|^\.golangci\.yml$`).MatchString(name):
				paths++
				info, err := os.Stat("../../" + name)
				if err != nil {
					t.Errorf("docs/architecture.md names %s: %v", name, err)
					continue
				}
				source = ""
				if content, err := os.ReadFile("../../" + name); err == nil && !info.IsDir() {
					source = string(content)
				}
			case source != "":
				functions++
				if !regexp.MustCompile(`(?m)^func (\([^)]*\) )?` + name + `[\[(]`).MatchString(source) {
					t.Errorf("docs/architecture.md names the function %s after a file that does not have it", name)
				}
			}
		}
	}
	if paths < 100 || functions < 20 {
		t.Errorf("found %d paths and %d functions, want at least 100 and 20: does the page still have its tables?", paths, functions)
	}
}

func readDoc(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile("../../docs/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
