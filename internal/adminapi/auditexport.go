package adminapi

import (
	"context"
	"slices"

	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
)

// The media types of exports, by format.
const (
	jsonlType = "application/jsonl"
	csvType   = "text/csv"
)

// incompleteHeader says why an export lacks the newest records.
const incompleteHeader = "X-Keygate-Incomplete"

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
		return response{}, fault.InvalidAll(problems, 0)
	}
	if c.invalid != nil {
		return response{}, nil
	}
	format, media := audit.JSONL, jsonlType
	if c.query.Get("format") == string(audit.CSV) {
		format, media = audit.CSV, csvType
	}
	slot, err := a.exports.enter(c)
	if err != nil {
		return response{}, err
	}
	export, err := a.cfg.Control.ExportAudit(c.ctx, &c.actor, f)
	if err != nil {
		a.exports.leave(slot)
		return response{}, err
	}
	res := response{status: 200, stream: &stream{
		write: func(emit func([]byte) error) error {
			return a.exports.write(c.ctx, export, audit.NewLineEncoder(format, appendAudit), emit)
		},
		slot: slot,
		end:  func() { a.exports.leave(slot) },
	}}
	if missing := c.completeness.Missing; missing != "" {
		res = res.with(incompleteHeader, missing)
	}
	return res.with("Content-Type", media), nil
}

// appendAudit appends a record as the list has it, and a line feed.
func appendAudit(dst []byte, r *audit.Record) ([]byte, error) {
	line, err := encode(presentAudit(r))
	return append(dst, line...), err
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
