package helm

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// Guarantee: every manifest in docs/kubernetes.md is valid, and the chart takes all values there.
func TestManifestsOfThePageAreValid(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/kubernetes.md")
	if err != nil {
		t.Fatal(err)
	}
	values, manifests := 0, 0
	for _, block := range regexp.MustCompile("(?s)\n```yaml\n(.*?)\n```\n").FindAllStringSubmatch(string(page), -1) {
		if strings.HasPrefix(block[1], "# values.yaml\n") {
			values++
			objects(t, release{values: parse(t, block[1])})
			continue
		}
		for _, o := range decode(t, "docs/kubernetes.md", block[1]) {
			if o["apiVersion"] == "postgresql.cnpg.io/v1" {
				continue // testdata/schemas has none of it
			}
			manifests++
			if err := check(t, o); err != nil {
				t.Errorf("%v\n%s", err, block[1])
			}
		}
	}
	if values < 5 || manifests < 2 {
		t.Errorf("the page has %d blocks of values and %d manifests", values, manifests)
	}
}
