// Package fault defines the errors that a client may see: their codes, public messages and
// HTTP statuses, and Response, the one function that turns an error into an HTTP response
// (contract, section 2). It imports no other package of Keygate.
package fault

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
)

// Code is the machine-readable error code, the property "error" of an error body.
type Code string

// The error codes of the data plane and the management API. Code.Status returns the status
// that belongs to each.
const (
	InvalidJSON          Code = "invalid_json"
	InvalidRequest       Code = "invalid_request"
	Unauthorized         Code = "unauthorized"
	Forbidden            Code = "forbidden"
	NotFound             Code = "not_found"
	MethodNotAllowed     Code = "method_not_allowed"
	Conflict             Code = "conflict"
	PreconditionFailed   Code = "precondition_failed"
	BodyTooLarge         Code = "body_too_large"
	UnsupportedMediaType Code = "unsupported_media_type"
	ValidationFailed     Code = "validation_failed"
	RateLimitExceeded    Code = "rate_limit_exceeded"
	Internal             Code = "internal"
	Unavailable          Code = "unavailable"

	// Of the sign-in of a device (RFC 8628, section 3.5; RFC 6749, section 5.2).
	AuthorizationPending Code = "authorization_pending"
	SlowDown             Code = "slow_down"
	AccessDenied         Code = "access_denied"
	ExpiredToken         Code = "expired_token"
	InvalidGrant         Code = "invalid_grant"
	InvalidClient        Code = "invalid_client"
	UnsupportedGrantType Code = "unsupported_grant_type"

	// Only on the data plane.
	GatewayNotFound      Code = "gateway_not_found"
	RouteNotFound        Code = "route_not_found"
	TargetTooLong        Code = "target_too_long"
	HeaderTooLarge       Code = "header_too_large"
	UpstreamUnreachable  Code = "upstream_unreachable"
	UpstreamTimeout      Code = "upstream_timeout"
	ProtocolNotSupported Code = "protocol_not_supported"
	VersionNotSupported  Code = "version_not_supported"
)

// Status returns the HTTP status of c. It is 500 for an unknown code.
func (c Code) Status() int {
	switch c {
	case InvalidJSON, InvalidRequest, AuthorizationPending, SlowDown, AccessDenied, ExpiredToken, InvalidGrant, InvalidClient, UnsupportedGrantType:
		return http.StatusBadRequest
	case Unauthorized:
		return http.StatusUnauthorized
	case Forbidden:
		return http.StatusForbidden
	case NotFound, GatewayNotFound, RouteNotFound:
		return http.StatusNotFound
	case MethodNotAllowed:
		return http.StatusMethodNotAllowed
	case Conflict:
		return http.StatusConflict
	case PreconditionFailed:
		return http.StatusPreconditionFailed
	case BodyTooLarge:
		return http.StatusRequestEntityTooLarge
	case UnsupportedMediaType:
		return http.StatusUnsupportedMediaType
	case ValidationFailed:
		return http.StatusUnprocessableEntity
	case RateLimitExceeded:
		return http.StatusTooManyRequests
	case Unavailable:
		return http.StatusServiceUnavailable
	case TargetTooLong:
		return http.StatusRequestURITooLong
	case HeaderTooLarge:
		return http.StatusRequestHeaderFieldsTooLarge
	case UpstreamUnreachable:
		return http.StatusBadGateway
	case UpstreamTimeout:
		return http.StatusGatewayTimeout
	case ProtocolNotSupported:
		return http.StatusNotImplemented
	case VersionNotSupported:
		return http.StatusHTTPVersionNotSupported
	default:
		return http.StatusInternalServerError
	}
}

// AuthCode is the property "code" of the body of a 401 or 403 (specification,
// Authentication, 6), and of the 503 of a gateway under maintenance (edge.md, section 1).
type AuthCode string

// The authentication codes, and those of refusals whatever the key.
const (
	KeyInvalid        AuthCode = "key_invalid"
	KeyExpired        AuthCode = "key_expired"
	ScopeInsufficient AuthCode = "scope_insufficient"
	OwnerSuspended    AuthCode = "owner_suspended"
	AddressNotAllowed AuthCode = "address_not_allowed"
	UnderMaintenance  AuthCode = "maintenance"
	TokenInvalid      AuthCode = "token_invalid"
	TokenExpired      AuthCode = "token_expired"
	SchemaMismatch    AuthCode = "schema_mismatch"

	ReauthenticationRequired AuthCode = "reauthentication_required"
)

