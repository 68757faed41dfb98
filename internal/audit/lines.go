package audit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/keygate/keygate/internal/id"
)

// LineFormat is a format of exported records, one line for each.
type LineFormat string

// The formats.
const (
	JSONL LineFormat = "jsonl"
	CSV   LineFormat = "csv"
)

// EmitSize is the approximate size of the pieces of an export, in bytes.
const EmitSize = 128 << 10

// LineEncoder encodes records as lines of JSON or of CSV (RFC 4180, with LF line ends). In CSV, an
// apostrophe is ahead of what a spreadsheet would take for a formula: callers choose paths and
// methods. An encoder is not safe for concurrent use.
//
// A block has each method, caller and address once. They are encoded once for each block, not for
// each record, which is the main reason why an export is fast.
type LineEncoder struct {
	format LineFormat
	other  func(dst []byte, r *Record) ([]byte, error)
	dst    []byte
	second int64  // of at, in seconds since 1970
	at     []byte // the last time without its fraction
}

// lineTexts are the encoded entries of a block's dictionaries, by entry number.
type lineTexts struct {
	calls   [][2]string // kind and outcome; method
	callers [][2]string // key to gateway; credential to subject in CSV, which JSON has in the first
	clients []string
}

// NewLineEncoder returns an encoder for a format. record appends the line of one record in
// JSONL. It is called for records that have more than the fields of an authentication. The encoder
// writes the lines of other records itself, exactly as record would.
func NewLineEncoder(format LineFormat, record func(dst []byte, r *Record) ([]byte, error)) *LineEncoder {
	return &LineEncoder{format: format, other: record, second: -1 << 63}
}

// Header returns the first line of the format, or nil if it has none.
func (e *LineEncoder) Header() []byte {
	if e.format != CSV {
		return nil
	}
	return []byte("time,kind,outcome,key_prefix,key_id,gateway_id,method,path,client_ip,request_id,action,target,actor_key_id,diff,count,credential,issuer_id,subject,actor_kind,actor_id,actor_name\n")
}

// flush emits the lines that are left.
func (e *LineEncoder) flush(emit func(lines []byte) error) error {
	if len(e.dst) == 0 {
		return nil
	}
	err := emit(e.dst)
	e.dst = e.dst[:0]
	return err
}

// run encodes the first n records of r. View.All must have succeeded.
func (e *LineEncoder) run(r *run, n int, emit func(lines []byte) error) error {
	if r.texts == nil {
		r.texts = e.prepare(r.view)
	}
	v, texts := r.view, r.texts
	x := v.rest
	begin, end := `{"time":"`, `","count":1}`+"\n"
	if e.format == CSV {
		begin, end = "", ",,,,,1"
	}
	for _, i := range r.indexes[:n] {
		if len(e.dst) >= EmitSize {
			if err := e.flush(emit); err != nil {
				return err
			}
		}
		if x.extras[i] != nil || x.requests[i] == [16]byte{} {
			record, err := v.Record(i)
			if err != nil {
				return err
			}
			if err := e.append(&record); err != nil {
				return err
			}
			continue
		}
		call := &texts.calls[v.call[i]]
		e.dst = append(e.dst, begin...)
		e.appendTime(v.times[i])
		e.dst = append(e.dst, call[0]...)
		who := &texts.callers[v.caller[i]]
		e.dst = append(e.dst, who[0]...)
		e.dst = append(e.dst, call[1]...)
		e.dst = e.appendText(e.dst, x.paths[x.path[i]])
		e.dst = append(e.dst, texts.clients[x.client[i]]...)
		e.dst = id.Append(e.dst, id.Request, x.requests[i])
		e.dst = append(e.dst, end...)
		e.dst = append(e.dst, who[1]...)
	}
	return nil
}

// prepare encodes the entries of v's dictionaries.
func (e *LineEncoder) prepare(v *View) *lineTexts {
	t := &lineTexts{}
	text := func(s string) string { return string(e.appendText(nil, s)) }
	for _, c := range v.calls {
		kind, outcome, method := text(string(c.class.kind())), text(string(c.class.outcome())), text(c.method)
		if e.format == CSV {
			t.calls = append(t.calls, [2]string{"Z," + kind + "," + outcome + ",", method + ","})
			continue
		}
		t.calls = append(t.calls, [2]string{`Z","kind":` + kind + `,"outcome":` + outcome, `,"method":` + method + `,"path":`})
	}
	for i := range v.callers {
		c := &v.callers[i]
		prefix, gateway := readText(c.prefix, ""), readText(c.gateway, id.Gateway)
		key, issuerID, subject, token := readCredential(c.key)
		credential := credentialOf(token, issuerID, subject, prefix, key)
		if e.format == CSV {
			t.callers = append(t.callers, [2]string{text(prefix) + "," + text(key) + "," + text(gateway) + ",",
				"," + credential + "," + text(issuerID) + "," + text(subject) + ",,,\n"})
			continue
		}
		orNull := func(s string) string {
			if s == "" {
				return "null"
			}
			return text(s)
		}
		t.callers = append(t.callers, [2]string{`,"key_prefix":` + orNull(prefix) + `,"key_id":` + orNull(key) + `,"gateway_id":` + orNull(gateway) +
			`,"credential":` + orNull(credential) + `,"issuer_id":` + orNull(issuerID) + `,"subject":` + orNull(subject)})
	}
	for _, encoded := range v.rest.clients {
		client := text(readText(encoded, ""))
		if e.format == CSV {
			t.clients = append(t.clients, ","+client+",")
			continue
		}
		t.clients = append(t.clients, `,"client_ip":`+client+`,"request_id":"`)
	}
	return t
}

