package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// prepareDataDir creates the data directory if it does not exist, with mode 0700. It warns of a
// directory in which others may create and replace files.
func prepareDataDir(dir string, log *slog.Logger) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("create the data directory: %w", err)
	}
	info, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("check the data directory: %w", err)
	}
	if !info.IsDir() {
		return fmt.Errorf("the data directory %s is not a directory: set another --data-dir", dir)
	}
	if othersMayWrite(info) {
		log.Warn("other users may write to the data directory: run chmod 700 "+dir, "data_dir", dir, "mode", fmt.Sprintf("%04o", info.Mode().Perm()))
	}
	return nil
}

// lock is a server's exclusive lock on its data directory. The kernel releases it when
// the process ends, however that happens.
type lock struct{ file *os.File }

// takeoverTimeout is how long a start waits for the lock and the addresses of a server
// that was just killed: the kernel takes a moment to release them.
const takeoverTimeout = time.Second

// retryWhile calls f until f succeeds, until f returns an error that again rejects, or until
// takeoverTimeout has passed. It returns f's last error.
func retryWhile(ctx context.Context, again func(error) bool, f func() error) error {
	ctx, cancel := context.WithTimeout(ctx, takeoverTimeout)
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

// takeLock locks the file at path. If another server holds the lock, the error names its
// process.
func takeLock(ctx context.Context, path string) (*lock, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the lock of the data directory: %w", err)
	}
	held := func(err error) bool { return errors.Is(err, errLocked) }
	err = retryWhile(ctx, held, func() error { return tryLock(f) })
	if err != nil {
		holder := readHolder(f)
		_ = f.Close() // only read from
		if held(err) {
			return nil, fmt.Errorf("another server%s uses the data directory %s: stop it, or set another --data-dir", holder, filepath.Dir(path))
		}
		return nil, fmt.Errorf("lock the data directory: %w", err)
	}
	l := &lock{f}
	if err := l.writePID(); err != nil {
		l.release()
		return nil, fmt.Errorf("write the lock of the data directory: %w", err)
	}
	return l, nil
}

// writePID writes the process ID into the file, for the error message of takeLock.
func (l *lock) writePID() error {
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

// release releases the lock. It does not remove the file: another server may have just
// opened it, and would then lock a file that no later server finds.
func (l *lock) release() { _ = l.file.Close() }

// writeFileAtomically writes a file with mode 0600. Readers, and a crash at any time,
// find either the whole old content or the whole new content.
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

// syncDir makes the directory entries of dir durable. Windows cannot do that.
func syncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
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
