package apikey_test

import (
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/fault"
)

// Guarantee: a scope is a word, or a word and a resource (contract, 4.2). A resource under
// which no request's path can be is refused.
func TestParseScope(t *testing.T) {
	for _, s := range []string{
		"read", "write", "admin", "read:orders", "admin:orders/items", "read:a.b/c-d_~", "read:caf%c3%a9", "read:%6frders", "read:a%20b", "read:v1.0/...",
		"read:" + strings.Repeat("a", 255),
	} {
		sc, err := apikey.ParseScope(s)
		if err != nil || sc.String() != s {
			t.Errorf("ParseScope(%q) = %q, %v; want it unchanged", s, sc, err)
		}
	}
	for _, s := range []string{
		"", "Read", "delete", "read ", ":orders", "read:", "read:/", "read:/orders", "read:orders/", "read:a//b", "read:.", "read:a/../b", "read:a/%2e%2E/b",
		"read:%2e", "read:a%2fb", "read:a%5Cb", "read:a\\b", "read:%", "read:a%4", "read:%zz", "read:%00", "read:a%0db", "read:a%7f", "read:{id}", "read:a b",
		"read:a?b", "read:a#b", "read:é", "read:" + strings.Repeat("a", 256),
	} {
		if _, err := apikey.ParseScope(s); fault.CodeOf(err) != fault.ValidationFailed {
			t.Errorf("ParseScope(%q): %v; want a validation error", s, err)
		}
	}
}
