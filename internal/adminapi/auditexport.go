package adminapi

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/ratelimit"
)

// The media types of exports, by format.
const (
	jsonlType = "application/jsonl"
	csvType   = "text/csv"
)

// formatParam is the parameter that makes the list of the audit log an export.
func formatParam() queryParam {
	return enumParam("format", "Return all matching records in one response, oldest first, instead of a page: jsonl for one JSON object per line, csv for one row per line, after a row with the names of the columns. "+
		"limit and cursor cannot be used with it.", string(audit.JSONL), string(audit.CSV))
}

// exportAuditLog streams all records that f matches, oldest first (contract, section 7).
func (a *API) exportAuditLog(c *call, f audit.Filter) (response, error) {
	var problems []fault.Problem
	for _, name := range []string{"limit", "cursor"} {
		if c.query.Has(name) {
			problems = append(problems, fault.Problem{Field: name, Message: "cannot be used with format, which returns all records"})
		}
	}
	if len(problems) > 0 {
		return response{}, fault.InvalidAll(problems)
	}
	if c.invalid != nil {
		return response{}, nil
	}
	format, media := audit.JSONL, jsonlType
	if c.query.Get("format") == string(audit.CSV) {
		format, media = audit.CSV, csvType
	}
	if err := a.exports.enter(c); err != nil {
		return response{}, err
	}
	export, err := a.cfg.Control.ExportAudit(c.ctx, &c.caller, f)
	if err != nil {
		a.exports.leave(c.caller.Account.ID)
		return response{}, err
	}
	res := response{status: 200, stream: &stream{
		write: func(emit func([]byte) error) error {
			return a.exports.write(c.ctx, export, audit.NewLineEncoder(format, appendAudit), emit)
		},
		end: func() { a.exports.leave(c.caller.Account.ID) },
	}}
	return res.with("Content-Type", media), nil
}

// appendAudit appends a record as the list has it, and a line feed.
func appendAudit(dst []byte, r *audit.Record) ([]byte, error) {
	line, err := encode(presentAudit(r))
	return append(dst, line...), err
}

// The most exports at the same time, and how long a caller is told to wait for one to end.
const (
	exportsOfAccount = 2
	exportsInAll     = 8
	exportWait       = 10 * time.Second
)

// exports bounds the exports that run at the same time, and their share of the processor.
type exports struct {
	mu       sync.Mutex
	accounts map[string]int // number of exports that run, by account
	all      int

	// turns has a token for each export that reads and encodes at a moment: half of the
	// cores, at least one. An export that waits for its client has none.
	turns chan struct{}
}

func newExports() *exports {
	return &exports{accounts: map[string]int{}, turns: make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2))}
}

// enter counts an export of the caller's account. If there are too many, the error is a 429.
func (e *exports) enter(c *call) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	account := c.caller.Account.ID
	most, whose := int64(exportsOfAccount), "of this account"
	if e.accounts[account] < exportsOfAccount {
		if e.all < exportsInAll {
			e.accounts[account]++
			e.all++
			return nil
		}
		most, whose = exportsInAll, "of all accounts"
	}
	resetAt := c.now.Add(exportWait + time.Second - 1).Unix()
	for name, value := range map[string]int64{"X-RateLimit-Limit": most, "X-RateLimit-Remaining": 0, "X-RateLimit-Reset": resetAt} {
		c.header[name] = []string{strconv.FormatInt(value, 10)} // not Set: see setLimitHeaders
	}
	c.header.Set("Retry-After", strconv.Itoa(int(exportWait/time.Second)))
	return &fault.Error{
		Code:    fault.RateLimitExceeded,
		Message: fmt.Sprintf("%d exports %s are running, and that is the maximum: retry when one has ended", most, whose),
		Limit:   &fault.Limit{Limit: most, ResetAt: resetAt, Scope: ratelimit.AccountScope.String()},
	}
}

func (e *exports) leave(account string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all--
	if e.accounts[account]--; e.accounts[account] == 0 {
		delete(e.accounts, account)
	}
}

// write encodes an export with to, and calls emit for each piece.
func (e *exports) write(ctx context.Context, export *control.AuditExport, to *audit.LineEncoder, emit func([]byte) error) error {
	if header := to.Header(); header != nil {
		if err := emit(header); err != nil {
			return err
		}
	}
	waiting := func(lines []byte) error { // the client's time is not a turn
		<-e.turns
		err := emit(lines)
		e.turns <- struct{}{}
		return err
	}
	for {
		step, err := export.Read(ctx)
		if err != nil || step == nil {
			return err
		}
		e.turns <- struct{}{}
		err = step.Encode(to, waiting)
		<-e.turns
		if err != nil {
			return err
		}
	}
}

// auditQuery returns the parameters of the audit log.
func auditQuery() []queryParam {
	return slices.Concat(pageParams(), auditFilters(), []queryParam{formatParam()})
}
