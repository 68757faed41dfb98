package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Error is an answer that refuses a call (specification, Errors; contract,
// section 2).
type Error struct {
	Status     int           // of HTTP
	Code       string        // the member "error", as in validation_failed
	Message    string        // for people
	Field      string        // dotted path of the offending field, or ""
	AuthCode   string        // key_invalid, key_expired, scope_insufficient, or ""
	RequestID  string        // what the server's log has the call under
	RetryAfter time.Duration // of a rate limit: how long to wait; else 0
}

func (e *Error) Error() string {
	var b strings.Builder
	if e.Field != "" {
		b.WriteString(e.Field + ": ")
	}
	b.WriteString(e.Message)
	if e.RequestID != "" && e.Status >= http.StatusInternalServerError {
		b.WriteString(" (" + e.RequestID + ")")
	}
	return b.String()
}

// UnreachableError tells that a call got no answer.
type UnreachableError struct {
	URL string // of the server
	Err error
}

func (e *UnreachableError) Error() string {
	return fmt.Sprintf("cannot reach the server at %s: %v", e.URL, e.Err)
}

func (e *UnreachableError) Unwrap() error { return e.Err }

// IsNotFound reports whether err is the answer that there is no such record.
func IsNotFound(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Status == http.StatusNotFound
}

// errorOf reads an answer that refuses. One that does not come from Keygate
// still gives an error that says what came.
func errorOf(res *http.Response, content []byte) *Error {
	e := &Error{Status: res.StatusCode, RequestID: res.Header.Get("X-Request-Id")}
	var body struct {
		Error, Message, Field, Code string
		RequestID                   string `json:"request_id"`
	}
	if err := json.Unmarshal(content, &body); err == nil && body.Error != "" {
		e.Code, e.Message, e.Field, e.AuthCode = body.Error, body.Message, body.Field, body.Code
		if body.RequestID != "" {
			e.RequestID = body.RequestID
		}
	} else {
		e.Message = fmt.Sprintf("the server answered %s without an error of Keygate's: is this the address of the management API?", res.Status)
	}
	if n, err := strconv.Atoi(res.Header.Get("Retry-After")); err == nil && n > 0 {
		e.RetryAfter = time.Duration(n) * time.Second
	}
	return e
}
