package cli

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/spf13/cobra"
)

// pages returns the paths of all Markdown files of the repository, with their text.
func pages(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == ".git" || d.Name() == "node_modules" || d.Name() == "testdata"):
			return filepath.SkipDir
		case filepath.Ext(path) != ".md":
			return nil
		}
		content, err := os.ReadFile(path)
		found[path] = string(content)
		return err
	})
	if err != nil || len(found) < 25 {
		t.Fatalf("found %d pages, %v; want at least 25", len(found), err)
	}
	return found
}

// prose returns the lines of a page. The lines of code blocks are empty.
func prose(page string) []string {
	lines, inBlock := strings.Split(page, "\n"), false
	for i, line := range lines {
		fence := strings.HasPrefix(strings.TrimLeft(line, " "), "```")
		if fence {
			inBlock = !inBlock
		}
		if inBlock || fence {
			lines[i] = ""
		}
	}
	return lines
}

// anchors returns the anchors that GitHub gives to the headings of a page.
func anchors(page string) map[string]bool {
	found := map[string]bool{}
	for _, line := range prose(page) {
		text := strings.TrimLeft(line, "#")
		if text == line || !strings.HasPrefix(text, " ") {
			continue
		}
		text = regexp.MustCompile(`\]\([^)]*\)`).ReplaceAllString(text, "")
		found[strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
				return unicode.ToLower(r)
			default:
				return -1
			}
		}, strings.TrimSpace(text))] = true
	}
	return found
}

// Guarantee: every relative link of a page leads to a file of the repository, and its anchor
// to a heading.
func TestLinksOfPagesWork(t *testing.T) {
	link, code := regexp.MustCompile(`\]\(([^)\s]+)\)|(?:href|src)="([^"]+)"`), regexp.MustCompile("`[^`]*`")
	all, links, withAnchor := pages(t), 0, 0
	for path, page := range all {
		for n, line := range prose(page) {
			for _, m := range link.FindAllStringSubmatch(code.ReplaceAllString(line, ""), -1) {
				target, anchor, hasAnchor := strings.Cut(m[1]+m[2], "#")
				if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
					continue
				}
				links++
				file := path
				if target != "" {
					file = filepath.Join(filepath.Dir(path), filepath.FromSlash(target))
				}
				if _, err := os.Stat(file); err != nil {
					t.Errorf("%s:%d: the link %s leads nowhere: %v", path, n+1, m[1]+m[2], err)
					continue
				}
				if !hasAnchor {
					continue
				}
				if withAnchor++; !anchors(all[file])[anchor] {
					t.Errorf("%s:%d: %s has no heading %s", path, n+1, file, anchor)
				}
			}
		}
	}
	if links < 50 || withAnchor < 5 {
		t.Errorf("found %d links, %d with an anchor; want at least 50 and 5", links, withAnchor)
	}
}

// Guarantee: .well-known/security.txt has what RFC 9116, section 2.5, requires: a contact and the end of its validity,
// once and in the right form, and every address in it is an https URL.
func TestSecurityFile(t *testing.T) {
	content, err := os.ReadFile("../../.well-known/security.txt")
	if err != nil {
		t.Fatal(err)
	}
	fields := map[string][]string{}
	for line := range strings.Lines(string(content)) {
		line = strings.TrimRight(line, "\n")
		if strings.HasPrefix(line, "#") {
			continue
		}
		name, value, found := strings.Cut(line, ": ")
		if !found {
			t.Errorf("the line %q is not NAME: VALUE", line)
		}
		if fields[name] = append(fields[name], value); (name == "Contact" || name == "Policy") && !strings.HasPrefix(value, "https://") {
			t.Errorf("%s is %q, want an https URL", name, value)
		}
	}
	if len(fields["Contact"]) == 0 || len(fields["Expires"]) != 1 {
		t.Fatalf("got the fields %q, want Contact, and Expires once", fields)
	}
	if _, err := time.Parse(time.RFC3339, fields["Expires"][0]); err != nil {
		t.Errorf("Expires: %v", err)
	}
}

// Guarantee: no command of a page or of the demo's tour that may be pasted with others stops
// to ask, which would take the next pasted line for the answer.
func TestPastedCommandsDoNotAsk(t *testing.T) {
	asks := commandsThatAsk(Root(&System{}))
	if len(asks) < 5 {
		t.Fatalf("only %q ask", asks)
	}
	texts := pages(t)
	tour, err := os.ReadFile("demo/tour.go")
	if err != nil {
		t.Fatal(err)
	}
	texts["the tour"] = strings.ReplaceAll(string(tour), "%[8]s ", "./bin/keygate ")
	if !strings.Contains(texts["the tour"], "\n./bin/keygate keys revoke ") {
		t.Fatal("demo/tour.go has no command to revoke a key: is the eighth value still the program?")
	}
	for path, page := range texts {
		for n, line := range strings.Split(page, "\n") {
			for _, name := range asks {
				if command := regexp.MustCompile(`^\s*(\S*/)?` + name + ` `); command.MatchString(line) &&
					!strings.Contains(line, " --yes") && !strings.Contains(line, " -y") && !strings.Contains(line, " --dry-run") {
					t.Errorf("%s:%d: add --yes to %s", path, n+1, strings.TrimSpace(line))
				}
			}
		}
	}
}

// commandsThatAsk returns the paths of the commands below c that have --yes.
func commandsThatAsk(c *cobra.Command) (paths []string) {
	for _, sub := range c.Commands() {
		paths = append(paths, commandsThatAsk(sub)...)
	}
	if c.Flags().Lookup("yes") != nil {
		paths = append(paths, c.CommandPath())
	}
	return paths
}
