package validate

import "fmt"

// MaxProblems is the number of problems of one request that are found.
const MaxProblems = 10

// The statuses of a refusal.
const (
	statusInvalid     = 400
	statusTooLarge    = 413
	statusUnsupported = 415
)

// The parts of a request that a Problem is in.
const (
	InPath        = "path"
	InQuery       = "query"
	InHeader      = "header"
	InCookie      = "cookie"
	InContentType = "content_type"
	InBody        = "body"
)

// Problem is what a request does otherwise than its document says. It has no value of the request.
type Problem struct {
	// In is the part of the request, one of those above.
	In string
	// Pointer is a JSON pointer to the value in that part: its first token is the name of a parameter. It may have names
	// that the caller has made up, so it is for the caller only. It has at most 260 bytes.
	Pointer string
	// Schema is a JSON pointer in the document: the schema, parameter or body that is not met.
	Schema string
	// Rule is the keyword of the schema that is not met, or a word for what is wrong with the request itself, such as
	// "required", "duplicate", "syntax" or "media_type".
	Rule string
	// Message says what must be, such as "must be ≥ 1".
	Message string
	// Status is that of a refusal because of it: 400, 413 or 415.
	Status int
}

// String returns the problem for people.
func (p Problem) String() string {
	return fmt.Sprintf("%s %s %s (%s at %s)", p.In, p.Pointer, p.Message, p.Rule, p.Schema)
}
