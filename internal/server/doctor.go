package server

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/keygate/keygate/internal/config"
)

// FindingStatus says how good a Finding is.
type FindingStatus string

// The statuses of findings. A server with a problem does not start, or does not keep its promises; a
// server with a warning serves.
const (
	FindingOK      FindingStatus = "ok"
	FindingWarning FindingStatus = "warning"
	FindingProblem FindingStatus = "problem"
)

// Finding is the result of one check of Examine.
type Finding struct {
	Check   string        `json:"check"`
	Status  FindingStatus `json:"status"`
	Message string        `json:"message"`
	Remedy  string        `json:"remedy,omitempty"` // what to do; "" if there is nothing to do
}

// examineTimeout bounds the checks of one store.
const examineTimeout = 20 * time.Second

// findings collects the results of checks.
type findings struct{ list []Finding }

func (f *findings) ok(check, format string, args ...any) {
	f.list = append(f.list, Finding{check, FindingOK, inOneLine(format, args...), ""})
}

func (f *findings) warn(check, remedy, format string, args ...any) {
	f.list = append(f.list, Finding{check, FindingWarning, inOneLine(format, args...), remedy})
}

func (f *findings) problem(check, remedy, format string, args ...any) {
	f.list = append(f.list, Finding{check, FindingProblem, inOneLine(format, args...), remedy})
}

// inOneLine formats a message that may contain the error of a library, which may have several lines.
func inOneLine(format string, args ...any) string {
	return strings.Join(strings.Fields(fmt.Sprintf(format, args...)), " ")
}

// Examine checks whether a server with these settings can start and keep its promises. It opens and
// checks things as Start does, and changes nothing: it makes no file, migrates no schema, and binds
// addresses only for a moment. A server may be running with the same settings. No Finding has a password
// or a key.
func Examine(ctx context.Context, settings *config.Config) []Finding {
	f := &findings{}
	running := f.examineDataDir(ctx, settings)
	f.examineKeyFiles(settings)
	if settings.Shared() {
		within(ctx, func(ctx context.Context) { f.examinePostgres(ctx, settings, running) })
	} else {
		f.examineDatabaseFile(ctx, settings)
	}
	if settings.Redis != nil {
		within(ctx, func(ctx context.Context) { f.examineLimitStore(ctx, settings) })
	}
	if settings.SSO.Issuer != "" {
		within(ctx, func(ctx context.Context) { f.examineSSO(ctx, settings) })
	}
	f.examineAddresses(ctx, settings, running)
	f.examineCertificates(settings)
	if settings.ACME.On() && settings.ServesAdmin() {
		within(ctx, func(ctx context.Context) { f.examineAuthority(ctx, &settings.ACME) })
	}
	f.examineFiles(settings)
	limit, set := memoryLimit()
	f.examineMemoryLimit(os.DirFS("/"), limit, set)
	f.examineClock(settings)
	return f.list
}

func within(ctx context.Context, f func(context.Context)) {
	ctx, cancel := context.WithTimeout(ctx, examineTimeout)
	defer cancel()
	f(ctx)
}
