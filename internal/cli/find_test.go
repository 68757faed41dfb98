package cli

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// Guarantee: a text that looks like an identifier is never looked up by name, and no other text is
// taken for an identifier.
func TestIdentifiersAreTold(t *testing.T) {
	const text = "01jz8y5c3te9b8r2m6q4v7x0aa"
	for s, want := range map[string]bool{
		"gw_" + text: true, "key_" + text: true, "rt_" + text: true, "wh_" + text: true, "acct_" + text: true,
		"": false, "gw_": false, "gw_1": false, "gw_" + text + "a": false, "gw_" + strings.ToUpper(text): false,
		"GW_" + text: false, "x_" + text: false, text: false, "kg_4tQx9Z": false, "/orders": false,
	} {
		if got := isID(s); got != want {
			t.Errorf("isID(%q) = %v, want %v", s, got, want)
		}
	}
}

// Guarantee: of a whole key, even of a key with a mistake, only the prefix is looked up.
func TestWholeKeyIsLookedUpByItsPrefix(t *testing.T) {
	for ref, want := range map[string]string{
		"kg_4tQx9Z": "kg_4tQx9Z", "kga_4tQx9Z": "kga_4tQx9Z", strings.Replace(keyA, "kga_", "kg_", 1): "kg_AAAAAA", keyA: "kga_AAAAAA", keyA[:30]: "kga_AAAAAA",
		"kg_4tQx9": "", "kg_4tQx9Zz": "", "kg_mobile-app": "", "kg_": "", "mobile": "", "key_4tQx9Z": "",
	} {
		if got, ok := keyPrefix(ref); got != want || ok != (want != "") {
			t.Errorf("keyPrefix(%q) = %q, %v, want %q", ref, got, ok, want)
		}
	}
}

// Guarantee: an ambiguous name lists at most ten candidates and says how many more there are.
// Text that a tenant chose cannot control the terminal.
func TestAmbiguousNameListsTenCandidates(t *testing.T) {
	var found []match
	for i := range 13 {
		found = append(found, match{fmt.Sprintf("gw_%d", i), []string{"a\x1bb"}})
	}
	_, err := only("gateway", "a", found, "")
	var ambiguous *ambiguousError
	if !errors.As(err, &ambiguous) || strings.Count(err.Error(), "gw_") != 10 || !strings.HasSuffix(err.Error(), "\n  and 3 more") || strings.Contains(err.Error(), "\x1b") {
		t.Errorf("got %q, want ten candidates, 3 more, and no control characters", err)
	}
}

// Guarantee: a name is looked for in a bounded number of records.
func TestSearchIsBounded(t *testing.T) {
	read := 0
	endless := func(yield func(int, error) bool) {
		for yield(read, nil) {
			read++
		}
	}
	_, err := search("gateway", endless, func(*int) bool { return false }, func(*int) match { return match{} })
	var usage *usageError
	if !errors.As(err, &usage) || read > maxSearched+1 {
		t.Errorf("got error %v after %d records, want a usage error after %d", err, read, maxSearched)
	}
}
