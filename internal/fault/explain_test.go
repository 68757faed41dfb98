package fault_test

import (
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/keygate/keygate/internal/fault"
)

// Guarantee: every error code, and every authentication code, is explained once.
func TestEveryCodeIsExplained(t *testing.T) {
	source, err := os.ReadFile("fault.go")
	if err != nil {
		t.Fatal(err)
	}
	for typ, explained := range map[string][]fault.Explanation{"Code": fault.Codes(), "AuthCode": fault.AuthCodes()} {
		var declared, got []string
		for _, m := range regexp.MustCompile(`(?m)^\t\w+ +`+typ+` += "(\w+)"$`).FindAllStringSubmatch(string(source), -1) {
			declared = append(declared, m[1])
		}
		for _, e := range explained {
			got = append(got, e.Code)
			if e.Meaning == "" || e.Remedy == "" || !e.Data && !e.Management || e.Status < 400 {
				t.Errorf("%s is not explained: %+v", e.Code, e)
			}
		}
		slices.Sort(declared)
		slices.Sort(got)
		if len(declared) == 0 || !slices.Equal(got, declared) {
			t.Errorf("%s: explained %q, want %q", typ, got, declared)
		}
	}
}
