// Package words holds the glossary of CONTRIBUTING.md: words that the tree does not use, because another one
// stands for what they would mean.
package words

import (
	"go/scanner"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"
)

// kind is where a word stands.
type kind int

const (
	identifier kind = 1 << iota // a camel-case part of a Go identifier
	comment                     // a Go comment
	text                        // a string of Go, a line of Markdown or of the dashboard's source

	anywhere = identifier | comment | text
)

// banned are the words that are not used, in the singular.
var banned = []struct {
	word  string
	say   string
	where kind
	allow []string // beginnings of paths, each with a reason
}{
	{"driver", "engine (of a protocol), owner (of an http2.Conn)", anywhere, []string{
		"internal/store/",    // database/sql and pgx call themselves drivers
		"web/",               // chromium-driver
		"docs/adr/",          // decisions, in the words of their time
		"docs/dependencies/", // of databases
		"Makefile", "tools/words/",
	}},
	{"patience", "timeout, deadline", anywhere, []string{"tools/words/", "docs/adr/"}},
	{"lane", "shard", anywhere, []string{"tools/words/", "docs/adr/"}},
	{"place", "slot (one of a bounded number), position (of a document), order", identifier, []string{
		"internal/gateway/tree",      // an edit in place
		"client/record.gen.go",       // a part of a request, as the contract names the field
		"internal/cli/validation.go", // the same
		"tools/words/",
	}},
	{"loop", "periodic work, service", identifier, []string{
		"bench/peers/",              // a closed loop, the field's term for a kind of load
		"internal/accesslog/reason", // a forwarding loop
		"internal/requestlog/",      // the same
		"internal/proxy/",           // the same
		"tools/words/",
	}},
}

// parts splits a text into its words, at everything that is not a letter, and at capitals.
func parts(s string) (words []string) {
	letters := []rune(s)
	var word []rune
	end := func() {
		if len(word) > 0 {
			words = append(words, strings.ToLower(string(word)))
			word = nil
		}
	}
	for i, r := range letters {
		if !unicode.IsLetter(r) {
			end()
			continue
		}
		if unicode.IsUpper(r) && i > 0 {
			next := i+1 < len(letters) && unicode.IsLower(letters[i+1])
			if unicode.IsLower(letters[i-1]) || unicode.IsUpper(letters[i-1]) && next {
				end()
			}
		}
		word = append(word, r)
	}
	end()
	return words
}

// found is called for each piece of a file.
type found func(line int, k kind, piece string)

func readGo(name string, content []byte, each found) {
	set := token.NewFileSet()
	file := set.AddFile(name, -1, len(content))
	var s scanner.Scanner
	s.Init(file, content, nil, scanner.ScanComments)
	for {
		at, tok, literal := s.Scan()
		switch tok {
		case token.EOF:
			return
		case token.IDENT:
			if literal != "Loop" { // testing.B.Loop
				each(set.Position(at).Line, identifier, literal)
			}
		case token.COMMENT:
			each(set.Position(at).Line, comment, literal)
		case token.STRING:
			each(set.Position(at).Line, text, literal)
		}
	}
}

// Guarantee: CONTRIBUTING.md, one word has one meaning in the whole tree.
func TestWordsOfTheGlossary(t *testing.T) {
	root := filepath.Join("..", "..")
	glossary, err := os.ReadFile(filepath.Join(root, "CONTRIBUTING.md"))
	if err != nil {
		t.Fatal(err)
	}
	words := map[string]int{} // to the index in banned
	for i, b := range banned {
		words[b.word], words[b.word+"s"] = i, i
		listed := false
		for line := range strings.Lines(string(glossary)) {
			columns := strings.Split(line, "|")
			listed = listed || len(columns) > 4 && strings.Contains(columns[3], b.word)
		}
		if !listed {
			t.Errorf("%q is in the column Not of no row of the glossary", b.word)
		}
	}
	list := exec.CommandContext(t.Context(), "git", "ls-files", "-co", "--exclude-standard", "*.go", "*.md", "web/src/*.ts", "web/src/*.tsx")
	list.Dir = root
	files, err := list.Output()
	if err != nil {
		t.Skip("this is no git checkout: ", err)
	}
	for name := range strings.Lines(string(files)) {
		name = strings.TrimSuffix(name, "\n")
		content, err := os.ReadFile(filepath.Join(root, name))
		if os.IsNotExist(err) || name == "CONTRIBUTING.md" || name == "CHANGELOG.md" { // removed; the glossary; what was
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		check := func(line int, k kind, piece string) {
			for _, word := range parts(piece) {
				i, ok := words[word]
				if !ok || banned[i].where&k == 0 || allowed(banned[i].allow, name) {
					continue
				}
				t.Errorf("%s:%d: %q in %q: say %s", name, line, word, strings.TrimSpace(piece), banned[i].say)
			}
		}
		if strings.HasSuffix(name, ".go") {
			readGo(name, content, check)
			continue
		}
		number := 0
		for line := range strings.Lines(string(content)) {
			number++
			check(number, text, line)
		}
	}
}

// reference is a file or directory of the tree in backticks, and maybe the name of something in it.
var reference = regexp.MustCompile("`((?:internal|client|web|docs|e2e|tools|cmd|bench|deploy|api|wire)/[A-Za-z0-9_][A-Za-z0-9_./-]*)`(?: `([A-Za-z]+)`)?")

// Guarantee: the walks and recipes of CONTRIBUTING.md lead to files, and to names in them, that exist.
func TestWalksAndRecipesLeadSomewhere(t *testing.T) {
	root := filepath.Join("..", "..")
	guide, err := os.ReadFile(filepath.Join(root, "CONTRIBUTING.md"))
	if err != nil {
		t.Fatal(err)
	}
	all := reference.FindAllStringSubmatch(string(guide), -1)
	if len(all) < 50 {
		t.Fatalf("found %d references, want at least 50", len(all))
	}
	for _, m := range all {
		path, name := filepath.Join(root, m[1]), m[2]
		info, err := os.Stat(path)
		if err != nil {
			t.Errorf("%s does not exist", m[1])
			continue
		}
		if name == "" || info.IsDir() && strings.Contains(m[1], "test") {
			continue
		}
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !regexp.MustCompile(`\b` + name + `\b`).Match(content) {
			t.Errorf("%s has no %s", m[1], name)
		}
	}
}

func allowed(beginnings []string, name string) bool {
	for _, b := range beginnings {
		if strings.HasPrefix(name, b) {
			return true
		}
	}
	return false
}
