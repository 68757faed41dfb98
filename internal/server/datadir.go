package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// prepareDataDir makes the data directory, for its owner alone, if it is
// missing.
func prepareDataDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make the data directory: %w", err)
	}
	info, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("look at the data directory: %w", err)
	}
	if !info.IsDir() {
		return fmt.Errorf("the data directory %s is no directory: give another with --data-dir", dir)
	}
	return nil
}

// lock is the exclusive hold of one server on its data directory. The kernel
// gives it up when the process ends, however that happens.
type lock struct{ file *os.File }

// patience is how long a start waits for what a server that has just been
// killed still holds: the kernel takes a moment to give its lock and its
// addresses free.
const patience = time.Second

// insist calls f until it returns another error than those that again accepts,
// or patience is over.
func insist(ctx context.Context, again func(error) bool, f func() error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := f()
		if err == nil || !again(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-tick.C:
		}
	}
}

// takeLock locks the file at path. If another server holds it, the error says
// which.
func takeLock(ctx context.Context, path string) (*lock, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the lock of the data directory: %w", err)
	}
	held := func(err error) bool { return errors.Is(err, unix.EWOULDBLOCK) }
	err = insist(ctx, held, func() error { return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) })
	if err != nil {
		holder := readHolder(f)
		_ = f.Close() // only read from
		if held(err) {
			return nil, fmt.Errorf("another server%s uses the data directory %s: stop it, or give this one its own with --data-dir", holder, filepath.Dir(path))
		}
		return nil, fmt.Errorf("lock the data directory: %w", err)
	}
	l := &lock{f}
	if err := l.sign(); err != nil {
		l.release()
		return nil, fmt.Errorf("write the lock of the data directory: %w", err)
	}
	return l, nil
}

// sign writes the process's number into the file, for the message above.
func (l *lock) sign() error {
	if err := l.file.Truncate(0); err != nil {
		return err
	}
	_, err := l.file.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return err
}

func readHolder(f *os.File) string {
	b, err := io.ReadAll(io.LimitReader(f, 32))
	if pid := strings.TrimSpace(string(b)); err == nil && pid != "" {
		return " (process " + pid + ")"
	}
	return ""
}

// release gives the directory free. The file stays: removing it could take the
// lock from a server that has just opened it.
func (l *lock) release() { _ = l.file.Close() }

// writeFileAtomically writes a file for its owner alone so that a reader, or a
// crash, finds the old content or the new one, whole.
func writeFileAtomically(path string, content []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*") // 0600
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err == nil {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return err
	}
	return syncDir(filepath.Dir(path))
}

// syncDir makes the names in dir survive a power loss.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	if err := d.Sync(); err != nil {
		_ = d.Close()
		return err
	}
	return d.Close()
}
