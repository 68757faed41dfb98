package fault

import (
	"cmp"
	"net/http"
)

// Format is a form of error bodies (contract, 3.3, error_format).
type Format string

// The forms of error bodies.
const (
	FormatKeygate Format = "keygate" // as in the specification
	FormatOpenAI  Format = "openai"  // as the clients of OpenAI's API read it
	FormatProblem Format = "problem" // RFC 9457
)

// Formats returns the forms, the default first.
func Formats() []string {
	return []string{string(FormatKeygate), string(FormatOpenAI), string(FormatProblem)}
}

// ContentType returns the media type of the bodies.
func (f Format) ContentType() string {
	if f == FormatProblem {
		return "application/problem+json"
	}
	return "application/json"
}

// Response is the function Response with a body in the form f.
func (f Format) Response(err error, requestID string) (status int, response []byte) {
	e := public(err)
	switch f {
	case FormatOpenAI:
		return e.Code.Status(), encode(openAIBody(e))
	case FormatProblem:
		return e.Code.Status(), encode(problemBody{
			Type: "about:blank", Title: http.StatusText(e.Code.Status()), Status: e.Code.Status(), Detail: e.Message,
			Error: e.Code, members: membersOf(e, requestID),
		})
	default:
		return Response(err, requestID)
	}
}

// problemBody is the body of FormatProblem: a problem details object whose extension members are those of
// FormatKeygate.
type problemBody struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	Error  Code   `json:"error"`
	members
}

// openAIError is the body of FormatOpenAI.
type openAIError struct {
	Error struct {
		Message string  `json:"message"`
		Type    string  `json:"type"`
		Code    string  `json:"code"`
		Param   *string `json:"param"`
	} `json:"error"`
}

func openAIBody(e *Error) (b openAIError) {
	b.Error.Message, b.Error.Code = e.Message, cmp.Or(string(e.Auth), string(e.Code))
	if e.Field != "" {
		b.Error.Param = &e.Field
	}
	switch status := e.Code.Status(); {
	case status == http.StatusUnauthorized:
		b.Error.Type = "authentication_error"
	case status == http.StatusForbidden:
		b.Error.Type = "permission_error"
	case status == http.StatusTooManyRequests:
		b.Error.Type = "rate_limit_error"
	case status < http.StatusInternalServerError:
		b.Error.Type = "invalid_request_error"
	default:
		b.Error.Type = "server_error"
	}
	return b
}
