package apply

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/fault"
)

// FileError says what is wrong with a file, or why the server does not take it.
type FileError struct {
	Name    string // of the file
	Secrets Secrets
	Err     error
}

// Error returns the name of the file and the error, without secrets.
func (e *FileError) Error() string { return e.Name + ": " + e.Secrets.Hide(e.Err.Error()) }

// Unwrap returns the error without the name of the file.
func (e *FileError) Unwrap() error { return e.Err }

// Errors is what is wrong with some of the files that were read or compared.
type Errors struct {
	Files int // number of files, including the valid ones
	List  []*FileError
}

// Error returns the first error, and how many more there are.
func (e *Errors) Error() string {
	if more := len(e.List) - 1; more > 0 {
		return fmt.Sprintf("%v (and %d more)", e.List[0], more)
	}
	return e.List[0].Error()
}

// Unwrap returns the first error.
func (e *Errors) Unwrap() error { return e.List[0] }

func (e *Errors) add(f *File, err error) {
	e.List = append(e.List, &FileError{Name: f.Name, Secrets: f.Secrets, Err: err})
}

// err returns e, or nil if it has no errors.
func (e *Errors) err() error {
	if len(e.List) == 0 {
		return nil
	}
	return e
}

// AmbiguousError says that several gateways have the name of one.
type AmbiguousError struct {
	Name     string
	Gateways []client.Gateway
}

// Error names the gateways.
func (e *AmbiguousError) Error() string {
	text := fmt.Sprintf("%q is the name of several gateways", e.Name)
	for i, g := range e.Gateways {
		text += map[bool]string{true: ": ", false: ", "}[i == 0] + g.GatewayID
	}
	return text
}

// isAboutFile reports whether an error is about one file alone, so that other files may be tried.
func isAboutFile(err error) bool {
	var refused *client.Error
	var local *fault.Error
	status := 0
	switch {
	case errors.As(err, &refused):
		if status = refused.Status; refused.Code == "" { // not a response of Keygate
			return false
		}
	case errors.As(err, &local):
		status = local.Code.Status()
	}
	switch status {
	case http.StatusBadRequest, http.StatusNotFound, http.StatusConflict, http.StatusPreconditionFailed, http.StatusRequestEntityTooLarge,
		http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity:
		return true
	}
	return false
}
