// Package manual is the documentation in the binary: the pages of the directory docs, parsed into blocks, which
// the command line prints and the dashboard shows. HTML and comments of the pages are left out.
package manual

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/keygate/keygate/docs"
)

// Repository is the address of the project's files. Links that lead out of the manual are below it.
const Repository = "https://github.com/keygate/keygate/blob/main/"

// Page is one page.
type Page struct {
	Name   string  `json:"name"` // of its file, without .md
	Title  string  `json:"title"`
	Blocks []Block `json:"blocks"` // without the title
}

// Kind is the kind of a block.
type Kind string

// The kinds of blocks.
const (
	Heading   Kind = "heading"
	Paragraph Kind = "paragraph"
	Code      Kind = "code"
	List      Kind = "list"
	Table     Kind = "table"
	Quote     Kind = "quote"
)

// Block is a part of a page. Fields that its kind does not have are empty.
type Block struct {
	Kind     Kind       `json:"kind"`
	Level    int        `json:"level,omitempty"`    // of a heading, from 2
	Anchor   string     `json:"anchor,omitempty"`   // of a heading, unique in its page
	Language string     `json:"language,omitempty"` // of code; "" if it has none
	Text     string     `json:"text,omitempty"`     // of code, with a line feed after each line
	Spans    []Span     `json:"spans,omitempty"`    // of a heading or paragraph
	Ordered  bool       `json:"ordered,omitempty"`  // whether a list is numbered
	Items    [][]Block  `json:"items,omitempty"`    // of a list
	Rows     [][][]Span `json:"rows,omitempty"`     // of a table, the first with the names of the columns
	Blocks   []Block    `json:"blocks,omitempty"`   // of a quote
}

// Span is text of one style. At most one of Page and URL is set; then the text is a link.
type Span struct {
	Text     string `json:"text"`
	Code     bool   `json:"code,omitempty"`
	Strong   bool   `json:"strong,omitempty"`
	Emphasis bool   `json:"emphasis,omitempty"`
	Page     string `json:"page,omitempty"`   // a page of the manual
	Anchor   string `json:"anchor,omitempty"` // a heading of Page; "" for its beginning
	URL      string `json:"url,omitempty"`    // an address with the scheme https
}

// Manual is all pages, in the order of their names.
type Manual struct {
	Pages []Page `json:"pages"`
}

// Read parses the manual of this binary, which takes less than 0.1 s. It is not kept, since a server needs it once at most.
func Read() *Manual {
	m, err := parse(docs.Pages)
	if err != nil {
		panic("manual: " + err.Error()) // the tests parse the same files
	}
	return m
}

// parse reads every .md file of the root of files.
func parse(files fs.FS) (*Manual, error) {
	paths, err := fs.Glob(files, "*.md")
	if err != nil {
		return nil, err
	}
	slices.Sort(paths)
	m := &Manual{Pages: make([]Page, 0, len(paths))}
	for _, path := range paths {
		source, err := fs.ReadFile(files, path)
		if err != nil {
			return nil, err
		}
		page, err := parsePage(strings.TrimSuffix(path, ".md"), source, paths)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		m.Pages = append(m.Pages, page)
	}
	return m, nil
}

// Page returns the page with a name, which may end in .md; nil if there is none.
func (m *Manual) Page(name string) *Page {
	name = strings.TrimSuffix(name, ".md")
	for i := range m.Pages {
		if m.Pages[i].Name == name {
			return &m.Pages[i]
		}
	}
	return nil
}

// Plain returns the text of spans without styles.
func Plain(spans []Span) string {
	var b strings.Builder
	for _, s := range spans {
		b.WriteString(s.Text)
	}
	return b.String()
}
