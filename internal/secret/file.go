package secret

import (
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
)

// LoadOrCreate returns a Box with the key in the file at path. If the file does not exist,
// it creates it with mode 0600 and KeySize random bytes. The file is complete and on disk
// before it appears at path, and never replaces a file that another process created in between.
// LoadOrCreate returns an error if the file has another size, is not a regular file, or can be read
// or written by anyone but its owner.
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

// Load returns a Box with the key in the file at path, which must exist. The other errors are the
// same as from LoadOrCreate.
func Load(path string) (*Box, error) {
	key, err := load(path)
	if err != nil {
		return nil, err
	}
	return New(key)
}

// Given returns a Box with the given key of KeySize bytes, which takes the place of the file at
// path. If the file exists nevertheless, it must hold the same key.
func Given(key []byte, path string) (*Box, error) {
	switch stored, err := load(path); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	case subtle.ConstantTimeCompare(stored, key) != 1:
		return nil, fmt.Errorf("%w: %s holds another one", ErrOtherKey, path)
	}
	return New(key)
}

// ErrOtherKey is the error about a given key that is not the store's key.
var ErrOtherKey = errors.New("the secret key in the environment is not the one that this installation uses")

func load(path string) (key []byte, err error) {
	// A named pipe would keep the start waiting for a writer.
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("secret key file %s is not a regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open secret key file: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("read secret key file: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("secret key file %s is not a regular file", path)
	}
	if err := CheckPrivate("secret key file", path, info); err != nil {
		return nil, err
	}
	if info.Size() != KeySize {
		return nil, fmt.Errorf("secret key file %s has %d bytes and must have %d: restore it from a backup", path, info.Size(), KeySize)
	}
	key = make([]byte, KeySize)
	if _, err := io.ReadFull(f, key); err != nil {
		return nil, fmt.Errorf("read secret key file %s: %w", path, err)
	}
	return key, nil
}

// CheckPrivate returns an error if others than its owner may read or write a file that holds
// a secret. what names the file in the error.
func CheckPrivate(what, path string, info fs.FileInfo) error {
	mode := info.Mode().Perm()
	if mode&0o077 == 0 || runtime.GOOS == "windows" { // there the directory's rights apply
		return nil
	}
	return fmt.Errorf("%s %s is accessible to other users (mode %04o): run chmod 600 %s", what, path, mode, path)
}

// create writes a new key file under a temporary name and links it to path. The error is
// fs.ErrExist if path exists by then.
func create(path string) (err error) {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, ".secret-*") // mode 0600
	if err != nil {
		return fmt.Errorf("create secret key file: %w", err)
	}
	defer func() { err = errors.Join(err, os.Remove(f.Name())) }()
	if err := fill(f); err != nil {
		return fmt.Errorf("write secret key file: %w", err)
	}
	if err := os.Link(f.Name(), path); err != nil {
		return fmt.Errorf("create secret key file: %w", err)
	}
	return syncDir(dir)
}

// fill writes a new key to f, syncs it to disk and closes it.
func fill(f *os.File) error {
	key := make([]byte, KeySize)
	_, readErr := rand.Read(key)
	_, writeErr := f.Write(key)
	return errors.Join(readErr, writeErr, f.Sync(), f.Close())
}

// syncDir makes the directory entries of dir durable. Windows cannot do that.
func syncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("create secret key file: %w", err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("create secret key file: %w", err)
	}
	return nil
}
