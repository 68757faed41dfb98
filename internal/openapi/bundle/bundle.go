// Package bundle makes an OpenAPI document of several files self-contained, as far as a gateway
// reads it: it replaces path items that refer to other files by the contents of these files.
// References elsewhere stay as they are, because they have no effect.
//
// It runs on a user's machine, with the user's rights. Another person may have written the
// document, so files outside of one directory are out of reach, and nothing is fetched.
package bundle

import (
	"fmt"
	"io/fs"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/keygate/keygate/internal/document"
	"github.com/keygate/keygate/internal/fault"
)

const (
	maxFiles      = 1000
	maxBytes      = 64 << 20  // of all files together
	maxNodes      = 1_000_000 // in what is put into the document
	maxReferences = 32        // in a chain from one path item
)

// Bundle is a document without references to other files in the parts that a gateway reads.
type Bundle struct {
	Content []byte
	// Files is the number of files that were read besides the document. If it is 0, Content is
	// the document byte for byte.
	Files int

	root      *file
	owners    map[*yaml.Node]*file  // files of nodes that were put into the document
	positions map[position]Position // from Content to the files; nil until Position is called
}

// Position is a position in a file.
type Position struct {
	File         string
	Line, Column int
}

// Problem is a reference that cannot be followed.
type Problem struct {
	Position
	Field, Message string
}

// Error lists what is wrong with the references of a document, at most fault.MaxProblems of
// them.
type Error struct{ Problems []Problem }

func (e *Error) Error() string {
	p := e.Problems[0]
	return fmt.Sprintf("%s:%d:%d: %s: %s", p.File, p.Line, p.Column, p.Field, p.Message)
}

// New returns the bundle of the document with the given content. Its references are relative
// to name, its slash-separated path in files. A document that cannot be read at all is returned
// as it is, so that its next reader reports what is wrong. Errors are of type *Error; with one, New returns the
// bundle in which the path items that the error names are as they were.
func New(content []byte, name string, files fs.FS) (*Bundle, error) {
	unchanged := &Bundle{Content: content}
	root, err := parse(name, content)
	if err != nil {
		return unchanged, nil //nolint:nilerr // see above
	}
	paths := member(root.node, "paths")
	if paths == nil {
		return unchanged, nil
	}
	b := &bundler{
		loader: loader{fsys: files, files: map[string]*file{name: root}, bytes: len(content)},
		bundle: &Bundle{root: root, owners: map[*yaml.Node]*file{}},
	}
	for i := 0; i+1 < len(paths.value.Content) && len(b.problems) < fault.MaxProblems; i += 2 {
		if key := paths.value.Content[i]; strings.HasPrefix(key.Value, "/") {
			b.item(paths.value.Content, i)
		}
	}
	if len(b.loader.files) > 1 {
		b.bundle.Files = len(b.loader.files) - 1
		if b.bundle.Content, err = encode(root); err != nil {
			b.bundle = unchanged
			b.problems = append(b.problems, Problem{Position: Position{name, 1, 1}, Field: "paths", Message: "cannot be merged with its files: " + err.Error()})
		}
	} else {
		b.bundle = unchanged
	}
	if len(b.problems) > 0 {
		return b.bundle, &Error{b.problems}
	}
	return b.bundle, nil
}

// bundler replaces path items in the tree of a document.
type bundler struct {
	loader   loader
	bundle   *Bundle
	nodes    int // put into the document
	problems []Problem
}

// layer is a path item in a file.
type layer struct {
	file *file
	node *yaml.Node // a mapping
}

