package adminapi

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"time"

	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/usage"
)

// cursorHeader has the cursor with which a later export has only what this one lacks.
const cursorHeader = "X-Keygate-Cursor"

// cloudEvents is a format of exported usage records, beside those of the audit log.
const cloudEvents audit.LineFormat = "cloudevents"

// usageAtOnce is about how many records of an export are read and encoded in one turn.
const usageAtOnce = 2000

// usageEntryListRecord is recordedList in another order.
type usageEntryListRecord struct {
	Data             []usageEntryRecord `json:"data" nullable:"false" doc:"One page of records: final ones in the order in which they became final."`
	NextCursor       *string            `json:"next_cursor" doc:"Cursor of the next page; null on the last page."`
	Incomplete       bool               `json:"incomplete,omitempty" doc:"true if the newest open records are missing, because the store did not take them; otherwise absent."`
	IncompleteReason string             `json:"incomplete_reason,omitempty" doc:"Why records are missing; absent if none are." example:"the newest records are missing, and are added as soon as the store takes them: the disk is full"`
}

type usageEntryRecord struct {
	UsageID     string    `json:"usage_id" doc:"Identifier of the record: 64 hexadecimal digits. The same record always has the same one, so it can be the idempotency key of a billing system." example:"5b1e1c1f6a3d4f0e9c7b2a8d6e5f4c3b2a1908f7e6d5c4b3a29180f7e6d5c4b3"`
	Sequence    int64     `json:"sequence" doc:"1 for the first record of this usage; one more for each time at which more of the same hour was counted after a record had become final." example:"1"`
	PeriodStart time.Time `json:"period_start" doc:"When the period began: an hour in UTC, or the part of it from where a window of one of the quotas began."`
	PeriodEnd   time.Time `json:"period_end" doc:"When the period ended."`
	Owner       *string   `json:"owner" doc:"External ID of the key's owner; null for a key without one." example:"customer-42"`
	OwnerID     *string   `json:"owner_id" doc:"Identifier of that owner." example:"own_01jz8y5c3te9b8r2m6q4v7x0aa"`
	KeyID       string    `json:"key_id" doc:"Key that was used." example:"key_01jz8y5c3te9b8r2m6q4v7x0dd"`
	KeyPrefix   string    `json:"key_prefix" doc:"First characters of the key." example:"kg_4tQx9Z"`
	Plan        *string   `json:"plan" doc:"Name of the plan of the key, of its owner or of the gateway, the first that there was, at the first request of the record; null without one." example:"pro"`
	GatewayID   string    `json:"gateway_id" doc:"Gateway that was called." example:"gw_01jz8y5c3te9b8r2m6q4v7x0aa"`
	RouteID     *string   `json:"route_id" doc:"Route that was called; null if it was not known." example:"rt_01jz8y5c3te9b8r2m6q4v7x0bb"`
	Meter       string    `json:"meter" doc:"What was counted: requests, bytes_in, bytes_out, or the meter of a cost of the route." example:"requests"`
	Units       int64     `json:"units" doc:"Units that were used." example:"4120"`
	Requests    int64     `json:"requests" doc:"Number of requests that used more than 0 units." example:"4120"`
	State       string    `json:"state" enum:"open,final" doc:"open while the hour runs: the figures grow. final: the record never changes."`
}

func presentUsageRecord(r *usage.Record) usageEntryRecord {
	out := usageEntryRecord{
		UsageID: r.ID, Sequence: r.Sequence, PeriodStart: r.PeriodStart, PeriodEnd: r.PeriodEnd, Owner: optionalText(r.Owner), OwnerID: optionalText(r.OwnerID),
		KeyID: r.KeyID, KeyPrefix: r.KeyPrefix, Plan: optionalText(r.Plan), GatewayID: r.GatewayID, RouteID: optionalText(r.RouteID), Meter: r.Meter,
		Units: r.Units, Requests: r.Requests, State: "open",
	}
	if r.Final {
		out.State = "final"
	}
	return out
}

