package apply

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/keygate/keygate/internal/document"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/issuer"
	"github.com/keygate/keygate/internal/plan"
)

// Bounds of a directory of configuration files.
const (
	maxFiles = 10_000    // the gateways that an account may have
	maxFile  = 16 << 20  // bytes of a file that the server accepts
	maxBytes = 256 << 20 // bytes of all files
)

// Source is where Read gets files and variables from.
type Source struct {
	// File reads the file with a name, and standard input for "-". Nil means os.ReadFile, and that there
	// is no standard input.
	File func(name string) ([]byte, error)
	// Env returns the value of an environment variable, which replaces ${env:NAME}, and whether it is set.
	// Nil means os.LookupEnv.
	Env func(name string) (string, bool)
}

// File is a configuration file that is valid.
type File struct {
	Name    string // its path, or "standard input"
	Secrets Secrets

	content []byte // with the values of environment variables
	config  *gateway.Document
	plans   *plan.File   // of a file of plans, which has no config
	issuers *issuer.File // of a file of issuers, which has no config
}

// Plans returns the number of plans in a file of plans.
func (f *File) Plans() int { return len(f.plans.Plans) }

// Issuers returns the number of issuers in a file of issuers.
func (f *File) Issuers() int { return len(f.issuers.Issuers) }

// GatewayName returns the name of the gateway that the file is for, or "" if the file names none.
func (f *File) GatewayName() string { return f.config.Gateway.Name.Value }

// Routes returns the number of routes in the file.
func (f *File) Routes() int { return len(f.config.Routes) }

// Warnings returns warnings about routes of the file whose effect its author may not expect, without the values of
// environment variables.
func (f *File) Warnings() []string {
	all := f.config.Warnings()
	for i := range all {
		all[i] = f.Secrets.Hide(all[i])
	}
	return all
}

// Set is one file, or the files of a directory.
type Set struct {
	Dir     string  // "" for one file
	Files   []*File // of gateways
	Plans   *File   // nil if there is no file of plans
	Issuers *File   // nil if there is no file of issuers

	in string // the directory that one file is in; "" for standard input
}

// OfGateways reports whether the set is of gateways alone.
func (s *Set) OfGateways() bool { return s.Plans == nil && s.Issuers == nil }