// item replaces the entry of paths whose key is entries[i], if it leads to another file.
func (b *bundler) item(entries []*yaml.Node, i int) {
	field := "paths." + entries[i].Value + ".$ref"
	layers, bad := b.follow(layer{b.bundle.root, resolved(entries[i+1])})
	if bad != nil {
		bad.Field = document.Short(field)
		b.problems = append(b.problems, *bad)
		return
	}
	elsewhere := false
	for _, l := range layers {
		elsewhere = elsewhere || l.file != b.bundle.root
	}
	if !elsewhere {
		return
	}
	own := entries[i+1]
	if at := directReference(own); at >= 0 {
		own.Content = append(own.Content[:at:at], own.Content[at+2:]...)
		if own.Style&yaml.FlowStyle != 0 {
			own.Style &^= yaml.FlowStyle
			entries[i].HeadComment = strings.TrimPrefix(entries[i].HeadComment+"\n"+own.LineComment, "\n")
			own.LineComment = ""
		}
		layers = layers[1:]
	} else {
		own = &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Line: own.Line, Column: own.Column}
		entries[i+1] = own
	}
	if b.fill(own, layers); b.nodes > maxNodes {
		b.problems = append(b.problems, Problem{
			Position: Position{b.bundle.root.name, entries[i].Line, entries[i].Column},
			Field:    document.Short(field),
			Message:  fmt.Sprintf("the files make the document larger than %d values: split it between several gateways", maxNodes),
		})
	}
}

// directReference returns the index of $ref in the content of a mapping, or -1.
func directReference(n *yaml.Node) int {
	if n.Kind == yaml.MappingNode {
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == "$ref" {
				return i
			}
		}
	}
	return -1
}

// fill adds copies of the members of layers to a path item. The first layer that has a member
// wins, as it does when the server follows references.
func (b *bundler) fill(own *yaml.Node, layers []layer) {
	taken := map[string]bool{"$ref": true}
	for _, m := range members(own) {
		taken[m.key.Value] = true
	}
	for _, l := range layers {
		for _, m := range members(l.node) {
			if taken[m.key.Value] || b.nodes > maxNodes {
				continue
			}
			taken[m.key.Value] = true
			key, value := b.copy(m.key), b.copy(m.value)
			b.bundle.owners[key], b.bundle.owners[value] = l.file, l.file
			own.Content = append(own.Content, key, value)
		}
	}
}

// copy returns n without anchors, aliases and merge keys, which have a meaning only in their own
// file.
func (b *bundler) copy(n *yaml.Node) *yaml.Node {
	c := *resolved(n)
	c.Anchor = ""
	c.Content = make([]*yaml.Node, 0, len(c.Content))
	if b.nodes++; b.nodes > maxNodes {
		return &c
	}
	if c.Kind == yaml.MappingNode {
		for _, m := range members(n) {
			c.Content = append(c.Content, b.copy(m.key), b.copy(m.value))
		}
		return &c
	}
	for _, child := range resolved(n).Content {
		c.Content = append(c.Content, b.copy(child))
	}
	return &c
}

// follow returns the path item first, followed by the path items that it refers to. A mistake in
// the document itself ends the list, because the server reports it.
func (b *bundler) follow(first layer) ([]layer, *Problem) {
	layers := []layer{first}
	for l := first; ; {
		ref := member(l.node, "$ref")
		if ref == nil {
			return layers, nil
		}
		next, message := b.target(l.file, ref.value)
		for _, earlier := range layers {
			if message == "" && next.node == earlier.node {
				message = "is circular"
			}
		}
		if message == "" && len(layers) > maxReferences {
			message = fmt.Sprintf("is one of more than %d that form a chain: refer to the path item directly", maxReferences)
		}
		switch {
		case message == "":
			layers = append(layers, next)
			l = next
		case isLocal(ref.value) && onlyIn(layers, b.bundle.root):
			return layers, nil
		default:
			return nil, &Problem{
				Position: Position{l.file.name, ref.value.Line, ref.value.Column},
				Message:  fmt.Sprintf("the reference %q %s", document.Short(ref.value.Value), message),
			}
		}
	}
}

// isLocal reports whether a reference stays in its file.
func isLocal(ref *yaml.Node) bool {
	return resolved(ref).ShortTag() != "!!str" || strings.HasPrefix(resolved(ref).Value, "#")
}

func onlyIn(layers []layer, f *file) bool {
	for _, l := range layers {
		if l.file != f {
			return false
		}
	}
	return true
}