// appendTime appends a time in RFC 3339, up to its fraction and without the Z. Records are in the
// order of their times, so most of them have the same second as the record before.
func (e *LineEncoder) appendTime(us int64) {
	t := time.UnixMicro(us).UTC()
	if second := t.Unix(); second != e.second {
		e.second = second
		e.at = t.AppendFormat(e.at[:0], "2006-01-02T15:04:05")
	}
	e.dst = append(e.dst, e.at...)
	fraction := t.Nanosecond() / 1000
	if fraction == 0 {
		return
	}
	digits := [7]byte{0: '.'}
	for i := 6; i > 0; i-- {
		digits[i] = byte('0' + fraction%10)
		fraction /= 10
	}
	e.dst = append(e.dst, bytes.TrimRight(digits[:], "0")...)
}

// record encodes a single record.
func (e *LineEncoder) record(r *Record, emit func(lines []byte) error) error {
	if err := e.append(r); err != nil {
		return err
	}
	return e.flush(emit)
}

// append appends the line of a record that may have every field.
func (e *LineEncoder) append(r *Record) (err error) {
	if e.format != CSV {
		e.dst, err = e.other(e.dst, r)
		return err
	}
	row := []string{
		r.Time.UTC().Format(time.RFC3339Nano), string(r.Kind), string(r.Outcome), r.KeyPrefix, r.KeyID, r.GatewayID, r.Method, r.Path,
		r.ClientIP, r.RequestID, "", "", "", "", strconv.FormatInt(max(1, r.Count), 10), r.Credential(), r.IssuerID, r.Subject, "", "", "",
	}
	if r.Kind == Management {
		diff, err := plainDiff(r.Diff)
		if err != nil {
			return err
		}
		copy(row[10:], []string{string(r.Action), r.Target, r.ActorKeyID, diff})
		by := r.By()
		copy(row[18:], []string{string(by.Kind), by.ID, by.Name})
	}
	for i, cell := range row {
		if i > 0 {
			e.dst = append(e.dst, ',')
		}
		e.dst = e.appendText(e.dst, cell)
	}
	e.dst = append(e.dst, '\n')
	return nil
}

func plainDiff(d Diff) (string, error) {
	if d == nil {
		return "{}", nil
	}
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(d); err != nil {
		return "", fmt.Errorf("encode the diff of an audit record: %w", err)
	}
	return strings.TrimSuffix(b.String(), "\n"), nil
}

// appendText appends a text as a value of the format.
func (e *LineEncoder) appendText(dst []byte, s string) []byte {
	if e.format == CSV {
		return appendCell(dst, s)
	}
	return appendJSONString(dst, s)
}

// appendJSONString appends s exactly as the lists of the management API have it.
func appendJSONString(dst []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			var b bytes.Buffer
			enc := json.NewEncoder(&b)
			enc.SetEscapeHTML(false)
			_ = enc.Encode(s) // a string can always be encoded
			return append(dst, bytes.TrimSuffix(b.Bytes(), []byte("\n"))...)
		}
	}
	dst = append(dst, '"')
	dst = append(dst, s...)
	return append(dst, '"')
}

// Separators by which a spreadsheet may divide a line, whatever quotes are around them: its locale chooses the semicolon or
// a tab, and then a quote within the line's first cell means nothing.
const otherSeparators = ";\t\r\n"

// formulaBegins are the bytes with which a formula begins.
const formulaBegins = "=+-@"

// PlainCell returns s as a cell of CSV in which no spreadsheet finds a formula, by whichever separator it divides lines: there
// is an apostrophe ahead of what would begin one.
func PlainCell(s string) string {
	isFormula := s != "" && strings.IndexByte(formulaBegins+"\t\r", s[0]) >= 0
	if !isFormula && !strings.ContainsAny(s, otherSeparators) {
		return s
	}
	dst := make([]byte, 0, len(s)+4)
	if isFormula {
		dst = append(dst, '\'')
	}
	begins := false // a cell, with the next byte
	for i := range len(s) {
		c := s[i]
		switch {
		case strings.IndexByte(otherSeparators, c) >= 0:
			begins = true
		case begins && c != ' ' && c != '"':
			if begins = false; strings.IndexByte(formulaBegins, c) >= 0 {
				dst = append(dst, '\'')
			}
		}
		dst = append(dst, c)
	}
	return string(dst)
}

// appendCell appends s as a cell of CSV in which no spreadsheet finds a formula.
func appendCell(dst []byte, s string) []byte {
	if s = PlainCell(s); s == "" {
		return dst
	}
	if !strings.ContainsAny(s, "\",\r\n") && s[0] != ' ' {
		return append(dst, s...)
	}
	dst = append(dst, '"')
	for i := range len(s) {
		if s[i] == '"' {
			dst = append(dst, '"')
		}
		dst = append(dst, s[i])
	}
	return append(dst, '"')
}
