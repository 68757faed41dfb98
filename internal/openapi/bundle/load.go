package bundle

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/keygate/keygate/internal/document"
	"github.com/keygate/keygate/internal/fault"
)

// Dir returns the regular files below a directory. Unlike os.DirFS, it does not follow symbolic
// links out of the directory.
func Dir(name string) fs.FS { return dir(name) }

type dir string

// Open opens a regular file.
func (d dir) Open(name string) (fs.File, error) {
	root, err := os.OpenRoot(string(d))
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }() // an open file does not need its root
	info, err := root.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() { // to open a pipe would wait for its writer
		return nil, &fs.PathError{Op: "open", Path: name, Err: errors.New("not a regular file")}
	}
	return root.Open(name)
}

// file is a parsed file.
type file struct {
	name   string
	isJSON bool
	whole  *yaml.Node // with the comments around node
	node   *yaml.Node
}

// loader reads files, each once.
type loader struct {
	fsys  fs.FS
	files map[string]*file
	bytes int
}

// load returns a file. message says why it cannot be read.
func (l *loader) load(name string) (f *file, message string) {
	if f := l.files[name]; f != nil {
		return f, ""
	}
	if len(l.files) > maxFiles {
		return nil, fmt.Sprintf("leads to one of more than %d files: bundle them first, for example with \"npx @redocly/cli bundle\"", maxFiles)
	}
	opened, err := l.fsys.Open(name)
	if err != nil {
		return nil, fmt.Sprintf("leads to the file %s, which cannot be read: %s", name, cause(err))
	}
	defer func() { _ = opened.Close() }() // it was only read
	content, err := io.ReadAll(io.LimitReader(opened, int64(maxBytes-l.bytes)+1))
	if l.bytes += len(content); err == nil && l.bytes > maxBytes {
		err = fmt.Errorf("the files have more than %d MiB in total", maxBytes>>20)
	}
	if err == nil {
		f, err = parse(name, content)
	}
	if err != nil {
		return nil, fmt.Sprintf("leads to the file %s, which cannot be read: %s", name, cause(err))
	}
	l.files[name] = f
	return f, ""
}

// cause returns the text of an error without the name of the file.
func cause(err error) string {
	var public *fault.Error
	var failed *fs.PathError
	switch {
	case errors.As(err, &public):
		return public.Message
	case errors.Is(err, fs.ErrNotExist):
		return "there is no such file"
	case errors.As(err, &failed):
		return failed.Err.Error()
	}
	return err.Error()
}

// parse parses a file. Package document checks the size and nesting first; after that, the
// library's tree can be walked safely.
func parse(name string, content []byte) (*file, error) {
	checked, err := document.Parse(content)
	if err != nil {
		return nil, err
	}
	f := &file{name: name}
	if begin := strings.TrimLeft(strings.TrimPrefix(string(content), "\ufeff"), " \t\r\n"); begin[0] == '{' || begin[0] == '[' {
		// The library does not read all strings of JSON.
		f.isJSON, f.node = true, fromDocument(checked)
		return f, nil
	}
	f.whole = new(yaml.Node)
	if err := yaml.Unmarshal(document.Plain(content), f.whole); err != nil {
		return nil, err
	}
	f.node = f.whole.Content[0]
	return f, nil
}

// fromDocument converts a tree of package document.
func fromDocument(n *document.Node) *yaml.Node {
	to := &yaml.Node{Kind: yaml.ScalarNode, Value: n.Text, Line: int(n.Line), Column: int(n.Column)}
	switch n.Kind {
	case document.Null:
		to.Tag, to.Value = "!!null", "null"
	case document.String:
		to.Tag, to.Style = "!!str", yaml.DoubleQuotedStyle
	case document.Sequence:
		to.Kind, to.Tag = yaml.SequenceNode, "!!seq"
	case document.Mapping:
		to.Kind, to.Tag = yaml.MappingNode, "!!map"
	}
	for i := range n.Nodes {
		child := &n.Nodes[i]
		if n.Kind == document.Mapping {
			at := child.NamePosition
			to.Content = append(to.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: child.Name, Line: int(at.Line), Column: int(at.Column)})
		}
		to.Content = append(to.Content, fromDocument(child))
	}
	return to
}

// target returns the path item that a reference in f refers to. If there is none, message says why.
func (b *bundler) target(f *file, ref *yaml.Node) (to layer, message string) {
	ref = resolved(ref)
	if ref.Kind != yaml.ScalarNode || ref.ShortTag() != "!!str" {
		return layer{}, "must be a string"
	}
	name, pointer, _ := strings.Cut(ref.Value, "#")
	name, nameErr := url.PathUnescape(name)
	pointer, pointerErr := url.PathUnescape(pointer)
	switch {
	case nameErr != nil || pointerErr != nil || pointer != "" && pointer[0] != '/':
		return layer{}, "is not valid: write it like paths/users.yaml or paths.yaml#/users"
	case strings.Contains(name, ":") || strings.HasPrefix(name, "//"):
		return layer{}, "is on another server, from which nothing is fetched: bundle the documents into one first, for example with \"npx @redocly/cli bundle\""
	case strings.HasPrefix(name, "/"):
		return layer{}, "must be relative to the file that it is in"
	case name != "":
		name = path.Join(path.Dir(f.name), name)
		if !fs.ValidPath(name) {
			return layer{}, "leaves the directory of the document: name a directory that has both files with --ref-root"
		}
		if f, message = b.loader.load(name); message != "" {
			return layer{}, message
		}
	}
	n := f.node
	if pointer != "" {
		for token := range strings.SplitSeq(pointer[1:], "/") {
			m := member(n, document.UnescapeToken(token))
			if m == nil {
				return layer{}, fmt.Sprintf("leads to nothing: the file %s has no #%s", f.name, document.Short(pointer))
			}
			n = resolved(m.value)
		}
	}
	if n = resolved(n); n.Kind != yaml.MappingNode {
		return layer{}, fmt.Sprintf("does not lead to a path item: in %s, line %d, there is no mapping", f.name, n.Line)
	}
	return layer{f, n}, ""
}
