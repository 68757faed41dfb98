package cli

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/manual"
)

// Guarantee: docs/cli.md names every command.
func TestGuideNamesEveryCommand(t *testing.T) {
	guide := strings.ReplaceAll(readDoc(t, "cli.md"), `\|`, "|")
	for _, noun := range Root(&System{}).Commands() {
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

// Guarantee: README.md has at most 150 lines, and leads to every page of docs.
func TestReadmeIsShort(t *testing.T) {
	content, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(string(content), "\n"); lines > 150 {
		t.Errorf("README.md has %d lines, want at most 150", lines)
	}
	for _, page := range manual.Read().Pages {
		if !strings.Contains(string(content), "(docs/"+page.Name+".md)") {
			t.Errorf("README.md has no link to docs/%s.md", page.Name)
		}
	}
}

// Guarantee: every section of docs/performance.md with a table of figures says when they were measured, and none says
// that it has no figures yet.
func TestFiguresHaveDates(t *testing.T) {
	figures, date := regexp.MustCompile(`(?m)^\|.*\| +[\d.,]+ (\w+ )?\|`), regexp.MustCompile(`\b\d+ (?:January|February|March|April|May|June|July|August|September|October|November|December) 20\d\d\b`)
	page, dated := readDoc(t, "performance.md"), 0
	for _, section := range regexp.MustCompile(`(?m)^##+ `).Split(page, -1)[1:] {
		title, _, _ := strings.Cut(section, "\n")
		if figures.MatchString(section) {
			if dated++; !date.MatchString(section) {
				t.Errorf("docs/performance.md, %s: the figures have no date", title)
			}
		}
	}
	if dated < 15 {
		t.Errorf("found figures in %d sections, want at least 15", dated)
	}
	if m := regexp.MustCompile(`(?i)no figures?\b.*\byet|not .*\byet\b\.`).FindString(page); m != "" {
		t.Errorf("docs/performance.md says %q", m)
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
		// Packages that only help the tests of another package need no line, nor do programs.
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
			case regexp.MustCompile(`^(internal|cmd|client|conformance|e2e|wire|bench|tools|api|docs)(/[\w./]+)?$|^\.golangci\.yml$`).MatchString(name):
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

// Guarantee: docs/security.md names a test for each threat, and every test that it names exists in
// the package that it names.
func TestDocsOfSecurityNameTestsThatExist(t *testing.T) {
	page := readDoc(t, "security.md")
	row := regexp.MustCompile("(?m)^\\|[^|\n]*\\|[^|\n]*\\|([^|\n]*)\\|$")
	sources, threats, tests := map[string]string{}, 0, 0
	for _, m := range row.FindAllStringSubmatch(page, -1) {
		cell := strings.TrimSpace(m[1])
		if cell == "Test" || strings.Trim(cell, "-") == "" {
			continue
		}
		threats++
		folder, named := "", 0
		for _, name := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cell, -1) {
			if !regexp.MustCompile(`^(Test|Fuzz)[A-Z]\w*$`).MatchString(name[1]) {
				folder = packageFolder(t, name[1])
				continue
			}
			if _, ok := sources[folder]; !ok {
				sources[folder] = testSource(t, folder)
			}
			if !strings.Contains(sources[folder], "\nfunc "+name[1]+"(") {
				t.Errorf("docs/security.md names the test %s, which %s does not have", name[1], folder)
			}
			named++
		}
		if tests += named; named == 0 {
			t.Errorf("docs/security.md names no test in %q", m[0])
		}
	}
	if threats < 40 || tests < 80 {
		t.Errorf("found %d threats and %d tests, want at least 40 and 80: does the page still have its tables?", threats, tests)
	}
}

// Guarantee: every test that docs/limits.md names exists.
func TestDocsOfLimitsNameTestsThatExist(t *testing.T) {
	exists := map[string]bool{}
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == ".git" || d.Name() == "node_modules"):
			return filepath.SkipDir
		case !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		content, err := os.ReadFile(path)
		for _, m := range regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`).FindAllStringSubmatch(string(content), -1) {
			exists[m[1]] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`((?:Test|Fuzz)\\w+)`").FindAllStringSubmatch(readDoc(t, "limits.md"), -1)
	for _, m := range named {
		if !exists[m[1]] {
			t.Errorf("docs/limits.md names the test %s, which does not exist", m[1])
		}
	}
	if len(named) < 10 {
		t.Errorf("found %d tests in docs/limits.md, want at least 10: does the page still have its tables?", len(named))
	}
}

// packageFolder returns the folder of a package that docs/security.md names: one of the
// repository's root, or one below internal.
func packageFolder(t *testing.T, name string) string {
	t.Helper()
	for _, folder := range []string{"../../" + name, "../" + name} {
		if info, err := os.Stat(folder); err == nil && info.IsDir() {
			return folder
		}
	}
	t.Fatalf("docs/security.md names the package %s, which does not exist", name)
	return ""
}

// testSource returns the text of all tests of a package.
func testSource(t *testing.T, folder string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(content)
	}
	return all.String()
}

func readDoc(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile("../../docs/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
