// Package telemetry holds what operators watch: logs, metrics, and the
// listener that answers whether the server lives and is ready (contract,
// section 1).
package telemetry

import (
	"io"
	"log/slog"

	"golang.org/x/term"

	"github.com/keygate/keygate/internal/apikey"
)

// NewLogger returns a logger to w. level is debug, info, warn or error; format
// is text, json, or auto, which is text if w is a terminal and else JSON. Package
// config has checked both.
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