func usageFilters() []queryParam {
	state := enumParam("state", "Only records in this state.", "final", "open")
	state.schema.Default = "final"
	interval := enumParam("interval", "1h returns records of hours, which are kept for 35 days; 1d returns records of the days before, which are kept for 400 days.", "1h", "1d")
	interval.schema.Default = "1h"
	return append([]queryParam{
		{name: "owner_id", doc: "Only records of keys of this owner.", schema: textSchema(), example: "own_01jz8y5c3te9b8r2m6q4v7x0aa"},
		{name: "key_id", doc: "Only records of this key.", schema: textSchema(), example: "key_01jz8y5c3te9b8r2m6q4v7x0dd"},
		{name: "gateway_id", doc: "Only records of this gateway.", schema: textSchema(), example: "gw_01jz8y5c3te9b8r2m6q4v7x0aa"},
		{name: "meter", doc: "Only records of this meter: requests, bytes_in, bytes_out, or the meter of a cost.", schema: textSchema(), example: "requests"},
		state, interval,
	}, timeRangeParams("records whose period begins")...)
}

func (a *API) usageRecordOperations() []operation {
	format := enumParam("format", "Return all matching records in one response instead of a page: jsonl for one JSON object per line, csv for one row per line, after a row with the names of the columns, cloudevents for one structured CloudEvent per line. "+
		"limit cannot be used with it. cursor can: it is that of the header X-Keygate-Cursor of an earlier export, or next_cursor of a page.", string(audit.JSONL), string(audit.CSV), string(cloudEvents))
	return []operation{{
		id: "listUsageRecords", method: http.MethodGet, path: "/v1/usage-records", tag: "Usage records",
		summary: "List usage records",
		description: "Returns how many units of each meter each key has used on each route in each hour: final records in the order in which they became final, so that nothing ever appears before a cursor; or open records, of what is not final yet, complete up to the call. " +
			"A request counts in the hour in which it began, once it was sent to the upstream. An hour becomes final seconds after its end, when all nodes have stored what they counted, and after 2 hours at the latest. What is counted later, such as a long stream, makes another record with the next sequence. " +
			"With format, returns all matching records as they are at the time of the call, in one response that may be of any length. Its header X-Keygate-Cursor is the cursor with which a later export has what this one lacks; it is valid if the response ended properly. At most 2 such responses, of this list and the audit log together, run at a time for each account, and 8 in all; one more is a 429.",
		query: slices.Concat(pageParams(), usageFilters(), []queryParam{format}), success: http.StatusOK, result: reflect.TypeFor[usageEntryListRecord](),
		media: []string{jsonlType, csvType},
		run:   a.listUsageRecords,
	}}
}

func (a *API) listUsageRecords(c *call) (response, error) {
	since, until, err := c.timeRange()
	if err != nil {
		return response{}, err
	}
	f := usage.Filter{OwnerID: c.query.Get("owner_id"), KeyID: c.query.Get("key_id"), GatewayID: c.query.Get("gateway_id"), Meter: c.query.Get("meter"), Since: since, Until: until}
	if c.query.Get("interval") == "1d" {
		f.Tier = usage.Days
	}
	read := a.cfg.Control.UsageRecords
	if c.query.Get("state") == "open" {
		read = a.cfg.Control.OpenUsage
	}
	if c.query.Has("format") {
		return a.exportUsage(c, f)
	}
	return page(c, usageList, c.cursorBinding(usageFilters()), func(p control.Page) ([]usage.Record, error) {
		return searching(c, func() ([]usage.Record, error) { return read(c.ctx, &c.actor, f, p) })
	}, func(r *usage.Record) (string, usageEntryRecord) { return r.Cursor(), presentUsageRecord(r) })
}

// usageList is the name of the list to which cursors are bound.
const usageList = "usage-records"

