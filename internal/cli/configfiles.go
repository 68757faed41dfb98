package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/keygate/keygate/internal/cli/terminal"
	"github.com/keygate/keygate/internal/document"
	"github.com/keygate/keygate/internal/gateway"
)

// Bounds of a directory of configuration files.
const (
	maxConfigFiles = 10_000    // the gateways that an account may have
	maxConfigFile  = 16 << 20  // bytes of a file that the server accepts
	maxConfigBytes = 256 << 20 // bytes of all files
)

// configFile is a configuration file that was read and is valid.
type configFile struct {
	*documentFile
	config *gateway.Document
}

// configSet is what a command was given: one file, or the files of a directory.
type configSet struct {
	dir   string // "" for one file
	in    string // the directory that one file is in; "" for standard input
	files []*configFile
}

// readConfigs reads what each argument names: a file, standard input for "-", or the files of a
// directory. It validates them, prints all mistakes of all files, and returns a set for each
// argument.
func (a *app) readConfigs(args []string) ([]*configSet, error) {
	sets := make([]*configSet, len(args))
	found := make([][]*documentFile, len(args))
	f := &failures{app: a}
	for i, arg := range args {
		var err error
		if sets[i], found[i], err = a.findConfigs(arg); err != nil {
			return nil, err
		}
		f.files += len(found[i])
	}
	single := map[string]*configSet{} // the files of a directory that were given one by one
	for i, set := range sets {
		for _, d := range found[i] {
			config, err := a.parseConfig(d)
			if err != nil {
				f.add(d, err)
				continue
			}
			set.files = append(set.files, &configFile{d, config})
		}
		if set.in != "" {
			if single[set.in] == nil {
				single[set.in] = &configSet{}
			}
			single[set.in].files = append(single[set.in].files, set.files...)
		}
	}
	for _, set := range sets {
		if set.dir != "" {
			set.checkNames(f)
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(single)) {
		single[dir].checkNames(f)
	}
	return sets, f.err()
}

// findConfigs reads what an argument names, without looking at the content. The set that it
// returns has no files yet.
func (a *app) findConfigs(arg string) (*configSet, []*documentFile, error) {
	set := &configSet{}
	if arg != "-" {
		info, err := os.Stat(arg)
		if err != nil {
			return nil, nil, fmt.Errorf("read the document: %w", err)
		}
		if info.IsDir() {
			read, err := readConfigDir(arg)
			return &configSet{dir: arg}, read, err
		}
		set.in = filepath.Dir(arg)
	}
	d, err := a.readDocument(arg)
	return set, []*documentFile{d}, err
}

// parseConfig replaces ${env:NAME} in a configuration file from the caller's environment
// (contract, section 5) and parses the result. Messages about the file do not show what the
// variables contain.
func (a *app) parseConfig(d *documentFile) (config *gateway.Document, err error) {
	if d.content, err = gateway.ResolveEnv(d.content, d.remember(a.Env)); err != nil {
		return nil, err
	}
	return gateway.ParseDocument(d.content)
}

// isConfigName reports whether a file of a directory is a configuration file by its name.
func isConfigName(name string) bool {
	switch strings.ToLower(filepath.Ext(name)) {
	case ".yaml", ".yml", ".json":
		return !strings.HasPrefix(name, ".")
	}
	return false
}

// readConfigDir reads the configuration files that are directly in a directory, in the order of
// their names. A symbolic link may lead to a file in the directory, but not out of it.
func readConfigDir(dir string) ([]*documentFile, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("read the directory: %w", err)
	}
	defer func() { _ = root.Close() }()        // it was only read
	entries, err := fs.ReadDir(root.FS(), ".") // sorted by name
	if err != nil {
		return nil, fmt.Errorf("read the directory: %w", err)
	}
	var files []*documentFile
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
		if total += int64(len(content)); total > maxConfigBytes || len(files) == maxConfigFiles {
			return nil, fmt.Errorf("%s has more than %d files or %d MiB: apply it in parts", dir, maxConfigFiles, maxConfigBytes>>20)
		}
		files = append(files, newDocumentFile(path, content))
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
	content, err := io.ReadAll(io.LimitReader(f, maxConfigFile+1))
	if len(content) > maxConfigFile {
		return nil, fmt.Errorf("it is larger than %d MiB", maxConfigFile>>20)
	}
	return content, err
}

