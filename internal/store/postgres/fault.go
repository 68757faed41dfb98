package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/store/rows"
)

// The public messages of a database that cannot be used.
const (
	awayMessage        = "the database cannot be reached; try again"
	slowMessage        = "the database does not respond in time; try again"
	busyMessage        = "the database is busy; try again"
	readOnlyMessage    = "the database accepts no writes: it is a replica, or set to read-only"
	fullMessage        = "the disk of the database is full: free some space"
	brokenMessage      = "the database failed"
	refusedMessage     = "the database refuses the user or the password: check the database URL"
	parameterMessage   = "the database refuses the connection: check the parameters of the database URL"
	missingMessage     = "the database does not exist: create it, or check the database URL"
	rightsMessage      = "the user of the database lacks privileges: make it the owner of the database"
	closedMessage      = "the store is closed"
	foreignMessage     = "the database holds tables of something else: give Keygate a database of its own"
	unconfirmedMessage = "the change is stored, but not confirmed everywhere: no synchronous replica of the database has confirmed it in time, and a failover may lose it. Repeat the call to wait for it"
	unknownMessage     = "the connection to the database was lost while it stored the change: it may be in force; look, or try again"
)

// SQLSTATE codes. A code of two letters is a class.
const (
	uniqueViolation     = "23505"
	foreignKeyViolation = "23503"
	divisionByZero      = "22012"
	badText             = "22021"
	readOnlyTransaction = "25006"
	serialization       = "40001"
	deadlock            = "40P01"
	diskFull            = "53100"
	queryCanceled       = "57014"
	lockNotAvailable    = "55P03"
	classAuthorization  = "28"
	noDatabase          = "3D000"
	noPrivilege         = "42501"
	statementMissing    = "26000" // a prepared one, as the next
	statementExists     = "42P05"
)

// stateOf returns the SQLSTATE in err, or "".
func stateOf(err error) string {
	var e *pgconn.PgError
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// lost reports whether err says that there is no connection any more, or that none could be
// opened.
func lost(err error) bool {
	if state := stateOf(err); state != "" {
		return strings.HasPrefix(state, "08") || strings.HasPrefix(state, "57P") || state == "25P03"
	}
	var (
		connect *pgconn.ConnectError
		network net.Error
	)
	return errors.As(err, &connect) || errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, net.ErrClosed) || pgconn.SafeToRetry(err)
}

// IsAway reports whether an error of Open says that the server cannot be reached, does not respond or has no
// room for connections, so that another attempt may succeed.
func IsAway(err error) bool {
	switch publicMessage(err) {
	case awayMessage, slowMessage, busyMessage:
		return true
	default:
		return false
	}
}

// translate turns an error of the driver into a fault.Error with a public message. what says
// which operation failed. Errors that are a fault.Error or a context's own are returned
// unchanged. Other errors are wrapped; the API reports them as fault.Internal.
func translate(what string, err error) error {
	if err == nil || err == context.Canceled || err == context.DeadlineExceeded { //nolint:errorlint // the driver wraps them, see below
		return err
	}
	var public *fault.Error
	if errors.As(err, &public) {
		return err
	}
	wrapped := fmt.Errorf("%s: %w", what, err)
	var connect *pgconn.ConnectError
	if state := stateOf(err); errors.As(err, &connect) && publicMessage(err) == "" {
		// The server's text may repeat a parameter of the URL.
		return &fault.Error{Code: fault.Unavailable, Message: parameterMessage, Err: fmt.Errorf("%s: SQLSTATE %s", what, state)}
	}
	if message := publicMessage(err); message != "" {
		return &fault.Error{Code: fault.Unavailable, Message: message, Err: wrapped}
	}
	var e *pgconn.PgError
	if !errors.As(err, &e) {
		return wrapped
	}
	switch e.Code {
	case badText:
		return &fault.Error{Code: fault.ValidationFailed, Message: "a text has a NUL character or is not valid UTF-8: remove that", Err: wrapped}
	case foreignKeyViolation:
		return &fault.Error{Code: fault.NotFound, Message: "the record that this one belongs to does not exist", Err: wrapped}
	case uniqueViolation:
		field := conflictField(e.ConstraintName)
		return &fault.Error{Code: fault.Conflict, Field: field, Message: rows.ConflictMessage(field), Err: wrapped}
	}
	return wrapped
}

// publicMessage returns what a user is told about a database that cannot be used, or "" for an
// error that has another cause. Statements run under deadlines of this package, not of the
// caller, so a timeout is the database's.
func publicMessage(err error) string {
	switch state := stateOf(err); {
	case state == diskFull:
		return fullMessage
	case state == readOnlyTransaction:
		return readOnlyMessage
	case state == queryCanceled:
		return slowMessage
	case state == lockNotAvailable, state == serialization, state == deadlock, strings.HasPrefix(state, "53"):
		return busyMessage
	case strings.HasPrefix(state, classAuthorization):
		return refusedMessage
	case state == noDatabase:
		return missingMessage
	case state == noPrivilege:
		return rightsMessage
	case state == statementMissing, state == statementExists:
		return poolerMessage
	case strings.HasPrefix(state, "58"), strings.HasPrefix(state, "XX"):
		return brokenMessage
	case state == "" && errors.Is(err, context.DeadlineExceeded):
		return slowMessage
	case lost(err):
		return awayMessage
	}
	return ""
}

// conflictField returns the column in the name of a constraint, "table.column".
func conflictField(constraint string) string {
	_, column, _ := strings.Cut(constraint, ".")
	return column
}