// exportUsage streams all records that f matches.
func (a *API) exportUsage(c *call, f usage.Filter) (response, error) {
	open := c.query.Get("state") == "open"
	var problems []fault.Problem
	if c.query.Has("limit") {
		problems = append(problems, fault.Problem{Field: "limit", Message: "cannot be used with format, which returns all records"})
	}
	if open && c.query.Has("cursor") {
		problems = append(problems, fault.Problem{Field: "cursor", Message: "cannot be used with format and state=open, which returns all open records"})
	}
	if len(problems) > 0 {
		return response{}, fault.InvalidAll(problems, 0)
	}
	binding := cursorBindingOf(c, usageList, c.cursorBinding(usageFilters()))
	after := ""
	if v := c.query.Get("cursor"); v != "" {
		var valid bool
		if after, valid = decodeCursor(binding, v); !valid {
			return response{}, invalidCursor()
		}
	}
	if c.invalid != nil {
		return response{}, nil
	}
	slot, err := a.exports.enter(c)
	if err != nil {
		return response{}, err
	}
	var export *control.UsageExport
	if open {
		export, err = searching(c, func() (*control.UsageExport, error) { return a.cfg.Control.ExportOpenUsage(c.ctx, &c.actor, f) })
	} else {
		export, err = a.cfg.Control.ExportUsage(c.ctx, &c.actor, f, after)
	}
	if err != nil {
		a.exports.leave(slot)
		return response{}, err
	}
	to := &usageEncoder{format: audit.LineFormat(c.query.Get("format")), account: c.actor.Account.ID}
	res := response{status: http.StatusOK, stream: &stream{
		write: func(emit func([]byte) error) error {
			for more := true; more; {
				a.exports.turns <- struct{}{}
				var err error
				more, err = export.Read(c.ctx, usageAtOnce, to.add)
				<-a.exports.turns // the client's time is not a turn
				if err == nil {
					err = to.flush(emit)
				}
				if err != nil {
					return err
				}
			}
			return nil
		},
		slot: slot,
		end:  func() { a.exports.leave(slot) },
	}}
	media := jsonlType
	if to.format == audit.CSV {
		media = csvType
		to.header()
	}
	if !open {
		res = res.with(cursorHeader, encodeCursor(binding, export.End()))
	}
	if missing := c.completeness.Missing; missing != "" {
		res = res.with(incompleteHeader, missing)
	}
	return res.with("Content-Type", media), nil
}

// usageEncoder encodes usage records as lines.
type usageEncoder struct {
	format  audit.LineFormat
	account string
	dst     bytes.Buffer
	rows    *csv.Writer
	objects *json.Encoder
	err     error
}

// header adds the first row of CSV.
func (e *usageEncoder) header() {
	of := reflect.TypeFor[usageEntryRecord]()
	row := make([]string, of.NumField())
	for i := range row {
		row[i] = of.Field(i).Tag.Get("json")
	}
	e.row(row)
}

func (e *usageEncoder) row(row []string) {
	if e.rows == nil {
		e.rows = csv.NewWriter(&e.dst)
	}
	if err := e.rows.Write(row); e.err == nil {
		e.err = err
	}
}

// usageEvent is a usage record as a structured CloudEvent (CloudEvents 1.0, JSON format).
type usageEvent struct {
	SpecVersion     string            `json:"specversion"`
	ID              string            `json:"id"`
	Type            string            `json:"type"`
	Source          string            `json:"source"`
	Subject         string            `json:"subject"`
	Time            time.Time         `json:"time"`
	DataContentType string            `json:"datacontenttype"`
	Data            *usageEntryRecord `json:"data"`
}

// add adds a record.
func (e *usageEncoder) add(r *usage.Record) {
	out := presentUsageRecord(r)
	var line any = &out
	switch e.format {
	case audit.CSV:
		e.row([]string{
			out.UsageID, strconv.FormatInt(out.Sequence, 10), out.PeriodStart.Format(time.RFC3339), out.PeriodEnd.Format(time.RFC3339), audit.PlainCell(r.Owner), r.OwnerID, out.KeyID,
			out.KeyPrefix, audit.PlainCell(r.Plan), out.GatewayID, r.RouteID, out.Meter, strconv.FormatInt(out.Units, 10), strconv.FormatInt(out.Requests, 10), out.State,
		})
		return
	case cloudEvents:
		subject := r.Owner
		if subject == "" {
			subject = r.KeyID
		}
		line = &usageEvent{"1.0", out.UsageID, "keygate.usage.v1", "/accounts/" + e.account, subject, out.PeriodStart, jsonType, &out}
	}
	if e.objects == nil {
		e.objects = json.NewEncoder(&e.dst)
		e.objects.SetEscapeHTML(false)
	}
	if err := e.objects.Encode(line); e.err == nil {
		e.err = err
	}
}

// flush emits what was added.
func (e *usageEncoder) flush(emit func([]byte) error) error {
	if e.rows != nil {
		e.rows.Flush()
	}
	if e.err != nil || e.dst.Len() == 0 {
		return e.err
	}
	err := emit(e.dst.Bytes())
	e.dst.Reset()
	return err
}
