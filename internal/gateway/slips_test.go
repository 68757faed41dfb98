package gateway_test

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
)

// slipFile is a valid file, in which the rows below make one slip each.
const slipFile = "gateway:\n  name: orders\n  max_body_bytes: 7\nroutes:\n  - path: /a\n    methods: [GET]\n"

func slip(old, new string) string { return strings.Replace(slipFile, old, new, 1) }

// utf16Text returns text in UTF-16, little-endian or big-endian.
func utf16Text(text string, big bool) string {
	var b strings.Builder
	for _, u := range utf16.Encode([]rune(text)) {
		pair := [2]byte{byte(u), byte(u >> 8)}
		if big {
			pair[0], pair[1] = pair[1], pair[0]
		}
		b.Write(pair[:])
	}
	return b.String()
}

// Guarantee: all valid YAML and JSON that people and tools write is accepted, and has its usual meaning.
func TestValidFormsAreTaken(t *testing.T) {
	for name, text := range map[string]string{
		"YAML 1.2":                 "%YAML 1.2\n---\n" + slipFile,
		"YAML 1.1":                 "%YAML 1.1 # comment\n# comment\n---\n" + slipFile,
		"YAML 1.2 with a mark":     "\ufeff%YAML 1.2\r\n---\r\n" + strings.ReplaceAll(slipFile, "\n", "\r\n"),
		"a mark":                   "\ufeff" + slipFile,
		"an end marker":            slipFile + "...\n",
		"CRLF":                     strings.ReplaceAll(slipFile, "\n", "\r\n"),
		"CR":                       strings.ReplaceAll(slipFile, "\n", "\r"),
		"7.0":                      slip("bytes: 7", "bytes: 7.0"),
		"7e0":                      slip("bytes: 7", "bytes: 7e0"),
		"JSON with a mark":         "\ufeff" + `{"gateway": {"name": "orders", "max_body_bytes": 7.0}, "routes": [{"path": "/a", "methods": ["GET"]}]}`,
		"JSON with trailing comma": `{"gateway": {"name": "orders", "max_body_bytes": 7,}, "routes": [{"path": "/a", "methods": ["GET",],},],}`,
		"an anchor":                slip("/a\n", "&p /a\n"),
		"a merge key":              slip("  - path: /a\n    methods: [GET]", "  - <<: {path: /x, methods: [GET]}\n    path: /a"),
		"a tab before a comment":   slip("orders", "orders\t# the orders"),
	} {
		d, err := gateway.ParseDocument([]byte(text))
		if err != nil {
			t.Errorf("%s: got %v, want it taken", name, err)
			continue
		}
		if d.Gateway.Name.Value != "orders" || d.Gateway.MaxBodyBytes.Value != 7 || len(d.Routes) != 1 || d.Routes[0].Path != "/a" {
			t.Errorf("%s: got %+v, want the same as of the plain file", name, d)
		}
	}
}

