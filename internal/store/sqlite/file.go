package sqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// prepareFile creates the database file with mode 0600 if it does not exist, and removes the
// permissions of group and others from an existing file, and from the files -wal and -shm beside
// it. SQLite creates these with the mode of the database file.
//
// It never opens an existing file: closing it again would drop the locks that other
// connections of this process hold on it.
func prepareFile(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		return f.Close()
	}
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file", path)
	}
	for _, name := range []string{path, path + "-wal", path + "-shm"} {
		info, err := os.Stat(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if mode := info.Mode().Perm(); mode&0o077 != 0 {
			if err := os.Chmod(name, mode&0o700); err != nil {
				return err
			}
		}
	}
	return nil
}

// dataSource returns the driver's data source name for the file. For its parameters see
// (*sqlite.Driver).Open.
func dataSource(path string, busy time.Duration, writer bool) (string, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	q := url.Values{}
	q.Set("mode", "rw") // never create a file: prepareFile does
	q.Set("_busy_timeout", strconv.FormatInt(busy.Milliseconds(), 10))
	q.Set("_dqs", "0")
	q.Set("_error_rc", "1")
	if writer {
		q.Set("_txlock", "immediate") // for migrations; Update runs BEGIN IMMEDIATE itself
		q.Set("_journal_mode", "WAL")
		q.Set("_synchronous", "FULL")
		q.Set("_foreign_keys", "1")
		q.Add("_pragma", "wal_autocheckpoint("+strconv.Itoa(backstopPages)+")")
		q.Add("_pragma", "journal_size_limit(67108864)") // bytes to which a checkpoint truncates a WAL that grew during a long read
		q.Add("_pragma", "cache_size(-32768)")           // KiB
		q.Add("_pragma", "temp_store(MEMORY)")
	} else {
		q.Set("_query_only", "1")
		q.Add("_pragma", "cache_size(-8192)")
		q.Add("_pragma", "temp_store(MEMORY)")
	}
	if abs = filepath.ToSlash(abs); !strings.HasPrefix(abs, "/") {
		abs = "/" + abs // C:/…
	}
	return (&url.URL{Scheme: "file", Path: abs, RawQuery: q.Encode()}).String(), nil
}
