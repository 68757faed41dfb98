package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	driver "modernc.org/sqlite"
	result "modernc.org/sqlite/lib"

	"github.com/keygate/keygate/internal/fault"
)

// backupPages is the number of pages that are copied between two looks at the context.
const backupPages = 1000

// BackupInfo describes a copy that Backup has made.
type BackupInfo struct {
	Schema int64 // version of the schema
	Bytes  int64 // size of the file
}

// Backup copies the database in the file from to the file to, which it replaces. A server may be
// using the database, and go on changing it: the copy has one state, from the moment at which
// Backup begins. The copy is checked, has mode 0600, and appears at to when it is complete and on
// disk. Backup changes nothing in the database, whose schema may be older than this binary's. Until
// the copy is complete, the write-ahead log of the database is not truncated.
//
// The error is fault.Unavailable if the file is not a Keygate database, has a newer schema than this
// binary supports, is damaged, or the disk of the copy is full.
func Backup(ctx context.Context, from, to string) (done BackupInfo, err error) {
	// The last connection that closes writes the log back into the file, unless it may only read. Without a log there
	// is nothing to write back; a server may start meanwhile, and change the file.
	parameters := url.Values{}
	if _, err := os.Stat(from + "-wal"); err == nil {
		parameters.Set("mode", "ro")
	}
	err = withSource(from, parameters, func(db *sql.DB) error {
		done, err = backup(ctx, db, to)
		return err
	})
	if err != nil {
		return BackupInfo{}, fmt.Errorf("copy the database %s to %s: %w", from, to, translate("copy", err))
	}
	return done, nil
}

// Restore copies the backup in the file from to the file to, as Backup does. Nobody may be writing to
// the backup, which is only read. It is checked after it was copied. If it has a newer schema than
// this binary supports, the error is fault.Unavailable too.
func Restore(ctx context.Context, from, to string) (done BackupInfo, err error) {
	err = withReader(from, func(db *sql.DB) error {
		if err := checkSchema(ctx, db); err != nil {
			return err
		}
		done, err = backup(ctx, db, to)
		return err
	})
	var e *driver.Error
	if errors.As(err, &e) && e.Code()&0xff == result.SQLITE_CORRUPT {
		err = &fault.Error{Code: fault.Unavailable, Message: "the file is damaged: use another backup", Err: err}
	}
	if err != nil {
		return BackupInfo{}, fmt.Errorf("restore the backup %s: %w", from, translate("copy", err))
	}
	return done, nil
}

// checkSchema returns an error if a backup is empty or of a newer version than this binary.
func checkSchema(ctx context.Context, db rowReader) error {
	schema, err := readSchema(ctx, db)
	switch {
	case err != nil:
		return err
	case schema.Current == 0:
		return fault.New(fault.Unavailable, foreignMessage)
	default:
		return schema.check("backup")
	}
}

// backup copies the database of db, as Backup does.
func backup(ctx context.Context, db *sql.DB, to string) (done BackupInfo, err error) {
	file, err := os.CreateTemp(filepath.Dir(to), "."+filepath.Base(to)+"-*") // mode 0600
	if err != nil {
		return done, err
	}
	part := file.Name()
	defer func() {
		if err != nil {
			_ = os.Remove(part)
		}
	}()
	if err := file.Close(); err != nil {
		return done, err
	}
	if err := copyPages(ctx, db, part); err != nil {
		if isFull(err) {
			err = &fault.Error{Code: fault.Unavailable, Message: "there is not enough space in " + filepath.Dir(to) + " for the copy: free some space there", Err: err}
		}
		return done, err
	}
	if done, err = checkCopy(ctx, part); err != nil {
		return done, err
	}
	return done, replaceFile(part, to)
}

// copyPages copies one state of the database of db into an empty file.
func copyPages(ctx context.Context, db *sql.DB, to string) (err error) {
	target, err := copyTarget(to)
	if err != nil {
		return err
	}
	c, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	schema, err := readSchema(ctx, c)
	if err == nil {
		err = schema.check("database")
	}
	if err != nil {
		return err
	}
	// Without a transaction, SQLite starts over whenever another process commits.
	if _, err := c.ExecContext(ctx, "BEGIN DEFERRED"); err != nil {
		return err
	}
	defer func() {
		_, endErr := c.ExecContext(context.WithoutCancel(ctx), "ROLLBACK")
		err = errors.Join(err, endErr)
	}()
	var n int
	if err := c.QueryRowContext(ctx, "SELECT count(*) FROM sqlite_schema").Scan(&n); err != nil {
		return err
	}
	return c.Raw(func(raw any) error {
		source, ok := raw.(interface {
			NewBackup(target string) (*driver.Backup, error)
		})
		if !ok {
			return errors.New("the driver cannot copy a database")
		}
		b, err := source.NewBackup(target)
		if err != nil {
			return err
		}
		for more := true; more && err == nil; {
			if err = ctx.Err(); err == nil {
				more, err = b.Step(backupPages)
			}
		}
		return errors.Join(err, b.Finish())
	})
}