// checkNames checks that no two files are for the same gateway, have the same hostname or are both for
// the default gateway. Those of a directory must name their gateway.
func (s *configSet) checkNames(f *failures) {
	first := map[[2]string]*configFile{} // by field and value
	for _, file := range s.files {
		g := &file.config.Gateway
		if !g.Name.Present && s.dir != "" {
			f.add(file.documentFile, file.at("gateway").Invalid("gateway.name", "is missing: in a directory it says which gateway the file is for"))
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
				f.add(file.documentFile, file.at("gateway", unique.field).Invalid("gateway."+unique.field, unique.message, unique.value, before.placeOf("gateway", unique.field)))
			}
		}
	}
}

// at returns the position of the member that a path of names leads to, or of the last one on the
// way that the file has.
func (f *configFile) at(path ...string) document.Position {
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

// placeOf returns at as file:line:column.
func (f *configFile) placeOf(path ...string) string {
	p := f.at(path...)
	return f.place(int(p.Line), int(p.Column))
}

// failures collects what is wrong with the files of a command, and prints it as it comes.
type failures struct {
	*app
	files    int // of the command
	failed   map[string]bool
	problems int
	first    error
}

// add adds what is wrong with a file. It is not printed yet if it is an error without a position
// about the only file.
func (f *failures) add(d *documentFile, err error) {
	err = f.mistakes(d, err)
	if f.first == nil {
		f.first, f.failed = err, map[string]bool{}
	}
	f.failed[d.name] = true
	var printed *mistakesError
	if errors.As(err, &printed) {
		f.problems += printed.problems
		return
	}
	lines := messages(err)
	f.problems += len(lines)
	if f.files > 1 {
		for _, line := range lines {
			f.Say("%s", terminal.Clean(d.name+": "+line))
		}
	}
}

// err returns the error of the command, nil if nothing was added. The first file that failed
// decides the exit status.
func (f *failures) err() error {
	if f.first == nil || f.files == 1 {
		return f.first
	}
	return &mistakesError{fmt.Sprintf("%d of %d files have problems: %d in all", len(f.failed), f.files, f.problems), f.problems, f.first}
}

// ends reports whether an error is not about one file, so that the others are not tried.
func ends(err error) bool {
	code := exitCode(err)
	return code == exitUnauthorized || code == exitUnreachable || code == exitFailed
}

// secrets are values of environment variables that a file has.
type secrets map[string]string // from the values to ${env:NAME}

// shortestSecret is how many bytes a value has at least to be replaced in messages: shorter ones
// would be found in unrelated text.
const shortestSecret = 4

// remember returns a function that looks a variable up as lookup does, and has hide replace its
// value.
func (d *documentFile) remember(lookup func(string) (string, bool)) func(string) (string, bool) {
	return func(name string) (string, bool) {
		value, ok := lookup(name)
		if ok && len(value) >= shortestSecret {
			if d.secrets == nil {
				d.secrets = secrets{}
			}
			d.secrets[value] = "${env:" + name + "}"
		}
		return value, ok
	}
}

// hide replaces the values of environment variables in a text by the names of the variables,
// whatever their case: the server may have changed it.
func (s secrets) hide(text string) string {
	if len(s) == 0 {
		return text
	}
	values := make([]string, 0, len(s))
	for v := range s {
		values = append(values, v)
	}
	slices.SortFunc(values, func(x, y string) int { return cmp.Or(len(y)-len(x), cmp.Compare(x, y)) })
	for _, v := range values {
		text = replaceFold(text, v, s[v])
	}
	return text
}

// replaceFold replaces each occurrence of old in a text, whatever the case of ASCII letters.
func replaceFold(text, old, by string) string {
	var b strings.Builder
	for i := 0; i < len(text); {
		if len(text)-i >= len(old) && strings.EqualFold(text[i:i+len(old)], old) {
			b.WriteString(by)
			i += len(old)
			continue
		}
		b.WriteByte(text[i])
		i++
	}
	return b.String()
}
