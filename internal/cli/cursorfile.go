package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// maxCursorBytes limits a cursor, so that another file is not taken for one.
const maxCursorBytes = 4096

// cursorFile is a file with the cursor behind the usage records that were read completely. It is locked until close.
type cursorFile struct {
	path   string
	cursor string // "" if there is no file yet
	lock   *os.File
}

// openCursorFile locks and reads a cursor file.
func openCursorFile(path string) (*cursorFile, error) {
	lock, err := os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	f := &cursorFile{path: path, lock: lock}
	if err := f.read(); err != nil {
		return nil, errors.Join(err, f.close())
	}
	return f, nil
}

func (f *cursorFile) read() error {
	locked, err := tryLock(f.lock)
	if err != nil {
		return fmt.Errorf("lock %s: %w", f.lock.Name(), err)
	}
	if !locked {
		return fmt.Errorf("another command uses %s: wait until it ends", f.path)
	}
	content, err := os.ReadFile(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	f.cursor = strings.TrimSpace(string(content))
	if f.cursor == "" || len(f.cursor) > maxCursorBytes || strings.ContainsFunc(f.cursor, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return fmt.Errorf("%s does not hold a cursor: remove it to begin with the first record, or name another file", f.path)
	}
	return nil
}

// replace replaces the cursor. The file has the earlier or the new one at any time, also after a power failure.
func (f *cursorFile) replace(cursor string) (err error) {
	part := f.path + ".part"
	if err := os.Remove(part); err != nil && !errors.Is(err, fs.ErrNotExist) { // of a command that was killed
		return err
	}
	to, err := os.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = to.WriteString(cursor + "\n")
	if err == nil {
		err = to.Sync()
	}
	err = errors.Join(err, to.Close())
	if err == nil {
		err = os.Rename(part, f.path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(part))
	}
	return syncDir(filepath.Dir(f.path))
}

func (f *cursorFile) close() error { return f.lock.Close() }
