package client

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Error is an error response of the server (specification, Errors; contract,
// section 2).
type Error struct {
	Status     int           // HTTP status
	Code       string        // the field error, as in validation_failed; "" if the response is not from Keygate
	Message    string        // what is wrong and how to fix it
	Field      string        // dotted path of the invalid field, name of the query parameter or header, or ""
	Problems   []Problem     // everything that is wrong with the request, the first as in Field and Message; nil unless Status is 422, or 409 for several items of a request
	LeftOut    int           // how many problems of a document there are beyond Problems, as far as the server counted them
	AuthCode   string        // the field code: key_invalid, key_expired or scope_insufficient; "" unless Status is 401 or 403
	RequestID  string        // identifies the request in the server's log
	RetryAfter time.Duration // how long to wait before retrying, in whole seconds; 0 if the response does not say
}

// Error returns the field and the message of the first problem. For a status of 500 or
// more it adds the request ID.
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

// UnreachableError means that a call got no complete response: the connection
// could not be made or failed, or the call timed out. The server may have executed
// the call.
type UnreachableError struct {
	URL string // Config.URL
	Err error  // the cause
}

func (e *UnreachableError) Error() string {
	return fmt.Sprintf("cannot reach the server at %s: %v", e.URL, e.Err)
}

// Unwrap returns the cause.
func (e *UnreachableError) Unwrap() error { return e.Err }

// IsNotFound reports whether err is an *Error with status 404: the account has no
// such record.
func IsNotFound(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Status == http.StatusNotFound
}

// isGateway reports whether an error of Keygate comes from its data plane. A 401 of the management API has no headers of a
// limit, because it is known of no key, and the API has no code for a gateway or route that was not found.
func isGateway(res *http.Response, code string) bool {
	limited := res.Header.Get("X-RateLimit-Limit") != "" && res.StatusCode == http.StatusUnauthorized
	return limited || code == "gateway_not_found" || code == "route_not_found"
}

// errorOf returns the error of a response. A response that is not an error of
// Keygate gives an Error without a Code.
func errorOf(res *http.Response, content []byte) *Error {
	e := &Error{Status: res.StatusCode, RequestID: res.Header.Get("X-Request-Id")}
	var body struct {
		Error, Message, Field, Code string
		Errors                      []Problem
		LeftOut                     int    `json:"errors_left_out"`
		RequestID                   string `json:"request_id"`
	}
	if err := json.Unmarshal(content, &body); err == nil && body.Error != "" {
		e.Code, e.Message, e.Field, e.Problems, e.LeftOut, e.AuthCode = body.Error, body.Message, body.Field, body.Errors, body.LeftOut, body.Code
		if body.RequestID != "" {
			e.RequestID = body.RequestID
		}
		if isGateway(res, e.Code) {
			e.Message = "this is the address of a gateway, and not of the management API, which has a port of its own (8081 by default). The gateway says: " + e.Message
		}
	} else if res.StatusCode == http.StatusBadRequest && bytes.Contains(content, []byte("Client sent an HTTP request to an HTTPS server")) {
		e.Message = "the server speaks TLS at this port: give its address as https://"
	} else {
		e.Message = fmt.Sprintf("unexpected response %q, which is not from Keygate: is this the address of the management API?", res.Status)
	}
	if n, err := strconv.Atoi(res.Header.Get("Retry-After")); err == nil && n > 0 {
		e.RetryAfter = time.Duration(n) * time.Second
	}
	return e
}