// copyTarget returns the driver's data source name for a copy. The copy needs no journal: it is
// removed if it does not become complete, and replaceFile syncs it.
func copyTarget(path string) (string, error) {
	name, err := dataSource(path, DefaultBusyTimeout, false)
	if err != nil {
		return "", err
	}
	u, err := url.Parse(name)
	if err != nil {
		return "", err
	}
	u.RawQuery = url.Values{"mode": {"rw"}, "_error_rc": {"1"}, "_pragma": {"journal_mode(OFF)", "synchronous(OFF)"}}.Encode()
	return u.String(), nil
}

// checkCopy checks the content of a copy that nobody else has open.
func checkCopy(ctx context.Context, path string) (done BackupInfo, err error) {
	err = withReader(path, func(db *sql.DB) error {
		var found string
		if err := db.QueryRowContext(ctx, "PRAGMA integrity_check(1)").Scan(&found); err != nil {
			return err
		}
		if found != "ok" {
			return fault.New(fault.Unavailable, "the database is damaged, and was not copied: %s", found)
		}
		done.Schema, err = schemaVersion(ctx, db)
		return err
	})
	if err != nil {
		return done, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return done, err
	}
	done.Bytes = info.Size()
	return done, nil
}

// replaceFile syncs a file and renames it.
func replaceFile(from, to string) error {
	f, err := os.OpenFile(from, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(from, to); err != nil {
		return err
	}
	if runtime.GOOS == "windows" { // it cannot sync a directory
		return nil
	}
	dir, err := os.Open(filepath.Dir(to))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// beforeMigration is in the name of a copy that was made before a migration: between the name of the database and
// the version of its schema.
const beforeMigration = ".before-"

// backupBeforeMigrate copies the database of a schema before it is migrated.
func backupBeforeMigrate(ctx context.Context, db *sql.DB, cfg Config, schema int64) error {
	to := fmt.Sprintf("%s%s%d", cfg.Path, beforeMigration, schema)
	done, err := backup(ctx, db, to)
	if err != nil {
		message := fmt.Sprintf("cannot copy the database to %s before its migration from schema %d: free space for a second copy of the database, or set --backup-before-migrate=false if you have a backup", to, schema)
		return &fault.Error{Code: fault.Unavailable, Message: message, Err: err}
	}
	cfg.Log.Info("copied the database before its migration", "file", to, "schema", schema, "bytes", done.Bytes)
	return nil
}

// keptBeforeMigrations is how many copies from before migrations are kept. If an upgrade by several
// schemas was interrupted, the second newest copy is from before the upgrade.
const keptBeforeMigrations = 2

// removeOldCopies removes the copies from before earlier migrations, and parts that a killed start has left,
// once the newest schema is reached.
func removeOldCopies(cfg Config) error {
	dir := filepath.Dir(cfg.Path)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var copies []uint64
	remove := func(name string) {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			cfg.Log.Warn("cannot remove the copy from before an earlier migration", "file", name, "error", err)
		}
	}
	prefix := filepath.Base(cfg.Path) + beforeMigration
	for _, e := range entries {
		rest, isCopy := strings.CutPrefix(e.Name(), prefix)
		part, isPart := strings.CutPrefix(e.Name(), "."+prefix)
		schema, _, _ := strings.Cut(part, "-")
		if n, err := strconv.ParseUint(rest, 10, 64); isCopy && err == nil && e.Type().IsRegular() {
			copies = append(copies, n)
		} else if _, err := strconv.ParseUint(schema, 10, 63); isPart && err == nil && e.Type().IsRegular() {
			remove(e.Name())
		}
	}
	slices.Sort(copies)
	for len(copies) > keptBeforeMigrations {
		remove(prefix + strconv.FormatUint(copies[0], 10))
		copies = copies[1:]
	}
	return nil
}

// isFull reports whether err is that a disk is full.
func isFull(err error) bool {
	var e *driver.Error
	return errors.As(err, &e) && e.Code()&0xff == result.SQLITE_FULL
}
