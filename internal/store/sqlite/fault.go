package sqlite

import (
	"context"
	"errors"
	"fmt"
	"strings"

	driver "modernc.org/sqlite"
	result "modernc.org/sqlite/lib"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/store/rows"
)

// The public messages of a database that cannot be used.
const (
	lockedMessage   = "the database is locked by another process; try again"
	readOnlyMessage = "the database cannot be written to: check the permissions of its file and directory"
	fullMessage     = "the disk of the database is full: free some space"
	brokenMessage   = "the disk of the database failed"
	damagedMessage  = "the database file is damaged: restore it from a backup"
	closedMessage   = "the store is closed"
	foreignMessage  = "the file is not a Keygate database"
)

// translate turns an error of the driver into a fault.Error with a public message. what says
// which operation failed. Errors that are a fault.Error or a context's are returned
// unchanged. Other errors are wrapped; the API reports them as fault.Internal.
func translate(what string, err error) error {
	if err == nil {
		return nil
	}
	var public *fault.Error
	if errors.As(err, &public) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	wrapped := fmt.Errorf("%s: %w", what, err)
	var e *driver.Error
	if !errors.As(err, &e) {
		return wrapped
	}
	unavailable := func(message string) error {
		return &fault.Error{Code: fault.Unavailable, Message: message, Err: wrapped}
	}
	switch e.Code() & 0xff {
	case result.SQLITE_BUSY, result.SQLITE_LOCKED, result.SQLITE_PROTOCOL:
		return unavailable(lockedMessage)
	case result.SQLITE_READONLY, result.SQLITE_PERM, result.SQLITE_CANTOPEN:
		return unavailable(readOnlyMessage)
	case result.SQLITE_FULL:
		return unavailable(fullMessage)
	case result.SQLITE_IOERR, result.SQLITE_NOMEM:
		return unavailable(brokenMessage)
	case result.SQLITE_CORRUPT:
		return unavailable(damagedMessage)
	case result.SQLITE_NOTADB:
		return unavailable(foreignMessage)
	case result.SQLITE_CONSTRAINT:
		return constraint(e, wrapped)
	default:
		return wrapped
	}
}

// isBusy reports whether another connection held a lock for too long.
func isBusy(err error) bool {
	var e *driver.Error
	return errors.As(err, &e) && e.Code()&0xff == result.SQLITE_BUSY
}

// constraint turns a violated constraint into fault.Conflict with the column as its field, or
// into fault.NotFound if a parent record does not exist.
func constraint(e *driver.Error, cause error) error {
	switch e.Code() {
	case result.SQLITE_CONSTRAINT_FOREIGNKEY:
		return &fault.Error{Code: fault.NotFound, Message: "the record that this one belongs to does not exist", Err: cause}
	case result.SQLITE_CONSTRAINT_UNIQUE, result.SQLITE_CONSTRAINT_PRIMARYKEY, result.SQLITE_CONSTRAINT_ROWID:
		field := conflictField(e.Error())
		return &fault.Error{Code: fault.Conflict, Field: field, Message: rows.ConflictMessage(field), Err: cause}
	default:
		return cause
	}
}

// conflictField returns the last column in SQLite's message "UNIQUE constraint failed:
// gateways.hostname", a form that its documentation guarantees.
func conflictField(message string) string {
	_, columns, _ := strings.Cut(message, "constraint failed: ")
	columns, _, _ = strings.Cut(columns, " (")
	if i := strings.LastIndexByte(columns, '.'); i >= 0 {
		return columns[i+1:]
	}
	return ""
}
