// Package terminal is how commands read from people and write for them and for programs: records and
// lists in the formats of -o, tables that fit the terminal, colours, jq filters, Markdown, messages,
// prompts and questions. It knows nothing of the API.
package terminal

import (
	"context"
	"io"

	"github.com/itchyny/gojq"
)

// Console is the streams of a command, and the flags that control what is written to them.
type Console struct {
	In  io.Reader
	Out io.Writer // only data
	Err io.Writer // messages
	// Env returns the value of an environment variable and whether it is set.
	Env func(name string) (string, bool)

	Context   context.Context //nolint:containedctx // of the command, which ends filters
	Format    string          // -o
	Printed   string          // field of records that -o id or -o name prints
	Colour    string          // --color
	Filter    *gojq.Code      // --jq; nil without it
	NoHeaders bool            // --no-headers
	Yes       bool            // --yes
}
