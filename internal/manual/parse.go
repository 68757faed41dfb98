package manual

import (
	"errors"
	"fmt"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	extast "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
)

// parser turns the nodes of one page into blocks.
type parser struct {
	name    string   // of the page
	files   []string // of all pages
	source  []byte
	anchors map[string]int // how often the page has each
}

// parsePage parses Markdown as GitHub does, as far as the pages use it (CommonMark and tables).
func parsePage(name string, source []byte, files []string) (Page, error) {
	p := parser{name: name, files: files, source: source, anchors: map[string]int{}}
	root := goldmark.New(goldmark.WithExtensions(extension.Table)).Parser().Parse(text.NewReader(source))
	blocks, err := p.blocks(root)
	if err != nil {
		return Page{}, err
	}
	if len(blocks) == 0 || blocks[0].Kind != Heading || blocks[0].Level != 1 {
		return Page{}, errors.New("the page does not begin with a heading of level 1")
	}
	return Page{Name: name, Title: Plain(blocks[0].Spans), Blocks: blocks[1:]}, nil
}

// blocks returns the blocks below a node.
func (p *parser) blocks(parent ast.Node) (blocks []Block, err error) {
	for n := parent.FirstChild(); n != nil; n = n.NextSibling() {
		b, err := p.block(n)
		if err != nil {
			return nil, err
		}
		if b.Kind != "" {
			blocks = append(blocks, b)
		}
	}
	return blocks, nil
}

// block returns the block of a node; without a kind for HTML.
func (p *parser) block(n ast.Node) (b Block, err error) {
	switch n := n.(type) {
	case *ast.Heading:
		b = Block{Kind: Heading, Level: n.Level, Spans: p.spans(n)}
		b.Anchor = p.anchor(Plain(b.Spans))
	case *ast.Paragraph, *ast.TextBlock:
		b = Block{Kind: Paragraph, Spans: p.spans(n)}
	case *ast.FencedCodeBlock:
		b = Block{Kind: Code, Language: string(n.Language(p.source)), Text: string(n.Lines().Value(p.source))}
	case *ast.CodeBlock:
		b = Block{Kind: Code, Text: string(n.Lines().Value(p.source))}
	case *ast.List:
		b = Block{Kind: List, Ordered: n.IsOrdered()}
		for item := n.FirstChild(); item != nil; item = item.NextSibling() {
			inner, err := p.blocks(item)
			if err != nil {
				return b, err
			}
			b.Items = append(b.Items, inner)
		}
	case *ast.Blockquote:
		b.Kind = Quote
		b.Blocks, err = p.blocks(n)
	case *extast.Table:
		b.Kind = Table
		for row := n.FirstChild(); row != nil; row = row.NextSibling() {
			var cells [][]Span
			for cell := row.FirstChild(); cell != nil; cell = cell.NextSibling() {
				cells = append(cells, p.spans(cell))
			}
			b.Rows = append(b.Rows, cells)
		}
	case *ast.HTMLBlock:
	default:
		err = fmt.Errorf("a page cannot have a %s", n.Kind())
	}
	return b, err
}

// spans returns the text below a node.
func (p *parser) spans(n ast.Node) []Span {
	all := p.inline(nil, n, Span{})
	// Texts of one style become one span: the parser cuts them at line ends and special characters.
	joined := all[:0]
	for _, s := range all {
		if last := len(joined) - 1; last >= 0 {
			same := joined[last]
			same.Text = s.Text
			if same == s {
				joined[last].Text += s.Text
				continue
			}
		}
		joined = append(joined, s)
	}
	return joined
}

// inline appends the text below a node in the style of what is around it.
func (p *parser) inline(all []Span, parent ast.Node, style Span) []Span {
	for n := parent.FirstChild(); n != nil; n = n.NextSibling() {
		inner := style
		switch n := n.(type) {
		case *ast.Text:
			inner.Text = string(unescape(n.Value(p.source), style.Code))
			if n.SoftLineBreak() || n.HardLineBreak() {
				inner.Text += " "
			}
			all = append(all, inner)
			continue
		case *ast.String:
			inner.Text = string(n.Value)
			all = append(all, inner)
			continue
		case *ast.AutoLink:
			inner.Text = string(n.Label(p.source))
			_, _, inner.URL = p.link(string(n.URL(p.source)))
			all = append(all, inner)
			continue
		case *ast.RawHTML:
			continue
		case *ast.CodeSpan:
			inner.Code = true
		case *ast.Emphasis:
			inner.Strong, inner.Emphasis = style.Strong || n.Level > 1, style.Emphasis || n.Level == 1
		case *ast.Link:
			inner.Page, inner.Anchor, inner.URL = p.link(string(n.Destination))
		}
		all = p.inline(all, n, inner)
	}
	return all
}

// unescape resolves backslashes and entities, which code does not have.
func unescape(raw []byte, code bool) []byte {
	if code {
		return raw
	}
	return util.ResolveEntityNames(util.ResolveNumericReferences(util.UnescapePunctuations(raw)))
}

// link returns where a destination leads: to a page of the manual with a heading, or to an address. Other
// schemes than https lead nowhere.
func (p *parser) link(destination string) (page, anchor, address string) {
	u, err := url.Parse(destination)
	switch {
	case err != nil || u.Scheme != "" && u.Scheme != "https":
		return "", "", ""
	case u.Scheme != "":
		return "", "", destination
	case u.Path == "":
		return p.name, u.Fragment, ""
	case slices.Contains(p.files, u.Path):
		return strings.TrimSuffix(u.Path, ".md"), u.Fragment, ""
	}
	address = Repository + strings.TrimPrefix(path.Join("/docs", u.Path), "/")
	if u.Fragment != "" {
		address += "#" + u.Fragment
	}
	return "", "", address
}

// anchor returns the anchor that GitHub gives to a heading.
func (p *parser) anchor(title string) string {
	anchor := strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
			return unicode.ToLower(r)
		}
		return -1
	}, title)
	p.anchors[anchor]++
	if n := p.anchors[anchor]; n > 1 {
		return anchor + "-" + strconv.Itoa(n-1)
	}
	return anchor
}
