package secret

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// LoadOrCreate returns the box whose key stands in the file at path. If there
// is no such file it makes one, with mode 0600, that holds KeySize random
// bytes; it is complete and on disk before its name appears, and never replaces
// a file that another process made in between. It refuses a file of another
// size, one that others than its owner may read or write, and whatever is no
// regular file.
func LoadOrCreate(path string) (*Box, error) {
	key, err := load(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err = create(path); err == nil || errors.Is(err, fs.ErrExist) {
			key, err = load(path)
		}
	}
	if err != nil {
		return nil, err
	}
	return New(key)
}

func load(path string) (key []byte, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open secret key file: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("read secret key file: %w", err)
	}
	switch {
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("secret key file %s is no regular file", path)
	case info.Mode().Perm()&0o077 != 0:
		return nil, fmt.Errorf("secret key file %s may be read by others (mode %04o): run chmod 600 %s", path, info.Mode().Perm(), path)
	case info.Size() != KeySize:
		return nil, fmt.Errorf("secret key file %s has %d bytes and must have %d: restore it from a backup", path, info.Size(), KeySize)
	}
	key = make([]byte, KeySize)
	if _, err := io.ReadFull(f, key); err != nil {
		return nil, fmt.Errorf("read secret key file %s: %w", path, err)
	}
	return key, nil
}

// create makes the file under a temporary name and links it to path. The error
// is fs.ErrExist if a file stands at path by then.
func create(path string) (err error) {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, ".secret-*") // mode 0600
	if err != nil {
		return fmt.Errorf("make secret key file: %w", err)
	}
	defer func() { err = errors.Join(err, os.Remove(f.Name())) }()
	if err := fill(f); err != nil {
		return fmt.Errorf("write secret key file: %w", err)
	}
	if err := os.Link(f.Name(), path); err != nil {
		return fmt.Errorf("make secret key file: %w", err)
	}
	return syncDir(dir)
}

// fill writes a new key to f and closes it once the disk has it.
func fill(f *os.File) error {
	key := make([]byte, KeySize)
	_, readErr := rand.Read(key)
	_, writeErr := f.Write(key)
	return errors.Join(readErr, writeErr, f.Sync(), f.Close())
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("make secret key file: %w", err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("make secret key file: %w", err)
	}
	return nil
}
