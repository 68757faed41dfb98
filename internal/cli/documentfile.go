package cli

import (
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/client/apply"
	"github.com/keygate/keygate/internal/cli/terminal"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/openapi"
	"github.com/keygate/keygate/internal/openapi/bundle"
)

// documentFile is a document that a command sends or validates.
type documentFile struct {
	name    string // in messages
	content []byte
	// source returns the place that a position in content comes from, as file:line:column.
	source func(line, column int) string
	// secrets are not shown in messages.
	secrets apply.Secrets
}

func newDocumentFile(name string, content []byte) *documentFile {
	if name == "-" {
		name = "standard input"
	}
	return &documentFile{name: name, content: content, source: func(line, column int) string {
		return fmt.Sprintf("%s:%d:%d", name, line, column)
	}}
}

// readDocument reads a document from a file, or from standard input for "-".
func (a *app) readDocument(name string) (*documentFile, error) {
	content, err := a.ReadInput(name)
	if err != nil {
		return nil, fmt.Errorf("read the document: %w", err)
	}
	return newDocumentFile(name, content), nil
}

// readPart reads a file with a part of a configuration, or standard input for "-", and parses it with the values of the
// environment that it names.
func readPart[T any](a *app, name string, parse func([]byte) (T, error)) (part T, err error) {
	d, err := a.readDocument(name)
	if err != nil {
		return part, err
	}
	content, err := gateway.ResolveEnv(d.content, a.Env)
	if err == nil {
		part, err = parse(content)
	}
	return part, a.mistakes(d, err)
}

// readSpec reads an OpenAPI document and puts the files that its path items refer to into it.
// They must be below the directory refRoot, or, if that is "", below the directory of the document,
// which for standard input is the working directory.
func (a *app) readSpec(name, refRoot string) (*documentFile, error) {
	d, err := a.readDocument(name)
	if err != nil {
		return nil, err
	}
	dir, base := filepath.Split(name)
	if refRoot != "" {
		if dir, base = refRoot, below(refRoot, name); base == "" {
			return nil, usagef("--ref-root must name a directory that has the document: %s does not have %s", refRoot, d.name)
		}
	}
	if dir == "" {
		dir = "."
	}
	base = filepath.ToSlash(base)
	b, err := bundle.New(d.content, base, bundle.Dir(dir))
	text := func(p bundle.Position) string {
		file := d.name
		if p.File != base {
			file = filepath.Join(dir, filepath.FromSlash(p.File))
		}
		return fmt.Sprintf("%s:%d:%d", file, p.Line, p.Column)
	}
	if b.Files > 0 {
		d.content = b.Content
		d.source = func(line, column int) string {
			if p, ok := b.Position(line, column); ok {
				return text(p)
			}
			return fmt.Sprintf("%s with its files:%d:%d", d.name, line, column)
		}
	}
	var bad *bundle.Error
	switch {
	case errors.As(err, &bad):
		for _, p := range bad.Problems {
			a.Say("%s", terminal.Clean(text(p.Position)+": "+p.Field+": "+p.Message))
		}
		others := besides(bad, d.content)
		for _, p := range others {
			a.Say("%s", terminal.Clean(d.mistake(p)))
		}
		return nil, d.invalid(len(bad.Problems)+len(others), 0, fault.New(fault.ValidationFailed, "%s", err))
	case b.Files == 0:
		return d, nil
	}
	a.Say("Files included in %s: %d. Lines in warnings are those of the whole document, see keygate spec get.", terminal.Clean(d.name), b.Files)
	return d, nil
}

// besides returns what is wrong with a document besides its references to files that cannot be
// followed.
func besides(references *bundle.Error, content []byte) []fault.Problem {
	known := map[string]bool{}
	for _, p := range references.Problems {
		known[p.Field] = true
	}
	_, err := openapi.Parse(content)
	return slices.DeleteFunc(slices.Clone(fault.ProblemsOf(err)), func(p fault.Problem) bool { return known[p.Field] })
}

// below returns the path of a file relative to a directory, or "" if the file is not below it.
func below(dir, name string) string {
	from, fromErr := filepath.Abs(dir)
	to, toErr := filepath.Abs(name)
	if fromErr != nil || toErr != nil {
		return ""
	}
	path, err := filepath.Rel(from, to)
	if err != nil || !filepath.IsLocal(path) {
		return ""
	}
	return path
}

// mistakesError says that a document has mistakes, which have been printed.
type mistakesError struct {
	text     string
	problems int // number of mistakes
	err      error
}

func (e *mistakesError) Error() string { return e.text }

func (e *mistakesError) Unwrap() error { return e.err }

// invalid returns the error for a document with that many mistakes, which were printed, and more that were not. err
// decides the exit status.
func (d *documentFile) invalid(mistakes, more int, err error) error {
	text := fmt.Sprintf("%s is invalid: %d problems", d.name, mistakes)
	switch {
	case more >= fault.MaxCounted-fault.MaxProblems:
		text = fmt.Sprintf("%s is invalid: these are the first %d problems, and there are at least %d more", d.name, mistakes, more)
	case more > 0:
		text = fmt.Sprintf("%s is invalid: these are the first %d problems, and there are %d more", d.name, mistakes, more)
	case mistakes == 1:
		text = d.name + " is invalid"
	}
	return &mistakesError{text, mistakes + more, err}
}

// mistakes prints the problems of d that err consists of, one on a line, as compilers do, and
// returns the error to report after them. It returns any other error unchanged.
func (a *app) mistakes(d *documentFile, err error) error {
	problems, more := fault.ProblemsOf(err), fault.LeftOut(err)
	var refused *client.Error
	if errors.As(err, &refused) && refused.Status == http.StatusUnprocessableEntity {
		more = refused.LeftOut
		for _, p := range refused.Problems {
			problems = append(problems, fault.Problem{Field: str(p.Field), Message: p.Message, Line: position(p.Line), Column: position(p.Column)})
		}
	}
	positioned := 0
	for _, p := range problems {
		positioned += min(p.Line, 1)
	}
	if positioned == 0 && (len(d.secrets) == 0 || refused == nil) {
		return err
	}
	if positioned == 0 {
		lines := messages(err)
		return &mistakesError{d.secrets.Hide(strings.Join(lines, "\n")), len(lines), err}
	}
	for _, p := range problems {
		a.Say("%s", terminal.Clean(d.mistake(p)))
	}
	return d.invalid(len(problems), more, err)
}

// mistake returns a problem as a line.
func (d *documentFile) mistake(p fault.Problem) string {
	message := p.Message
	if p.Line > 0 {
		prefix := fmt.Sprintf("line %d, column %d: ", p.Line, p.Column)
		message = strings.TrimPrefix(message, prefix)
	}
	if p.Line > 0 {
		p.Field = strings.TrimPrefix(p.Field, "config.") // of a new gateway
	}
	if p.Field != "" && (p.Line == 0 || p.Field != "spec") { // the field of a new gateway is the document itself
		message = p.Field + ": " + message
	}
	if p.Line == 0 {
		return message
	}
	return d.source(p.Line, p.Column) + ": " + d.secrets.Hide(message)
}

func position(p *int64) int {
	if p == nil {
		return 0
	}
	return int(*p)
}
