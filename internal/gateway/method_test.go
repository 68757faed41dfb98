package gateway_test

import (
	"slices"
	"testing"

	"github.com/keygate/keygate/internal/gateway"
)

// TestMethodWarning: an unusual method is a warning, and if one slip makes it of a usual one, the warning names that.
func TestMethodWarning(t *testing.T) {
	for method, meant := range map[string]string{
		"POSTT": "POST", "GTE": "GET", "GE": "GET", "GEET": "GET", "PTU": "PUT", "DELTE": "DELETE", "PACTH": "PATCH", "OPTION": "OPTIONS",
		"HAED": "HEAD", "XGET": "GET", "PROFIND": "PROPFIND", "POSY": "POST",
	} {
		if got, want := gateway.MethodWarning(method), method+" is not a usual method: did you mean "+meant+"?"; got != want {
			t.Errorf("warning of %s: %q, want %q", method, got, want)
		}
	}
	for _, method := range []string{"X", "FETCH", "REMOVE", "SPAWN"} {
		if got, want := gateway.MethodWarning(method), method+" is not a usual method: only requests that are sent with it match"; got != want {
			t.Errorf("warning of %s: %q, want %q", method, got, want)
		}
	}
	for _, method := range []string{"GET", "POST", "QUERY", "PROPFIND", "PURGE", "M-SEARCH", "VERSION-CONTROL"} {
		if got := gateway.MethodWarning(method); got != "" {
			t.Errorf("warning of %s: %q, want none", method, got)
		}
	}
}

// TestMethodWarningsOfFile: the routes of a configuration file with unusual methods stand, with one warning for each kind.
func TestMethodWarningsOfFile(t *testing.T) {
	d, err := gateway.ParseDocument([]byte("routes:\n  - path: /a\n    methods: [GET, POSTT]\n  - path: /b\n    methods: [POSTT]\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"routes[0].methods (/a) POSTT is not a usual method: did you mean POST? (2 of these)"}
	if got := d.Warnings(); !slices.Equal(got, want) {
		t.Errorf("warnings %q, want %q", got, want)
	}
}
