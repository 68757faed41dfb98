package e2e

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// Guarantee: the examples for CI are valid YAML, and run only scripts that TestGuides runs.
func TestExamplesForCI(t *testing.T) {
	content, err := os.ReadFile("../docs/ci.md")
	if err != nil {
		t.Fatal(err)
	}
	run := ""
	for _, block := range guideBlocks(t, "docs/ci.md", string(content)) {
		run += block.script
	}
	examples, scripts := 0, 0
	for _, m := range regexp.MustCompile("(?s)```yaml\n(.*?)\n```").FindAllStringSubmatch(string(content), -1) {
		examples++
		var parsed map[string]any
		if err := yaml.Unmarshal([]byte(m[1]), &parsed); err != nil || len(parsed) < 3 {
			t.Errorf("an example is not valid YAML: %v\n%s", err, m[1])
		}
		for _, script := range regexp.MustCompile(`sh \w+\.sh`).FindAllString(m[1], -1) {
			scripts++
			if !strings.Contains(run, "\n"+script+"\n") {
				t.Errorf("an example runs %q, which the page does not run", script)
			}
		}
		if bad := regexp.MustCompile(`(?m)^.*\bkeygate (config|spec|gateways) .*$`).FindString(m[1]); bad != "" {
			t.Errorf("an example has a command of its own, which is not run: %s", bad)
		}
	}
	if examples != 2 || scripts != 4 {
		t.Errorf("found %d examples with %d scripts, want 2 with 4", examples, scripts)
	}
}
