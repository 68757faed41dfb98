package writer

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
)

// file is a log file that is rotated by size: FILE becomes FILE.1, FILE.1 becomes FILE.2,
// and so on. If another program has moved it away, the next write creates a new one.
type file struct {
	path  string
	limit int64 // bytes
	keep  int   // number of rotated files
	open  *os.File
	size  int64
}

// openFile opens a file for appending, and creates it if necessary.
func openFile(path string, limit int64, keep int) (*file, error) {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	f := &file{path: path, limit: limit, keep: keep}
	if err := f.reopen(); err != nil {
		return nil, err
	}
	return f, nil
}

// reopen opens the file at path.
func (f *file) reopen() error {
	if info, err := os.Stat(f.path); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file", f.path)
	}
	next, err := os.OpenFile(f.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	info, err := next.Stat()
	if err == nil && info.Mode().Perm() != 0o600 {
		err = next.Chmod(0o600)
	}
	if err != nil {
		_ = next.Close()
		return err
	}
	_ = f.Close()
	f.open, f.size = next, info.Size()
	return nil
}

// Write appends whole lines. After an error, the file ends with the last line of p that was
// written completely; n is the length up to there.
func (f *file) Write(p []byte) (n int, err error) {
	if err := f.prepare(int64(len(p))); err != nil {
		return 0, err
	}
	n, err = f.open.Write(p)
	if err != nil {
		whole := bytes.LastIndexByte(p[:n], '\n') + 1
		if n > whole {
			err = errors.Join(err, f.open.Truncate(f.size+int64(whole)))
		}
		n = whole
	}
	f.size += int64(n)
	return n, err
}

// prepare reopens a file that was moved away, and rotates one that has no room for n more
// bytes. If the rotation fails, the file grows further.
func (f *file) prepare(n int64) error {
	now, err := os.Stat(f.path)
	if f.open == nil || errors.Is(err, fs.ErrNotExist) {
		return f.reopen()
	}
	mine, ownErr := f.open.Stat()
	if err != nil || ownErr != nil {
		return nil // the write shows whether the file is usable
	}
	if os.SameFile(now, mine) {
		f.size = now.Size()
		if f.size == 0 || f.size+n <= f.limit || f.rotate() != nil {
			return nil
		}
	}
	return f.reopen()
}

// rotate renames the file and its predecessors, and removes the oldest.
func (f *file) rotate() error {
	for i := f.keep - 1; i >= 1; i-- {
		if err := os.Rename(f.numbered(i), f.numbered(i+1)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return os.Rename(f.path, f.numbered(1))
}

func (f *file) numbered(i int) string { return f.path + "." + strconv.Itoa(i) }

// Close closes the file.
func (f *file) Close() error {
	if f.open == nil {
		return nil
	}
	err := f.open.Close()
	f.open = nil
	return err
}

// stream is an output that is not a file. Write appends whole lines; after an error in the middle
// of a line, the next write begins a new line.
type stream struct {
	to     io.Writer
	broken bool
}

func (s *stream) Write(p []byte) (n int, err error) {
	if s.broken {
		if _, err := s.to.Write([]byte{'\n'}); err != nil {
			return 0, err
		}
	}
	n, err = s.to.Write(p)
	whole := bytes.LastIndexByte(p[:n], '\n') + 1
	s.broken = n > whole
	return whole, err
}

// Close leaves the output open.
func (*stream) Close() error { return nil }