// Read reads what each argument names: a file, standard input for "-", or the files of a directory
// that are directly in it and end with .yaml, .yml or .json, in the order of their names. It returns a set for
// each argument. Every file is valid, no two of a directory are for the same gateway, and one at most has plans, and one issuers. If a file
// is not valid, the error is an *Errors.
func Read(from Source, args ...string) ([]*Set, error) {
	if from.File == nil {
		from.File = os.ReadFile
	}
	if from.Env == nil {
		from.Env = os.LookupEnv
	}
	sets, found := make([]*Set, len(args)), make([][]*File, len(args))
	e := &Errors{}
	for i, arg := range args {
		var err error
		if sets[i], found[i], err = from.find(arg); err != nil {
			return nil, err
		}
		e.Files += len(found[i])
	}
	single := map[string]*Set{} // the files of a directory that were given one by one
	for i, set := range sets {
		for _, f := range found[i] {
			if err := f.parse(from.Env); err != nil {
				e.add(f, err)
				continue
			}
			switch {
			case f.issuers != nil && set.Issuers == nil:
				set.Issuers = f
			case f.issuers != nil:
				e.add(f, f.at("issuers").Invalid("issuers", "%s has issuers already: all issuers of a directory are in one file", set.Issuers.Name))
			case f.plans == nil:
				set.Files = append(set.Files, f)
			case set.Plans == nil:
				set.Plans = f
			default:
				e.add(f, f.at("plans").Invalid("plans", "%s has plans already: all plans of a directory are in one file", set.Plans.Name))
			}
		}
		if set.in != "" {
			if single[set.in] == nil {
				single[set.in] = &Set{}
			}
			single[set.in].Files = append(single[set.in].Files, set.Files...)
		}
	}
	for _, set := range sets {
		if set.Dir != "" {
			set.checkNames(e)
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(single)) {
		single[dir].checkNames(e)
	}
	return sets, e.err()
}

// find reads what an argument names, without looking at the content. The set that it returns has no
// files yet.
func (s Source) find(arg string) (*Set, []*File, error) {
	set, name := &Set{}, arg
	if arg == "-" {
		name = "standard input"
	} else {
		info, err := os.Stat(arg)
		if err != nil {
			return nil, nil, fmt.Errorf("read the document: %w", err)
		}
		if info.IsDir() {
			files, err := readDir(arg)
			return &Set{Dir: arg}, files, err
		}
		set.in = filepath.Dir(arg)
	}
	content, err := s.File(arg)
	if err != nil {
		return nil, nil, fmt.Errorf("read the document: %w", err)
	}
	return set, []*File{{Name: name, content: content}}, nil
}

// parse replaces ${env:NAME} in a file (contract, section 5) and parses the result.
func (f *File) parse(env func(string) (string, bool)) (err error) {
	isPlans, isIssuers := plan.IsFile(f.content), issuer.IsFile(f.content)
	resolved, err := gateway.ResolveEnv(f.content, f.remember(env))
	switch {
	case err != nil && isPlans:
		return plan.AddMistakes(f.content, err)
	case err != nil && isIssuers:
		return issuer.AddMistakes(f.content, err)
	case err != nil:
		return gateway.AddMistakes(f.content, err)
	}
	f.content = resolved
	switch {
	case isPlans:
		f.plans, err = plan.ParseFile(f.content)
	case isIssuers:
		f.issuers, err = issuer.ParseFile(f.content)
	default:
		f.config, err = gateway.ParseDocument(f.content)
	}
	return err
}

// isConfigName reports whether a file of a directory is a configuration file by its name.
func isConfigName(name string) bool {
	switch strings.ToLower(filepath.Ext(name)) {
	case ".yaml", ".yml", ".json":
		return !strings.HasPrefix(name, ".")
	}
	return false
}

// readDir reads the configuration files that are directly in a directory, in the order of their names. A
// symbolic link may lead to a file in the directory, but not out of it.
func readDir(dir string) ([]*File, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("read the directory: %w", err)
	}
	defer func() { _ = root.Close() }()        // it was only read
	entries, err := fs.ReadDir(root.FS(), ".") // sorted by name
	if err != nil {
		return nil, fmt.Errorf("read the directory: %w", err)
	}
	var files []*File
	total := int64(0)
	for _, entry := range entries {
		if entry.IsDir() || !isConfigName(entry.Name()) {
			continue
		}
		path := filepath.Join(dir, entry.Name())
		content, err := readInRoot(root, entry.Name())
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", path, err)
		}
		if total += int64(len(content)); total > maxBytes || len(files) == maxFiles {
			return nil, fmt.Errorf("%s has more than %d files or %d MiB: apply it in parts", dir, maxFiles, maxBytes>>20)
		}
		files = append(files, &File{Name: path, content: content})
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s has no configuration files: they end with .yaml, .yml or .json, and are not in its subdirectories", dir)
	}
	return files, nil
}

// readInRoot reads a regular file below a directory.
func readInRoot(root *os.Root, name string) ([]byte, error) {
	info, err := root.Stat(name)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: a symbolic link must lead to a file of the directory", errors.Unwrap(err))
	case !info.Mode().IsRegular():
		return nil, errors.New("it is not a regular file")
	}
	f, err := root.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	content, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if len(content) > maxFile {
		return nil, fmt.Errorf("it is larger than %d MiB", maxFile>>20)
	}
	return content, err
}

// checkNames checks that no two files are for the same gateway, have the same hostname or are both for
// the default gateway. Each file of a directory must name its gateway.
func (s *Set) checkNames(e *Errors) {
	first := map[[2]string]*File{} // by field and value
	for _, file := range s.Files {
		g := &file.config.Gateway
		if !g.Name.Present && s.Dir != "" {
			e.add(file, file.at("gateway").Invalid("gateway.name", "is missing: in a directory it says which gateway the file is for"))
		}
		for _, unique := range []struct {
			field, value, message string
			has                   bool
		}{
			{"name", g.Name.Value, "%s is the gateway of %s already", g.Name.Present},
			{"hostname", strings.ToLower(g.Hostname.Value), "%s is the hostname of %s already", g.Hostname.Present && !g.Hostname.Null},
			{"default", "true", "%s is also what %s says: only one gateway can be the default gateway", g.Default.Value},
		} {
			key := [2]string{unique.field, unique.value}
			switch before := first[key]; {
			case !unique.has:
			case before == nil:
				first[key] = file
			default:
				at := before.at("gateway", unique.field)
				e.add(file, file.at("gateway", unique.field).Invalid("gateway."+unique.field, unique.message, unique.value,
					fmt.Sprintf("%s:%d:%d", before.Name, at.Line, at.Column)))
			}
		}
	}
}

// at returns the position of the member at the end of a path of names, or of the last member on the
// path that the file has.
func (f *File) at(path ...string) document.Position {
	n, err := document.Parse(f.content)
	if err != nil { // it was parsed before
		return document.Position{Line: 1, Column: 1}
	}
	for _, name := range path {
		m := n.Member(name)
		if m == nil {
			break
		}
		n = m
	}
	return n.Position
}
