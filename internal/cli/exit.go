package cli

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/cli/terminal"
	"github.com/keygate/keygate/internal/config"
	"github.com/keygate/keygate/internal/fault"
)

// The exit statuses (contract, section 8).
const (
	exitDone         = 0
	exitFailed       = 1
	exitUsage        = 2
	exitDifferent    = 3
	exitUnauthorized = 4
	exitNotFound     = 5
	exitConflict     = 6
	exitUnreachable  = 7
)

// usageError reports wrong usage of a command.
type usageError struct{ text string }

func (e *usageError) Error() string { return e.text }

func usagef(format string, args ...any) error { return &usageError{fmt.Sprintf(format, args...)} }

// noKeyError reports that there is no key to call the server with, or that it may
// not be used.
type noKeyError struct{ text string }

func (e *noKeyError) Error() string { return e.text }

// noContextError reports that no context has that name.
type noContextError struct {
	name  string
	known []string
}

func (e *noContextError) Error() string {
	if len(e.known) == 0 {
		return fmt.Sprintf("there is no context %q: keygate login creates one", e.name)
	}
	return fmt.Sprintf("there is no context %q, only %s", e.name, terminal.Clean(strings.Join(e.known, ", ")))
}

// errDifferent reports that config diff found differences. They are on standard output.
var errDifferent = errors.New("differences found")

// errNotValid reports that keys verify found a key that would be refused. The reason is on standard
// output.
var errNotValid = errors.New("the key is not valid")

// exitCode returns the exit status for err.
func exitCode(err error) int {
	var (
		usage       *usageError
		setting     *config.Error
		noKey       *noKeyError
		noContext   *noContextError
		notFound    *notFoundError
		ambiguous   *ambiguousError
		refused     *client.Error
		unreachable *client.UnreachableError
		local       *fault.Error
		altered     *audit.Problem
		notSynced   *syncError
		aborted     *abortedError
	)
	switch {
	case err == nil:
		return exitDone
	case errors.Is(err, errDifferent):
		return exitDifferent
	case errors.As(err, &usage):
		return exitUsage
	case errors.As(err, &setting):
		if setting.Origin.Kind == config.Flag {
			return exitUsage
		}
		return exitFailed
	case errors.As(err, &altered), errors.As(err, &notSynced), errors.As(err, &aborted):
		return exitConflict
	case errors.As(err, &noKey):
		return exitUnauthorized
	case errors.As(err, &noContext), errors.As(err, &notFound):
		return exitNotFound
	case errors.As(err, &ambiguous):
		return exitConflict
	case errors.As(err, &unreachable):
		return exitUnreachable
	case errors.As(err, &refused):
		if refused.Code == "" { // not a response of Keygate
			return exitFailed
		}
		return exitOfStatus(refused.Status)
	case errors.As(err, &local):
		return exitOfStatus(local.Code.Status())
	default:
		return exitFailed
	}
}

func exitOfStatus(status int) int {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return exitUnauthorized
	case http.StatusNotFound:
		return exitNotFound
	case http.StatusBadRequest, http.StatusConflict, http.StatusPreconditionFailed, http.StatusRequestEntityTooLarge,
		http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity:
		return exitConflict
	default:
		return exitFailed
	}
}

// messages returns the text of err for the user: a message for each problem of an invalid request,
// else one message. If the input was wrong, this is the public message alone; if an operation
// failed, it is the whole chain of errors.
func messages(err error) []string {
	var local *fault.Error
	var refused *client.Error
	var mistakes *mistakesError
	var unreachable *client.UnreachableError
	var out []string
	switch {
	case errors.As(err, &mistakes):
		out = append(out, mistakes.text)
	case errors.As(err, &local) && exitOfStatus(local.Code.Status()) != exitFailed:
		out = append(out, problemLine(local.Field, local.Message))
		for _, p := range local.Problems[min(1, len(local.Problems)):] {
			out = append(out, problemLine(p.Field, p.Message))
		}
	case errors.As(err, &refused):
		out = append(out, err.Error())
		for _, p := range refused.Problems[min(1, len(refused.Problems)):] {
			name := ""
			if p.Field != nil {
				name = *p.Field
			}
			out = append(out, problemLine(name, p.Message))
		}
	case errors.As(err, &unreachable):
		out = append(out, err.Error())
		if remedy := remedyOf(unreachable); remedy != "" {
			out = append(out, remedy)
		}
	default:
		out = append(out, err.Error())
	}
	return out
}

// problemLine returns the message about a field, or, for "", about the whole request.
func problemLine(field, message string) string {
	if field == "" {
		return message
	}
	return field + ": " + message
}
