// Package telemetry has the logs, the Prometheus metrics, and the handler of /livez,
// /readyz and /metrics (contract, section 1). Traces are in its package trace.
package telemetry

import (
	"fmt"
	"io"
	"log"
	"log/slog"
	"strings"

	"golang.org/x/term"

	"github.com/keygate/keygate/internal/apikey"
)

// maxText is the most bytes of the text of an attribute. Some texts come from others: what an upstream, a Git server or the
// limit store has answered, in an error.
const maxText = 16 << 10

// NewLogger returns a logger that writes to w, redacts API keys in string and error
// attributes, and cuts them to maxText bytes. level is debug, info, warn or error. format is text, json or auto, which
// means text if w is a terminal and JSON otherwise. Package config validates both.
func NewLogger(w io.Writer, level, format string) *slog.Logger {
	options := &slog.HandlerOptions{Level: slog.LevelInfo, ReplaceAttr: clean}
	switch level {
	case "debug":
		options.Level = slog.LevelDebug
	case "warn":
		options.Level = slog.LevelWarn
	case "error":
		options.Level = slog.LevelError
	}
	if format == "auto" && !isTerminal(w) {
		format = "json"
	}
	if format == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}

// TakeStandardLog makes what packages write with the standard library's package log lines of l, at the level debug. net/http,
// for example, logs bytes that a server has sent unasked there, and would write them to standard error itself: past the format,
// the level and the Output, whose writes wait for nobody. restore undoes this. It is for the process, not for a server in it.
func TakeStandardLog(l *slog.Logger) (restore func()) {
	output, flags, prefix := log.Writer(), log.Flags(), log.Prefix()
	log.SetOutput(slog.NewLogLogger(l.Handler(), slog.LevelDebug).Writer())
	log.SetFlags(0)
	log.SetPrefix("")
	return func() {
		log.SetOutput(output)
		log.SetFlags(flags)
		log.SetPrefix(prefix)
	}
}

// clean redacts API keys in the text of an attribute, and cuts it.
func clean(_ []string, a slog.Attr) slog.Attr {
	text := ""
	switch a.Value.Kind() {
	case slog.KindString:
		text = a.Value.String()
	case slog.KindAny:
		if err, ok := a.Value.Any().(error); ok {
			text = err.Error()
		}
	}
	if plain := cut(apikey.Redact(text)); plain != text {
		a.Value = slog.StringValue(plain)
	}
	return a
}

// cut returns the begin of a text that is too long, and how many bytes it lacks.
func cut(text string) string {
	if len(text) <= maxText {
		return text
	}
	begin := strings.ToValidUTF8(text[:maxText], "")
	return fmt.Sprintf("%s… (%d bytes more)", begin, len(text)-len(begin))
}

func isTerminal(w io.Writer) bool {
	file, ok := w.(interface{ Fd() uintptr })
	return ok && term.IsTerminal(int(file.Fd()))
}
