// Package telemetry holds what operators watch: logs, metrics, and the
// listener that answers whether the server lives and is ready (contract,
// section 1).
package telemetry

import (
	"io"
	"log/slog"

	"golang.org/x/term"
)

// NewLogger returns a logger to w. level is debug, info, warn or error; format
// is text, json, or auto, which is text if w is a terminal and else JSON. Package
// config has checked both.
func NewLogger(w io.Writer, level, format string) *slog.Logger {
	options := &slog.HandlerOptions{Level: slog.LevelInfo}
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

func isTerminal(w io.Writer) bool {
	file, ok := w.(interface{ Fd() uintptr })
	return ok && term.IsTerminal(int(file.Fd()))
}
