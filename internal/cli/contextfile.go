package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/keygate/keygate/internal/document"
	"github.com/keygate/keygate/internal/fault"
)

// contextFile is the file that "keygate login" writes: servers with their keys.
type contextFile struct {
	Current  string                  `yaml:"current"`
	Contexts map[string]serverAccess `yaml:"contexts"`
}

// serverAccess is the address of a server and a key for it.
type serverAccess struct {
	URL     string `yaml:"url"`
	Key     string `yaml:"key"`
	Gateway string `yaml:"gateway,omitempty"` // identifier of the default of --gateway
	CAFile  string `yaml:"ca_file,omitempty"` // absolute path of a file with certificates to trust besides the system's
}

// missing returns the error for a name that no context has.
func (f *contextFile) missing(name string) error {
	return &noContextError{name, slices.Sorted(maps.Keys(f.Contexts))}
}

func (a *app) contextPath() (string, error) {
	if a.configDir == "" {
		return "", errors.New("there is no configuration directory: set HOME or XDG_CONFIG_HOME")
	}
	return filepath.Join(a.configDir, "keygate", "contexts.yaml"), nil
}

// readContexts reads the contexts. Without a file there are none. A file that
// others may read, or that another user owns, is refused.
func (a *app) readContexts() (*contextFile, error) {
	f := &contextFile{Contexts: map[string]serverAccess{}}
	path, err := a.contextPath()
	if err != nil {
		return f, nil //nolint:nilerr // without a directory there are no contexts; login reports it
	}
	content, err := readPrivate(path)
	if errors.Is(err, fs.ErrNotExist) {
		return f, nil
	}
	if err != nil {
		return nil, err
	}
	if _, err := document.Parse(content); err != nil && !document.IsEmpty(err) {
		return nil, fmt.Errorf("read the contexts in %s: %s", path, fault.MessageOf(err))
	}
	if err := yaml.Unmarshal(document.Plain(content), f); err != nil {
		return nil, fmt.Errorf("read the contexts in %s: %w", path, err)
	}
	if f.Contexts == nil {
		f.Contexts = map[string]serverAccess{}
	}
	return f, nil
}

func (a *app) writeContexts(f *contextFile) error {
	path, err := a.contextPath()
	if err != nil {
		return err
	}
	content, err := yaml.Marshal(f)
	if err != nil {
		return fmt.Errorf("encode the contexts: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("create the directory of the contexts: %w", err)
	}
	// Write a new file and rename it: the file is never incomplete and never readable
	// by others.
	tmp, err := os.CreateTemp(filepath.Dir(path), ".contexts-*") // 0600
	if err != nil {
		return fmt.Errorf("write the contexts: %w", err)
	}
	_, err = tmp.Write(content)
	if closeErr := tmp.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		_ = os.Remove(tmp.Name())
		return fmt.Errorf("write the contexts: %w", err)
	}
	return nil
}

// unsafeError says why a file with a secret is not used.
type unsafeError struct{ text string }

func (e *unsafeError) Error() string { return e.text }

// readPrivate reads a file that only its owner may read: a regular file, not a
// symbolic link, owned by the caller, with mode 0600. For any other file the error is
// an *unsafeError. Files of Windows have no mode; there the rights of the directory apply.
func readPrivate(path string) ([]byte, error) {
	f, err := openPrivate(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // nothing was written
	return io.ReadAll(io.LimitReader(f, 1<<20))
}