// Limit describes the rate limit that refused a request (contract, 4.3).
type Limit struct {
	Limit     int64  // capacity of the limit that refused
	Remaining int64  // whole requests left; always 0
	ResetAt   int64  // Unix time in seconds at which the request would be admitted
	Scope     string // key, route, daily, plan, global, anonymous, self_service or account
	Name      string // <plan>.<limit>, for the scope plan
	Units     *Units // of a limit that counts a meter; nil for a limit of requests
	Window    int64  // seconds in which the limit fills up, where an error is made without one of package ratelimit; in no response body
}

// Units is what is left of a limit that counts a meter, and what the request needs of it.
type Units struct{ Left, Needed int64 }

// Error is an error with a public message. Message says what to do and contains neither
// secrets nor internal text. Err may contain both, and is never sent to a client.
type Error struct {
	Code    Code
	Message string
	Field   string // dotted path of the field that is wrong, or ""
	// Problems lists everything that is wrong, for ValidationFailed and where a Conflict concerns several items of a
	// request: the first one has the same Field and Message as the error. nil means that Field and Message are the only problem.
	Problems []Problem
	LeftOut  int      // how many problems there are beyond Problems, as far as they were counted
	Auth     AuthCode // for Unauthorized and Forbidden
	Limit    *Limit   // for RateLimitExceeded
	Err      error    // the cause, for the log
}

// Problem is one item of the property "errors" of the body of a 422 (contract, sections 2
// and 5). Line and Column are 1-based, and 0 if a position would not help.
type Problem struct {
	Field   string `json:"field,omitempty"`
	Message string `json:"message"`
	Line    int    `json:"line,omitempty"`
	Column  int    `json:"column,omitempty"`

	// In and Pointer say what is wrong in a request that does not meet the OpenAPI document of its gateway (edge.md, section 6):
	// the part of the request, and a JSON pointer in it.
	In      string  `json:"place,omitempty"`
	Pointer *string `json:"pointer,omitempty"`
}

// Bounds of what is said of an invalid document or request.
const (
	// MaxProblems is how many problems one response lists.
	MaxProblems = 50
	// MaxCounted is how many problems of a document are counted. Then its check ends.
	MaxCounted = 1000
)

// problems returns e.Problems, or the one problem that Field and Message describe.
func (e *Error) problems() []Problem {
	if len(e.Problems) > 0 {
		return e.Problems
	}
	return []Problem{{Field: e.Field, Message: e.Message}}
}

// ProblemsOf returns everything that a validation error says is wrong. It returns nil for any
// other error.
func ProblemsOf(err error) []Problem {
	var e *Error
	if !errors.As(err, &e) || e.Code != ValidationFailed {
		return nil
	}
	return e.problems()
}

// LeftOut returns how many problems there are beyond those of ProblemsOf.
func LeftOut(err error) int {
	var e *Error
	if !errors.As(err, &e) {
		return 0
	}
	return e.LeftOut
}

// InvalidAll returns the validation error for problems, of which it lists at most
// MaxProblems, or nil if there are none. leftOut is how many more there are.
func InvalidAll(problems []Problem, leftOut int) error {
	if len(problems) == 0 {
		return nil
	}
	leftOut += max(0, len(problems)-MaxProblems)
	problems = problems[:min(len(problems), MaxProblems)]
	return &Error{Code: ValidationFailed, Field: problems[0].Field, Message: problems[0].Message, Problems: problems, LeftOut: leftOut}
}

// Join returns one error for all errs that are not nil, or nil if every error is nil. The
// validation errors among them become a single one, which lists at most MaxProblems of their
// problems in order. Any other error takes precedence, and is returned alone.
func Join(errs ...error) error {
	var all []Problem
	var only error
	leftOut := 0
	for _, err := range errs {
		if err == nil {
			continue
		}
		problems := ProblemsOf(err)
		if problems == nil {
			return err
		}
		if only = err; len(all) > 0 {
			only = nil
		}
		all = append(all, problems...)
		leftOut += LeftOut(err)
	}
	if only != nil {
		return only
	}
	return InvalidAll(all, leftOut)
}

