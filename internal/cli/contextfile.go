package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"go.yaml.in/yaml/v3"
	"golang.org/x/sys/unix"
)

// contextFile is the file that "keygate login" writes: servers with their keys.
type contextFile struct {
	Current  string                  `yaml:"current"`
	Contexts map[string]serverAccess `yaml:"contexts"`
}

// serverAccess is the address of a server and a key for it.
type serverAccess struct {
	URL string `yaml:"url"`
	Key string `yaml:"key"`
}

func (a *app) contextPath() (string, error) {
	if a.ConfigDir == "" {
		return "", errors.New("there is no configuration directory: set HOME or XDG_CONFIG_HOME")
	}
	return filepath.Join(a.ConfigDir, "keygate", "contexts.yaml"), nil
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
	if err := yaml.Unmarshal(content, f); err != nil {
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
// an *unsafeError.
func readPrivate(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.ELOOP) {
		return nil, &unsafeError{path + " is a symbolic link: replace it by the file itself"}
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // nothing was written
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, fmt.Errorf("stat %s: %w", path, err)
	}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return nil, &unsafeError{path + " is not a regular file"}
	case int(st.Uid) != os.Geteuid():
		return nil, &unsafeError{path + " belongs to another user"}
	case st.Mode&0o7777 != 0o600:
		return nil, &unsafeError{fmt.Sprintf("%s has mode %04o, so other users may be able to read or change it: run chmod 600 %s", path, st.Mode&0o7777, path)}
	}
	return io.ReadAll(io.LimitReader(f, 1<<20))
}
