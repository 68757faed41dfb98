package cli

import (
	"os"
	"strings"
	"testing"
)

// Guarantee: docs/cli.md names every command.
func TestGuideNamesEveryCommand(t *testing.T) {
	content, err := os.ReadFile("../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	guide := strings.ReplaceAll(string(content), `\|`, "|")
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
