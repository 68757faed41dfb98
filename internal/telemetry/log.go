// Package telemetry has the logs, the Prometheus metrics, and the handler of /livez,
// /readyz and /metrics (contract, section 1). Traces are in its package trace.
package telemetry

import (
	"io"
	"log/slog"

	"golang.org/x/term"

	"github.com/keygate/keygate/internal/apikey"
)

// NewLogger returns a logger that writes to w and redacts API keys in string and error
// attributes. level is debug, info, warn or error. format is text, json or auto, which
// means text if w is a terminal and JSON otherwise. Package config validates both.
func NewLogger(w io.Writer, level, format string) *slog.Logger {
	options := &slog.HandlerOptions{Level: slog.LevelInfo, ReplaceAttr: withoutKeys}
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

// withoutKeys redacts API keys in the text of an attribute.
func withoutKeys(_ []string, a slog.Attr) slog.Attr {
	text := ""
	switch a.Value.Kind() {
	case slog.KindString:
		text = a.Value.String()
	case slog.KindAny:
		if err, ok := a.Value.Any().(error); ok {
			text = err.Error()
		}
	}
	if plain := apikey.Redact(text); plain != text {
		a.Value = slog.StringValue(plain)
	}
	return a
}

func isTerminal(w io.Writer) bool {
	file, ok := w.(interface{ Fd() uintptr })
	return ok && term.IsTerminal(int(file.Fd()))
}