func (e *Error) Error() string {
	s := string(e.Code) + ": " + e.Message
	if e.Field != "" {
		s += " (field " + e.Field + ")"
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

func (e *Error) Unwrap() error { return e.Err }

// New returns an error with the given code and public message.
func New(c Code, format string, args ...any) *Error {
	return &Error{Code: c, Message: fmt.Sprintf(format, args...)}
}

// Invalid returns the validation error (422) for one field.
func Invalid(field, format string, args ...any) *Error {
	return &Error{Code: ValidationFailed, Field: field, Message: fmt.Sprintf(format, args...)}
}

// Prefixed returns err with prefix prepended to the fields of a validation error: the prefix
// "rate_limit" turns "burst" into "rate_limit.burst". It returns any other error unchanged.
func Prefixed(prefix string, err error) error {
	var e *Error
	if !errors.As(err, &e) || e.Code != ValidationFailed {
		return err
	}
	moved := *e
	moved.Field = under(prefix, e.Field)
	moved.Problems = slices.Clone(e.Problems)
	for i := range moved.Problems {
		moved.Problems[i].Field = under(prefix, moved.Problems[i].Field)
	}
	return &moved
}

// under returns the dotted path of field below prefix.
func under(prefix, field string) string {
	switch {
	case field == "":
		return prefix
	case field[0] == '[':
		return prefix + field
	default:
		return prefix + "." + field
	}
}

// Missing returns the error (404) for an identifier that does not exist or is not visible
// to the client. what is the kind of record, as in "gateway".
func Missing(what string) *Error {
	return New(NotFound, "there is no such %s", what)
}

// Denied returns the error (403) for a valid key whose scope does not allow the request.
func Denied(format string, args ...any) *Error {
	return &Error{Code: Forbidden, Auth: ScopeInsufficient, Message: fmt.Sprintf(format, args...)}
}

// CodeOf returns the code of err: Internal if err wraps no *Error, and "" if err is nil.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return Internal
}

// body is the JSON error body of the data plane and the management API (specification,
// Errors).
type body struct {
	Error   Code   `json:"error"`
	Message string `json:"message"`
	members
}

// members are what a body says beside the code and the message.
type members struct {
	Field      string    `json:"field,omitempty"`
	Errors     []Problem `json:"errors,omitempty"`
	LeftOut    int       `json:"errors_left_out,omitempty"`
	Code       AuthCode  `json:"code,omitempty"`
	Limit      *int64    `json:"limit,omitempty"`
	Remaining  *int64    `json:"remaining,omitempty"`
	ResetAt    *int64    `json:"reset_at,omitempty"`
	LimitScope string    `json:"limit_scope,omitempty"`
	LimitName  string    `json:"limit_name,omitempty"`
	UnitsLeft  *int64    `json:"units_left,omitempty"`
	UnitsNeed  *int64    `json:"units_needed,omitempty"`
	RequestID  string    `json:"request_id"`
}

func membersOf(e *Error, requestID string) members {
	m := members{Field: e.Field, Code: e.Auth, RequestID: requestID}
	if e.Code == ValidationFailed || len(e.Problems) > 0 {
		m.Errors, m.LeftOut = e.problems(), e.LeftOut
	}
	if e.Limit != nil {
		m.Limit, m.Remaining, m.ResetAt, m.LimitScope = &e.Limit.Limit, &e.Limit.Remaining, &e.Limit.ResetAt, e.Limit.Scope
		m.LimitName = e.Limit.Name
		if u := e.Limit.Units; u != nil {
			m.UnitsLeft, m.UnitsNeed = &u.Left, &u.Needed
		}
	}
	return m
}

// public returns the error that a client may see for err.
func public(err error) *Error {
	var e *Error
	if !errors.As(err, &e) {
		e = New(Internal, "an internal error occurred; look for this request_id in the server's log")
	}
	return e
}

// MessageOf returns the message that Response puts into the body for err.
func MessageOf(err error) string { return public(err).Message }

// Response returns the HTTP status and JSON body, a line, for err (specification, Errors; contract,
// section 2). It and Format.Response are the only places where an error becomes a response. If err wraps no
// *Error, the response is a 500 without detail.
func Response(err error, requestID string) (status int, response []byte) {
	e := public(err)
	return e.Code.Status(), encode(body{Error: e.Code, Message: e.Message, members: membersOf(e, requestID)})
}

// encode marshals b without HTML escapes, and ends the line, since people see it on a
// terminal. It cannot fail: b contains only strings and numbers.
func encode(b any) []byte {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if err := e.Encode(b); err != nil {
		panic("fault: " + err.Error())
	}
	return out.Bytes()
}