// Guarantee: the message about a common slip names the position, what is wrong there, and what to write.
func TestSlipsAreExplained(t *testing.T) {
	for _, c := range []struct{ name, text, at, want string }{
		{"YAML 1.3", "%YAML 1.3\n---\n" + slipFile, "1:1", "write %YAML 1.2"},
		{"two directives", "%YAML 1.2\n%YAML 1.2\n---\n" + slipFile, "2:1", "a second %YAML directive"},
		{"a directive without a document", "%YAML 1.2\n" + slipFile, "2:1", "begin with a line ---"},
		{"a template", "{% if x %}\nroutes: []\n", "1:2", "template"},
		{"a placeholder", slip("orders", "{{ name }}"), "2:10", "in quotes"},
		{"a tab as indentation", slip("  name", "\tname"), "2:1", "a tab is not allowed"},
		{"a tab after spaces", slip("  max", "\t max"), "3:1", "a tab is not allowed"},
		{"too little indentation", slip("  max", " max"), "3:2", "the indentation of this line (1 space)"},
		{"too much indentation", slip("  max", "    max"), "3:5", "the indentation of this line (4 spaces)"},
		{"an item out of line", slip("    methods", "   methods"), "6:4", "the indentation of this line (3 spaces)"},
		{"an unquoted colon", slip("orders", "orders: eu"), "2:15", "must be in quotes"},
		{"no space after a colon", slip("name: orders\n  max_body_bytes: 7", "name:orders"), "2:3", "a space after the colon"},
		{"no space after a dash", slip("  - path", "  -path"), "5:3", "write a space after the dash"},
		{"an alias as a star", "gateway:\n  cors: {origins: [*]}\nroutes: []\n", "2:21", "put it in quotes"},
		{"an at sign", slip("orders", "@orders"), "2:9", "begin with @: put it in quotes"},
		{"an open double quote", slip("orders", "\"orders"), "2:9", "close it with \""},
		{"an open single quote", slip("orders", "'orders"), "2:9", "close it with '"},
		{"an apostrophe", slip("orders", "'Bob's'"), "2:14", "write '' for '"},
		{"a backslash", slip("orders", `"C:\dir"`), "2:12", `write \\`},
		{"an open bracket", slip("[GET]", "[GET"), "7:1", "close the bracket of line 6, column 14 with ]"},
		{"a bracket too many", slip("[GET]", "[GET]]"), "6:19", "a ] too many"},
		{"braces in brackets", "routes: [{path: /a/{id}, methods: [GET]}]\n", "1:20", "in quotes"},
		{"a conflict of Git", "<<<<<<< HEAD\n" + slipFile + "=======\n>>>>>>> x\n", "1:1", "conflict marker of Git"},
		{"a second document", slipFile + "---\n" + slipFile, "7:1", "second document"},
		{"a duplicate", slipFile + "routes: []\n", "7:1", `"routes" is a duplicate`},
		{"NUL", slip("orders", "or\x00ders"), "2:11", "U+0000"},
		{"UTF-16 LE", "\xff\xfe" + utf16Text(slipFile, false), "1:1", "UTF-16"},
		{"UTF-16 BE", "\xfe\xff" + utf16Text(slipFile, true), "1:1", "UTF-16"},
		{"UTF-16 without a mark", utf16Text(slipFile, false), "1:1", "looks like UTF-16"},
		{"Latin-1", slip("orders", "caf\xe9"), "2:12", "'é' in Latin-1"},
		{"Windows-1252", slip("orders", "\x93orders\x94"), "2:9", "'“' in Windows-1252"},
		{"gzip", "\x1f\x8b\x08\x00", "1:1", "gzip"},
		{"a pointer of LFS", "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\n", "1:1", "Git LFS"},
		{"typographic quotes", slip("/a", "“/a”"), "5:11", "the character “ (U+201C) is a typographic quote: write \""},
		{"a no-break space", slip("  name", "\u00a0\u00a0name"), "2:1", "U+00A0"},
		{"an invisible space", slip("/a", "\u200b/a"), "5:11", "U+200B is an invisible space: remove it"},
		{"a mark in the middle", "# x\n\ufeff" + slipFile, "2:1", "U+FEFF"},
		{"yes", slip("max_body_bytes: 7", "allow_encoded_slashes: yes"), "3:26", "write true"},
		{"off", slip("max_body_bytes: 7", "cut_streams: off"), "3:16", "write false"},
		{"a quoted boolean", slip("max_body_bytes: 7", `cut_streams: "true"`), "3:16", "write true, without quotes"},
		{"a number with a zero", slip("bytes: 7", "bytes: 007"), "3:19", "decimal digits"},
		{"a number with a unit", slip("bytes: 7", "bytes: 1MB"), "3:19", "without a unit"},
		{"a quoted number", slip("bytes: 7", `bytes: "7"`), "3:19", "remove the quotes"},
		{"a number for a text", slip("orders", "42"), "2:9", "put it in quotes"},
		{"all methods", slip("[GET]", `["*"]`), "6:14", "list the methods"},
		{"methods in one text", slip("[GET]", `["GET, POST"]`), "6:14", "an item of its own"},
		{"JSON with a comment", "{\n  // routes\n  \"routes\": []\n}", "2:3", "JSON has no comments"},
		{"JSON with a later comment", "{\n  \"routes\": [] // none\n}", "2:16", "JSON has no comments"},
		{"JSON without a comma", "{\"gateway\": {\"name\": \"x\"}\n \"routes\": []}", "2:2", "a comma is missing"},
		{"JSON without a colon", `{"gateway" {"name": "x"}, "routes": []}`, "1:12", "a colon is missing"},
		{"JSON with a backslash", `{"gateway": {"name": "C:\dir"}, "routes": []}`, "1:25", `write \\`},
		{"JSON that ends early", `{"routes": [`, "1:13", "close the [ of line 1, column 12 with ]"},
		{"JSON with a wrong bracket", `{"routes": [}`, "1:13", "write ]"},
		{"JSON twice", "{\"routes\": []}\n{\"routes\": []}", "2:1", "send one value"},
		{"JSON with CR", "{\r\"gateway\": {\r \"timeot\": \"5s\"},\r\"routes\": []}", "3:2", "is not a field"},
	} {
		_, err := gateway.ParseDocument([]byte(c.text))
		var bad *fault.Error
		if !errors.As(err, &bad) {
			t.Errorf("%s: got %v, want a validation error", c.name, err)
			continue
		}
		line, column, _ := strings.Cut(c.at, ":")
		want := "line " + line + ", column " + column + ": "
		found := false
		for _, p := range fault.ProblemsOf(err) {
			found = found || strings.HasPrefix(p.Message, want) && strings.Contains(p.Message, c.want)
		}
		if !found {
			t.Errorf("%s: got %+v, want %q with %q", c.name, fault.ProblemsOf(err), want, c.want)
		}
	}
}

// Guarantee: every mistake of every route of a file is reported at once, in the order of the file.
func TestAllMistakesOfRoutesAreReported(t *testing.T) {
	_, err := gateway.ParseDocument([]byte(`routes:
  - {path: /ok, methods: [GET]}
  - {path: /ok, methods: [GET]}
  - {path: a, methods: [get, POST, POST], rate_limit: {burst: 10, daily: 1/s}, auth: no}
  - {path: 7, methods: GET}
  - {methods: [CONNECT, "*"], owner: x}
`))
	var got []string
	for _, p := range fault.ProblemsOf(err) {
		got = append(got, p.Field)
	}
	want := "routes[1].methods routes[2].path routes[2].methods routes[2].rate_limit.burst routes[2].rate_limit.daily routes[2].auth " +
		"routes[3].path routes[3].methods routes[4].path routes[4].methods routes[4].owner"
	if strings.Join(got, " ") != want {
		t.Errorf("got problems of %s\nwant %s", strings.Join(got, " "), want)
	}
}
