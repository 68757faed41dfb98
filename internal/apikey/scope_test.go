package apikey_test

import (
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/fault"
)

// Guarantee: a scope is a word, or a word and a resource (contract, 4.2). A resource under
// which no request's path can be is refused.
func TestParseOneScope(t *testing.T) {
	for _, s := range []string{
		"read", "write", "admin", "read:orders", "admin:orders/items", "read:a.b/c-d_~", "read:caf%c3%a9", "read:%6frders", "read:a%20b", "read:v1.0/...",
		"read:a%2cb", "read:a;b=c", "read:projects/group%2Fname", "read:a%2fb", "read:a%5Cb", "read:" + strings.Repeat("a", 255),
	} {
		sc, err := apikey.ParseScopes(s)
		if err != nil || len(sc) != 1 || sc.String() != s {
			t.Errorf("ParseScopes(%q) = %q, %v; want it unchanged", s, sc, err)
		}
	}
	for _, s := range []string{
		"", "Read", "delete", "read ", ":orders", "read:", "read:/", "read:/orders", "read:orders/", "read:a//b", "read:.", "read:a/../b", "read:a/%2e%2E/b",
		"read:%2e", "read:a%2f..", "read:a/..%5Cb", "read:a\\b", "read:%", "read:a%4", "read:%zz", "read:%00", "read:a%0db", "read:a%7f", "read:{id}", "read:a b",
		"read:a?b", "read:a#b", "read:é", "read:a,b", "read:a*", "read:*", "*", "read\x00", "read:" + strings.Repeat("a", 256),
	} {
		if sc, err := apikey.ParseScopes(s); fault.CodeOf(err) != fault.ValidationFailed || sc != nil {
			t.Errorf("ParseScopes(%q) = %v, %v; want a validation error", s, sc, err)
		}
	}
}

// Guarantee: a key has 1 to 16 different scopes.
func TestParseSeveralScopes(t *testing.T) {
	numbered := func(n int) string {
		var b strings.Builder
		for i := range n {
			b.WriteString(" read:" + strings.Repeat("a", i+1))
		}
		return b.String()[1:]
	}
	for _, s := range []string{"read:orders write:customers", "read read:orders", "admin:a admin:b", numbered(apikey.MaxScopes)} {
		if sc, err := apikey.ParseScopes(s); err != nil || sc.String() != s {
			t.Errorf("ParseScopes(%q) = %q, %v; want it unchanged", s, sc, err)
		}
	}
	for s, want := range map[string]string{
		numbered(apikey.MaxScopes + 1):      "at most 16",
		"read:orders write read:orders":     "has read:orders twice",
		"read:orders read:%6Frders":         "has read:%6Frders twice",
		"read:a%2Fb read:a%2fb":             "has read:a%2fb twice",
		"read:orders delete:orders":         "must be read, write, admin",
		strings.Repeat("read ", 1<<18) + "": "",
	} {
		var e *fault.Error
		if _, err := apikey.ParseScopes(s); !errors.As(err, &e) || e.Field != "scope" || !strings.Contains(e.Message, want) {
			t.Errorf("ParseScopes(%.40q): got %v; want an error of the field scope that contains %q", s, err, want)
		}
	}
}

// Guarantee: the message about a scope that is written as in other products shows the right form,
// and no form is guessed if there is none.
func TestRightFormOfScopes(t *testing.T) {
	for s, want := range map[string]string{
		"read:orders,write:customers":  "read:orders write:customers",
		"read:orders, write:customers": "read:orders write:customers",
		"read,write":                   "read write",
		"read:orders,customers":        "read:orders read:customers",
		"read:orders  write:customers": "read:orders write:customers",
		" read:orders":                 "read:orders",
		"read:orders ":                 "read:orders",
		"read:orders\twrite":           "read:orders write",
		"read:orders\n":                "read:orders",
		"read:orders\u00a0write:x":     "read:orders write:x",
		"read: orders":                 "read:orders",
		"read:*":                       "read",
		"read:orders/*":                "read:orders",
		"read:orders/**":               "read:orders",
		"read:orders*":                 "read:orders",
		"read:orders/{id}":             "read:orders",
		"read:orders/{id}/*":           "read:orders",
		"read:/orders":                 "read:orders",
		"read:orders/":                 "read:orders",
		"read:orders?limit=1":          "read:orders",
		"read:orders#top":              "read:orders",
		`read:orders\items`:            "read:orders/items",
		"READ:orders":                  "read:orders",
		"orders:read":                  "read:orders",
		"read:ord\x00ers":              "read:orders",
		"read:a,read:a":                "read:a",
		"*":                            "",
		"read:*/items":                 "",
		"read:{tenant}/items":          "",
		"delete:orders":                "",
		"read:a/../b":                  "",
		strings.Repeat("a,", 3000):     "",
	} {
		_, err := apikey.ParseScopes(s)
		var e *fault.Error
		if !errors.As(err, &e) {
			t.Errorf("ParseScopes(%q): got no error", s)
			continue
		}
		_, form, _ := strings.Cut(e.Message, ": write ")
		if quoted := strings.Trim(form, `"`); quoted != want {
			t.Errorf("ParseScopes(%q): message %q; want it to show %q", s, e.Message, want)
		}
	}
}

// Guarantee: several scopes allow what any one of them allows, and nothing else.
func TestScopesAllowWhatOneAllows(t *testing.T) {
	one := rapid.Custom(func(t *rapid.T) apikey.Scope {
		return apikey.Scope{
			Word:     rapid.SampledFrom([]apikey.Word{apikey.Read, apikey.Write, apikey.Admin}).Draw(t, "word"),
			Resource: rapid.SampledFrom([]string{"", "a", "a/b", "ab"}).Draw(t, "resource"),
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		all := apikey.Scopes(rapid.SliceOfN(one, 1, 4).Draw(t, "scopes"))
		method := rapid.SampledFrom([]string{"GET", "HEAD", "POST", "DELETE", "PURGE"}).Draw(t, "method")
		path := rapid.SampledFrom([]string{"/", "/a", "/a/", "/a/b", "/a/b/c", "/ab", "/abc", "/b"}).Draw(t, "path")
		want, word := false, apikey.Word(0)
		for _, s := range all {
			want, word = want || s.Allows(method, path), max(word, s.Word)
		}
		if got := all.Allows(method, path); got != want || all.Word() != word {
			t.Fatalf("%q: Allows(%s, %s) is %v and Word %v; want %v and %v", all, method, path, got, all.Word(), want, word)
		}
	})
}

// Guarantee: one scope is parsed as a list of one is, and a text with white space is none.
func TestParseScope(t *testing.T) {
	for _, text := range []string{"read", "admin", "write:orders/items", "reed", "", "read ", " read", "read\n", "read write", "read:", "read:a*", "READ"} {
		one, ok := apikey.ParseScope(text)
		list, err := apikey.ParseScopes(text)
		if want := err == nil && len(list) == 1; ok != want || ok && one != list[0] {
			t.Errorf("%q: got %v, %v; as a list %v, %v", text, one, ok, list, err)
		}
	}
}
